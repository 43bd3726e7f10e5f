// gradient_factors.cpp -- the gradient of a large linear layer is a product of few terms, one per sample of a small
// batch: written, it is as large as the layer, and its update would read it again. The update multiplies it out itself.
//
//   g = matmul(x, dy) {ta=1}; w' = sgd(lr, w, g, m)  ->  w' = sgd(lr, w, x, dy, m) {factors=1}
#include "ops/update.h"
#include "pass/pass.h"

namespace situ::pass {
namespace {

constexpr int64_t kMostTerms = 16;          // more are worth a product's tiles
constexpr int64_t kFewestElements = 65536;  // fewer stay in a cache

// The product behind a gradient, if its update may do it; otherwise null.
const ir::Node* product_behind(const ir::Graph& graph, ir::Value gradient, const Type& parameter, size_t users) {
  const ir::Node& node = graph.producer(gradient);
  if (node.op != "matmul" || !node.attrs.flag("ta") || node.attrs.flag("tb") || node.inputs.size() != 2 ||
      !node.attrs.text("epilogue", "").empty() || users != 1)
    return nullptr;
  const Type &a = graph.type(node.inputs[0]), &b = graph.type(node.inputs[1]);
  const bool fits =
      ops::are_factors(a, b, parameter) && a.shape[0] <= kMostTerms && parameter.count() >= kFewestElements;
  return fits ? &node : nullptr;
}

}  // namespace

ir::Graph gradient_factors(const ir::Graph& graph) {
  const auto users = ir::users_of(graph);
  ir::Rebuild rebuild(graph);
  for (const ir::Node& node : graph.nodes) {
    const ir::Node* product = nullptr;
    size_t w = 0;
    if (ops::is_update(node.op) && node.op != "ema" && !node.attrs.flag("factors")) {
      const ops::UpdateLayout layout = ops::update_layout(node.op, node.attrs);
      w = static_cast<size_t>(layout.scalars());
      const ir::Value gradient = node.inputs[w + 1];
      if (node.inputs.size() == w + static_cast<size_t>(layout.each()))  // of one parameter
        product =
            product_behind(graph, gradient, graph.type(node.inputs[w]), users[static_cast<size_t>(gradient)].size());
    }
    if (!product) {
      rebuild.copy(node);
      continue;
    }
    ir::Node update = node;
    update.inputs[w + 1] = product->inputs[0];
    update.inputs.insert(update.inputs.begin() + static_cast<std::ptrdiff_t>(w) + 2, product->inputs[1]);
    update.attrs.set("factors", int64_t{1});
    rebuild.copy(update);
  }
  return std::move(rebuild.to);
}

}  // namespace situ::pass
