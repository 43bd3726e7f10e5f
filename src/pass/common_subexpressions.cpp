// common_subexpressions.cpp -- equal op, operands, attributes and types: one node. Every op is a pure function of its
// operands (random ones too: they are keyed by stream and step), so this is always right. It is not always good: what
// is kept for a second reader takes memory, so nodes of a launch list are joined only where they are near, or little is
// kept: a batch, rearranged for the first layer's forward and backward pass.
#include <algorithm>
#include <limits>
#include <map>
#include <string>

#include "ir/text.h"
#include "pass/pass.h"
#include "pass/result_bytes.h"

namespace situ::pass {
namespace {

constexpr int64_t kNear = 16;            // nodes
constexpr int64_t kLittle = 512 * 1024;  // bytes

// Whether the node rearranges what the program is given, into something small.
bool keeps_little(const ir::Graph& graph, const ir::Node& node) {
  return result_bytes(graph, node) <= kLittle &&
         std::ranges::all_of(node.inputs, [&](ir::Value v) { return graph.producer(v).op == "input"; });
}

ir::Graph join(const ir::Graph& graph, int64_t distance) {
  struct Known {
    ir::Values values;
    int64_t place = 0;
  };
  ir::Rebuild rebuild(graph);
  std::map<std::string, Known> known;
  int64_t place = 0;
  for (const ir::Node& node : graph.nodes) {
    ++place;
    if (node.outputs.empty()) {
      rebuild.copy(node);
      continue;
    }
    std::string key = node.op + ir::to_string(node.attrs);
    for (ir::Value v : rebuild(node.inputs)) key += " %" + std::to_string(v);
    for (ir::Value v : node.outputs) key += " " + to_string(graph.type(v));
    auto it = known.find(key);
    if (it == known.end() || (place - it->second.place > distance && !keeps_little(graph, node))) {
      rebuild.copy(node);
      known[key] = {rebuild(node.outputs), place};
    } else {
      for (size_t i = 0; i < node.outputs.size(); ++i) rebuild.map(node.outputs[i], it->second.values[i]);
    }
  }
  return std::move(rebuild.to);
}

}  // namespace

ir::Graph common_subexpressions(const ir::Graph& graph) { return join(graph, std::numeric_limits<int64_t>::max()); }
ir::Graph common_launches(const ir::Graph& graph) { return join(graph, kNear); }

}  // namespace situ::pass
