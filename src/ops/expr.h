// expr.h -- the small expression of a `fused` node: pointwise ops over its inputs, in steps.
//
//     t0 = add(i0, i1); t1 = relu(t0); t2 = mul(t1, 0x1p-1)         the last step is the result
//
// Inputs broadcast to the result's shape. OpenCL prints it as source, the CPU runs it block by block, the oracle
// evaluates it with the ops' own scalar functions.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/op.h"

namespace situ::ops {

inline constexpr int kMostExprInputs = 12;  // what kernels hold

struct ExprArg {
  enum Kind { input, step, literal } kind = input;
  int index = 0;     // of the input or step
  double value = 0;  // of the literal
  bool operator==(const ExprArg&) const = default;
};
struct ExprStep {
  const OpDef* op = nullptr;  // pointwise
  std::vector<ExprArg> args;
};
struct Expr {
  std::vector<ExprStep> steps;
  int inputs = 0;  // highest input used + 1
};

Expr parse_expr(std::string_view text);
std::string print(const Expr& expr);
// The expression of any pointwise node: of `fused` its attribute, of a plain pointwise op a single step.
Expr expr_of(std::string_view op, const Attrs& attrs, int arity);

// A value and the magnitude of the terms it came from (magnitude.h).
struct Sized {
  double value = 0, magnitude = 0;
};
Sized evaluate(const Expr& expr, std::span<const Sized> inputs);

}  // namespace situ::ops
