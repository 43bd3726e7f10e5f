// states.cpp -- a written state is produced in its own memory. Where the producer cannot write there (it is no launch,
// it reads the old value in a way that forbids overwriting it, or the value is part of something else), a copy follows.
#include <algorithm>
#include <set>

#include "plan/plan.h"

namespace situ::plan {
namespace {

using ir::Node;
using ir::Value;

// Does `producer` read the old value of `state`, other than through an operand its output may overwrite?
bool reads_old_value(const ir::Graph& graph, const std::vector<Part>& parts, const Node& producer, Value out,
                     const std::string& state) {
  const auto aliases = pairs_of(producer, "may_alias");
  const auto out_index = std::find(producer.outputs.begin(), producer.outputs.end(), out) - producer.outputs.begin();
  for (size_t i = 0; i < producer.inputs.size(); ++i) {
    const Node& root = graph.producer(parts[static_cast<size_t>(producer.inputs[i])].root);
    if (root.op != "read" || root.attrs.text("state") != state) continue;
    const bool direct = graph.producer(producer.inputs[i]).op == "read";
    const bool allowed = std::find(aliases.begin(), aliases.end(),
                                   ops::Alias{static_cast<int>(out_index), static_cast<int>(i)}) != aliases.end();
    if (!direct || !allowed) return true;
  }
  return false;
}

}  // namespace

ir::Graph settle_writes(const ir::Graph& graph) {
  const std::vector<Part> parts = parts_of(graph);
  ir::Rebuild rebuild(graph);
  std::set<Value> taken;
  for (const Node& node : graph.nodes) {
    if (node.op != "write") {
      rebuild.copy(node);
      continue;
    }
    const Value v = node.inputs[0];
    const Node& producer = graph.producer(v);
    const bool own = is_launch(producer) && parts[static_cast<size_t>(v)].root == v && taken.insert(v).second &&
                     !reads_old_value(graph, parts, producer, v, node.attrs.text("state"));
    Value written = rebuild(v);
    if (!own) written = rebuild.to.append("copy", {written}, {graph.type(v)}).outputs[0];
    rebuild.to.write(node.attrs.text("state"), written);
  }
  return std::move(rebuild.to);
}

}  // namespace situ::plan
