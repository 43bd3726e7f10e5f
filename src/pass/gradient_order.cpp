// gradient_order.cpp -- which gradient of a layer comes first: that of its weight frees the activation before that of
// the data needs room, but its result lives until an update; where it is the larger of the two, it waits.
#include <map>

#include "pass/pass.h"

namespace situ::pass {
namespace {

bool is_weight_gradient(const ir::Node& node) {
  return node.op == "conv2d_dw" || (node.op == "matmul" && node.attrs.flag("ta"));
}
// Of the same layer, if it reads the same dy.
bool is_data_gradient(const ir::Node& node) {
  return node.op == "conv2d_dx" || (node.op == "matmul" && node.attrs.flag("tb") && !node.attrs.flag("ta"));
}

// For each data gradient, the weight gradient that waits for it: larger than its x, and not needed before.
std::map<size_t, size_t> waiting(const ir::Graph& graph) {
  const auto users = ir::users_of(graph);
  std::map<size_t, size_t> after;
  std::map<ir::Value, size_t> by_dy;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const ir::Node& node = graph.nodes[n];
    if (is_weight_gradient(node) && graph.type(node.outputs[0]).count() > graph.type(node.inputs[0]).count()) {
      by_dy[node.inputs[1]] = n;
    } else if (is_data_gradient(node) && by_dy.count(node.inputs[0])) {
      const size_t first = by_dy[node.inputs[0]];
      bool needed = false;
      for (int user : users[static_cast<size_t>(graph.nodes[first].outputs[0])]) needed |= user <= static_cast<int>(n);
      if (!needed) after[n] = first;
      by_dy.erase(node.inputs[0]);
    }
  }
  return after;
}

}  // namespace

ir::Graph gradient_order(const ir::Graph& graph) {
  const std::map<size_t, size_t> after = waiting(graph);
  std::vector<bool> waits(graph.nodes.size());
  for (const auto& [data, weight] : after) waits[weight] = true;
  ir::Rebuild rebuild(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!waits[n]) rebuild.copy(graph.nodes[n]);
    if (const auto it = after.find(n); it != after.end()) rebuild.copy(graph.nodes[it->second]);
  }
  return std::move(rebuild.to);
}

}  // namespace situ::pass
