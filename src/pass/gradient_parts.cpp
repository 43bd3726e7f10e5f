// gradient_parts.cpp -- a gradient that is a sum goes to its update in parts: the update reads every element of it
// anyway, and adds the parts up.
//
//   gradient_rows:    g = reduce(dy) {sum of rows}; b' = sgd(lr, b, g, ..)  ->  b' = sgd(lr, b, dy, ..)
//   gradient_parts:   g = sum_splits(parts); w' = sgd(lr, w, g, ..)         ->  w' = sgd(lr, w, parts, ..)
//   gradient_factors: g = matmul(x, dy) {ta=1}; w' = sgd(lr, w, g, ..)      ->  w' = sgd_factors(lr, w, x | dy, ..)
// The last is for batches of few samples, where a weight's gradient takes longer to write and to read than to compute:
// the device's tuning says how few, if its updates multiply at all. Parts live until the update then, so only small
// ones are left to it: rows of activations that take less time to add up than a launch does, and, in a launch list,
// what layers with few weights and many pixels are split into.
#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "ir/dead_code.h"
#include "ops/reduced_axes.h"
#include "ops/update.h"
#include "pass/pass.h"

namespace situ::pass {
namespace {

constexpr int64_t kMostBytes = 256 * 1024;    // of all parts of a gradient
constexpr int64_t kFewestProducts = 1 << 18;  // elements of a gradient that is left to its update as factors: a MiB
constexpr int64_t kMostRows = 128;            // of a tensor whose columns are summed: one chain of additions

// The operand of a sum, if its parts may stand in the sum's place.
using PartsOf = std::optional<ir::Value> (*)(const ir::Graph&, const ir::Node& sum, const Type& parameter);

int64_t parts_in(const ir::Graph& graph, ir::Value v, const Type& parameter) {
  const Type& type = graph.type(v);
  return type.count() * bytes_of(type.dtype) <= kMostBytes ? ops::gradient_parts(type, parameter) : 0;
}

bool sums_first_axes(const ir::Graph& graph, const ir::Node& node) {
  if (node.op != "reduce" || node.attrs.text("kind") != "sum") return false;
  const std::vector<bool> reduced = ops::reduced_axes(node.attrs, graph.type(node.inputs[0]).shape.rank());
  return std::ranges::is_sorted(reduced, std::greater<>());
}

std::optional<ir::Value> rows_of(const ir::Graph& graph, const ir::Node& sum, const Type& parameter) {
  if (!sums_first_axes(graph, sum)) return std::nullopt;
  const int64_t rows = parts_in(graph, sum.inputs[0], parameter);
  return rows > 0 && rows <= kMostRows ? std::optional(sum.inputs[0]) : std::nullopt;
}

// `adds_parts`: a long sum's second launch, which adds up what the first one left.
std::optional<ir::Value> launched_parts_of(const ir::Graph& graph, const ir::Node& sum, const Type& parameter) {
  const bool splits = sum.op == "sum_splits" && sum.attrs.text("epilogue", "").empty();
  if ((!splits && !sum.attrs.flag("adds_parts")) || sum.inputs.size() != 1) return std::nullopt;
  return parts_in(graph, sum.inputs[0], parameter) > 0 ? std::optional(sum.inputs[0]) : std::nullopt;
}

ir::Graph leave_to_updates(const ir::Graph& graph, PartsOf parts_of) {
  const auto users = ir::users_of(graph);
  ir::Rebuild rebuild(graph);
  for (const ir::Node& node : graph.nodes) {
    if (ops::is_update(node.op) && node.op != "ema") {
      const ops::UpdateLayout layout = ops::update_layout(node.op, node.attrs);
      const auto first = static_cast<size_t>(layout.scalars()), each = static_cast<size_t>(layout.each());
      for (size_t i = first; i < node.inputs.size(); i += each) {
        const ir::Value g = node.inputs[i + 1];
        if (users[static_cast<size_t>(g)].size() != 1) continue;
        if (const auto parts = parts_of(graph, graph.producer(g), graph.type(node.inputs[i])))
          rebuild.map(g, rebuild(*parts));  // whose launch serves the layer that the sum served
      }
    }
    rebuild.copy(node);
  }
  return ir::dead_code(rebuild.to);
}

// The factors of member i's gradient, side by side; nothing if it is no product, is too small, or is read elsewhere.
std::optional<ir::Values> factors_of(const ir::Graph& graph, const ir::Node& update, size_t i, int64_t most_samples) {
  const ir::Node& product = graph.producer(update.inputs[i + 1]);
  const Type& w = graph.type(update.inputs[i]);
  if (product.op != "matmul" || !product.attrs.flag("ta") || product.attrs.flag("tb") || product.inputs.size() != 2 ||
      !product.attrs.text("epilogue", "").empty() || w.count() < kFewestProducts)
    return std::nullopt;
  return graph.type(product.inputs[0]).shape[0] <= most_samples ? std::optional(product.inputs) : std::nullopt;
}

}  // namespace

ir::Graph gradient_factors(const ir::Graph& graph, const device::Tuning& tuning) {
  const int64_t most_samples = tuning.get("update.samples", 0);
  const auto users = ir::users_of(graph);
  ir::Rebuild rebuild(graph);
  for (const ir::Node& node : graph.nodes) {
    const std::string with_factors = node.op + std::string(ops::kFactors);
    if (!ops::is_update(node.op) || !ops::find(with_factors)) {
      rebuild.copy(node);
      continue;
    }
    const ops::UpdateLayout layout = ops::update_layout(node.op, node.attrs);
    const auto first = static_cast<size_t>(layout.scalars()), each = static_cast<size_t>(layout.each());
    std::map<size_t, ir::Value> taken;  // factors by the input in whose place they stand
    std::map<ir::Value, ir::Value> by_dy;
    for (size_t i = first; i < node.inputs.size(); i += each) {
      const ir::Value g = node.inputs[i + 1];
      if (users[static_cast<size_t>(g)].size() != 1) continue;
      if (const auto factors = factors_of(graph, node, i, most_samples)) {
        taken[i + 1] = ops::emit(rebuild.to, "concat", rebuild(*factors), {{"axis", int64_t{1}}});
        rebuild.map(g, taken[i + 1]);
        by_dy[(*factors)[1]] = taken[i + 1];
      }
    }
    // A bias whose gradient are the rows of the same dy finds them there, too: else they would be copied.
    for (size_t i = first; i < node.inputs.size(); i += each)
      if (const auto it = by_dy.find(node.inputs[i + 1]); it != by_dy.end())
        if (ops::gradient_factors(rebuild.to.type(it->second), graph.type(node.inputs[i])) > 0)
          taken[i + 1] = it->second;
    rebuild.copy(node);
    if (taken.empty()) continue;
    rebuild.to.nodes.back().op = with_factors;
    for (const auto& [input, factors] : taken) rebuild.to.nodes.back().inputs[input] = factors;
  }
  return ir::dead_code(rebuild.to);
}

ir::Graph gradient_rows(const ir::Graph& graph) { return leave_to_updates(graph, rows_of); }
ir::Graph gradient_parts(const ir::Graph& graph) { return leave_to_updates(graph, launched_parts_of); }

}  // namespace situ::pass
