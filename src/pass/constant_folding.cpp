// constant_folding.cpp -- every constant is a splat (one value in all elements), so folding is scalar arithmetic.
//
//   f(c, c', ..) -> const      reshape(c), split(c) -> const      x*1, x/1, x+0, x-0 -> x  (when the shape stays x's)
#include <cmath>
#include <optional>

#include "ops/op.h"
#include "pass/pass.h"

namespace situ::pass {
namespace {

using ir::Value;

std::optional<double> splat(const ir::Graph& graph, Value v) {
  const ir::Node& node = graph.producer(v);
  if (node.op != "const") return std::nullopt;
  return node.attrs.number("value");
}

// The operand that `node` (already rebuilt operands `in`) equals, or kNoValue.
Value identity_operand(const ir::Graph& to, const std::string& op, const ir::Values& in) {
  if (in.size() != 2) return ir::kNoValue;
  const auto a = splat(to, in[0]), b = splat(to, in[1]);
  if (op == "mul" && b == 1.0) return in[0];
  if (op == "mul" && a == 1.0) return in[1];
  if (op == "add" && b == 0.0) return in[0];
  if (op == "add" && a == 0.0) return in[1];
  if (op == "sub" && b == 0.0) return in[0];
  if (op == "div" && b == 1.0) return in[0];
  return ir::kNoValue;
}

// A fused expression of splats, by its own reference on single elements.
double fold_fused(const ir::Node& node, std::vector<double>& args) {
  ir::Attrs attrs = node.attrs;
  attrs.set("shape", ir::Ints{1});
  std::vector<ops::RefTensor> in;
  for (double& arg : args) in.push_back({f32({1}), &arg});
  double result = 0;
  const ops::RefTensor out[] = {{f32({1}), &result}};
  ops::get("fused").reference({attrs, in, out});
  return result;
}

std::optional<double> fold(const ir::Graph& to, const ir::Node& node, const ir::Values& in) {
  std::vector<double> args;
  for (Value v : in) {
    const auto value = splat(to, v);
    if (!value) return std::nullopt;
    args.push_back(*value);
  }
  if (args.empty()) return std::nullopt;
  if (node.op == "reshape" || node.op == "split" || node.op == "transpose") return args[0];
  if (node.op == "fused") return fold_fused(node, args);
  const ops::OpDef* op = ops::find(node.op);
  if (op && op->scalar) return op->scalar(args.data());
  return std::nullopt;
}

}  // namespace

ir::Graph constant_folding(const ir::Graph& graph) {
  ir::Rebuild rebuild(graph);
  for (const ir::Node& node : graph.nodes) {
    if (ir::is_structural(node.op)) {
      rebuild.copy(node);
      continue;
    }
    const ir::Values in = rebuild(node.inputs);
    if (const auto value = fold(rebuild.to, node, in); value && std::isfinite(*value)) {
      for (Value v : node.outputs) rebuild.map(v, rebuild.to.constant(*value, graph.type(v)));
    } else if (const Value same = identity_operand(rebuild.to, node.op, in);
               same != ir::kNoValue && rebuild.to.type(same) == graph.type(node.outputs[0])) {
      rebuild.map(node.outputs[0], same);
    } else {
      rebuild.copy(node);
    }
  }
  return std::move(rebuild.to);
}

}  // namespace situ::pass
