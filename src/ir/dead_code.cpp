#include "ir/dead_code.h"

namespace situ::ir {

Graph dead_code(const Graph& graph) {
  std::vector<bool> live_value(graph.values.size()), live_node(graph.nodes.size());
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    bool live = node.op == "write" || node.op == "output";
    for (Value v : node.outputs) live = live || live_value[static_cast<size_t>(v)];
    live_node[n] = live;
    if (!live) continue;
    for (Value v : node.inputs) live_value[static_cast<size_t>(v)] = true;
  }
  Rebuild rebuild(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    if (live_node[n]) rebuild.copy(graph.nodes[n]);
  return std::move(rebuild.to);
}

}  // namespace situ::ir
