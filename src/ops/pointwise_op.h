// pointwise_op.h -- what all pointwise ops share: one type rule, reference, magnitude and set of aliases.
//
// Such an op is a scalar function and its gradient rule; operands broadcast, aligned at the last axis.
#pragma once
#include <cmath>

#include "ops/broadcast.h"
#include "ops/magnitude.h"

namespace situ::ops::elementwise {

using Scalar = double (*)(const double*);

template <int operands>
Types type(const OpView& v) {
  if (v.arity() != operands) fail("{} operands are needed, not {}", operands, v.arity());
  Shape shape;
  for (const Type& t : v.ins) {
    need(t.dtype == DType::f32, "all operands must be f32");
    shape = broadcast(shape, t.shape);
  }
  return {f32(shape)};
}

inline std::vector<Alias> over_alike(const OpView& v) {
  std::vector<Alias> aliases;
  for (int i = 0; i < v.arity(); ++i)
    if (v.in(i) == v.out(0)) aliases.push_back({0, i});
  return aliases;
}

// Fills y element by element from f(the operands there).
void each_element(const RefCall& c, auto f) {
  const RefTensor& y = c.out[0];
  std::vector<Strides> strides;
  for (const RefTensor& t : c.in) strides.push_back(broadcast_strides(t.shape(), y.shape()));
  std::vector<double> args(c.in.size());
  for (int64_t i = 0; i < y.count(); ++i) {
    for (size_t a = 0; a < args.size(); ++a) args[a] = c.in[a][broadcast_index(i, y.shape(), strides[a])];
    y[i] = f(args);
  }
}

template <Scalar f>
void reference(const RefCall& c) {
  each_element(c, [](const std::vector<double>& args) { return f(args.data()); });
}

// Operands count as rounded once: kernels may then approximate f as well as its condition allows, and no better.
template <Scalar f>
void magnitude(const RefCall& c) {
  each_element(c, [](const std::vector<double>& args) {
    std::vector<double> sizes;
    for (double v : args) sizes.push_back(std::fabs(v));
    return scalar_magnitude(f, args.data(), sizes.data(), static_cast<int>(args.size()));
  });
}
// --- for gradient rules ---
inline Value times(GradBuilder& g, Value a, Value b) { return g.emit("mul", {a, b}); }
inline Value scaled(GradBuilder& g, Value a, double by) { return g.emit("mul", {a, g.constant(by)}); }
inline void give(GradBuilder& g, int i, Value dx) { g.add(i, g.sum_to(dx, g.type(g.in(i)).shape)); }
// Unary: dx = dy * slope, where slope is a value built from x or y.
template <Value (*slope)(GradBuilder&)>
void chain(GradBuilder& g) {
  if (g.wants(0)) g.add(0, times(g, g.dout(0), slope(g)));
}
// Of ops that gradient rules emit and nobody differentiates again. That they have a rule only says that roundings of
// the operands pass through (scalar_magnitude).
inline void no_gradient(GradBuilder& g) {
  for (int i = 0; i < g.arity(); ++i) need(!g.wants(i), "part of a gradient, not to be differentiated again");
}

constexpr std::string_view kUnary = "(x: float) -> y", kBinary = "(a: float, b: float) -> y";

template <int operands, Scalar f>
constexpr OpDef pointwise_op(std::string_view name, void (*grad)(GradBuilder&), std::string_view examples,
                             std::string_view signature = operands == 1 ? kUnary : kBinary) {
  return {.name = name,
          .signature = signature,
          .type = type<operands>,
          .grad = grad,
          .reference = reference<f>,
          .magnitude = magnitude<f>,
          .aliases = over_alike,
          .examples = examples,
          .scalar = f};
}

}  // namespace situ::ops::elementwise
