// gradient_parts.cpp -- in a launch list, a gradient that is a sum of parts goes to its update as it is: the update
// reads every element of it anyway, and adds the parts up in the same order.
//
//   g = sum_splits(parts); w' = sgd(lr, w, g, ..)       ->  w' = sgd(lr, w, parts, ..)
//   g = a sum of dy's rows; b' = sgd(lr, b, g, ..)      ->  b' = sgd(lr, b, dy, ..)
// The parts live until the update then, so only small ones are left to it: those of layers with few weights and many
// pixels, which are the ones that are split, and those of biases behind few rows, whose sum takes less time than its
// launch.
#include "ir/dead_code.h"
#include "ops/update.h"
#include "pass/pass.h"

namespace situ::pass {
namespace {

constexpr int64_t kMostBytes = 256 * 1024;  // of all parts of a gradient
constexpr int64_t kMostRows = 128;          // of a tensor whose columns are summed: one chain of additions

// The parts behind v, if they may stand in its place; otherwise v. A launch with the attribute `adds_rows` gives the
// sum of its operand's rows, or several sums that are the whole one when they are added up.
ir::Value parts_behind(const ir::Graph& graph, ir::Value v, const Type& parameter,
                       const std::vector<std::vector<int>>& users) {
  const ir::Node& node = graph.producer(v);
  if (node.inputs.size() != 1 || users[static_cast<size_t>(v)].size() != 1) return v;
  const bool splits = node.op == "sum_splits" && node.attrs.text("epilogue", "").empty();
  if (!splits && !node.attrs.flag("adds_rows")) return v;
  const Type& parts = graph.type(node.inputs[0]);
  const int64_t count = ops::gradient_parts(parts, parameter);
  if (count == 0 || (!splits && count > kMostRows) || parts.count() * bytes_of(parts.dtype) > kMostBytes) return v;
  return parts_behind(graph, node.inputs[0], parameter, users);
}

}  // namespace

ir::Graph gradient_parts(const ir::Graph& graph) {
  const auto users = ir::users_of(graph);
  ir::Rebuild rebuild(graph);
  for (const ir::Node& node : graph.nodes) {
    if (ops::is_update(node.op) && node.op != "ema") {
      const ops::UpdateLayout layout = ops::update_layout(node.op, node.attrs);
      const auto first = static_cast<size_t>(layout.scalars()), each = static_cast<size_t>(layout.each());
      for (size_t i = first; i < node.inputs.size(); i += each) {
        const ir::Value g = node.inputs[i + 1];
        const ir::Value parts = parts_behind(graph, g, graph.type(node.inputs[i]), users);
        if (parts != g) rebuild.map(g, rebuild(parts));  // whose launch serves the layer that the sum served
      }
    }
    rebuild.copy(node);
  }
  return ir::dead_code(rebuild.to);
}

}  // namespace situ::pass
