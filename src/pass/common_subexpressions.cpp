// common_subexpressions.cpp -- equal op, operands, attributes and types: one node. Every op is a pure function of its
// operands (random ones too: they are keyed by stream and step), so this is always right.
#include <map>

#include "ir/text.h"
#include "pass/pass.h"

namespace situ::pass {

ir::Graph common_subexpressions(const ir::Graph& graph) {
  ir::Rebuild rebuild(graph);
  std::map<std::string, ir::Values> known;
  for (const ir::Node& node : graph.nodes) {
    if (node.outputs.empty()) {
      rebuild.copy(node);
      continue;
    }
    std::string key = node.op + ir::to_string(node.attrs);
    for (ir::Value v : rebuild(node.inputs)) key += " %" + std::to_string(v);
    for (ir::Value v : node.outputs) key += " " + to_string(graph.type(v));
    auto it = known.find(key);
    if (it == known.end()) {
      rebuild.copy(node);
      known[key] = rebuild(node.outputs);
    } else {
      for (size_t i = 0; i < node.outputs.size(); ++i) rebuild.map(node.outputs[i], it->second[i]);
    }
  }
  return std::move(rebuild.to);
}

}  // namespace situ::pass
