// pointwise.cpp -- one scalar function per element; operands broadcast, aligned at the last axis.
//
// Everything but the function and its derivative is the same for all of them, so they share one type rule, reference
// and set of aliases. Gradients prefer y over x where either will do: x's memory is then free after the forward pass.
#include <algorithm>
#include <cmath>

#include "ops/pointwise_op.h"

namespace situ::ops::defs {
namespace {

using namespace elementwise;

void one(const RefCall& c) { std::fill_n(c.out[0].data, c.out[0].count(), 1.0); }  // comparisons are exact

// --- functions ---
double neg_of(const double* a) { return -a[0]; }
double exp_of(const double* a) { return std::exp(a[0]); }
double log_of(const double* a) { return std::log(a[0]); }
double sqrt_of(const double* a) { return std::sqrt(a[0]); }
double rsqrt_of(const double* a) { return 1 / std::sqrt(a[0]); }
double reciprocal_of(const double* a) { return 1 / a[0]; }
double abs_of(const double* a) { return std::fabs(a[0]); }
double square_of(const double* a) { return a[0] * a[0]; }
double relu_of(const double* a) { return std::max(a[0], 0.0); }
double relu6_of(const double* a) { return std::clamp(a[0], 0.0, 6.0); }
double sigmoid_of(const double* a) { return 1 / (1 + std::exp(-a[0])); }
double tanh_of(const double* a) { return std::tanh(a[0]); }
double silu_of(const double* a) { return a[0] / (1 + std::exp(-a[0])); }
double add_of(const double* a) { return a[0] + a[1]; }
double sub_of(const double* a) { return a[0] - a[1]; }
double mul_of(const double* a) { return a[0] * a[1]; }
double div_of(const double* a) { return a[0] / a[1]; }
double max_of(const double* a) { return std::max(a[0], a[1]); }
double min_of(const double* a) { return std::min(a[0], a[1]); }
double greater_of(const double* a) { return a[0] > a[1] ? 1 : 0; }
double equal_of(const double* a) { return a[0] == a[1] ? 1 : 0; }
double relu_mask_of(const double* a) { return a[1] > 0 ? a[0] : 0; }
double relu6_mask_of(const double* a) { return a[1] > 0 && a[1] < 6 ? a[0] : 0; }
double select_of(const double* a) { return a[0] != 0 ? a[1] : a[2]; }

// --- gradients ---
Value x_of(GradBuilder& g) { return g.in(0); }
Value y_of(GradBuilder& g) { return g.out(0); }
Value abs_slope(GradBuilder& g) {
  const Value zero = g.constant(0), x = x_of(g);
  return g.emit("sub", {g.emit("greater", {x, zero}), g.emit("greater", {zero, x})});
}
Value square_slope(GradBuilder& g) { return scaled(g, x_of(g), 2); }
Value sigmoid_slope(GradBuilder& g) { return times(g, y_of(g), g.emit("sub", {g.constant(1), y_of(g)})); }
Value tanh_slope(GradBuilder& g) { return g.emit("sub", {g.constant(1), g.emit("square", {y_of(g)})}); }
// d/dx x s(x) = s + x s (1 - s) = y + s (1 - y)
Value silu_slope(GradBuilder& g) {
  const Value s = g.emit("sigmoid", {x_of(g)});
  return g.emit("add", {y_of(g), times(g, s, g.emit("sub", {g.constant(1), y_of(g)}))});
}
Value sqrt_slope(GradBuilder& g) { return g.emit("div", {g.constant(0.5), y_of(g)}); }
Value rsqrt_slope(GradBuilder& g) { return scaled(g, times(g, g.emit("square", {y_of(g)}), y_of(g)), -0.5); }
Value reciprocal_slope(GradBuilder& g) { return g.emit("neg", {g.emit("square", {y_of(g)})}); }

void neg_gradient(GradBuilder& g) {
  if (g.wants(0)) g.add(0, g.emit("neg", {g.dout(0)}));
}
void log_gradient(GradBuilder& g) {
  if (g.wants(0)) g.add(0, g.emit("div", {g.dout(0), x_of(g)}));
}
void relu_gradient(GradBuilder& g) {
  if (g.wants(0)) g.add(0, g.emit("relu_mask", {g.dout(0), y_of(g)}));
}
void relu6_gradient(GradBuilder& g) {
  if (g.wants(0)) g.add(0, g.emit("relu6_mask", {g.dout(0), y_of(g)}));
}
void relu_mask_gradient(GradBuilder& g) {
  if (g.wants(0)) give(g, 0, g.emit("relu_mask", {g.dout(0), g.in(1)}));
}
void relu6_mask_gradient(GradBuilder& g) {
  if (g.wants(0)) give(g, 0, g.emit("relu6_mask", {g.dout(0), g.in(1)}));
}
void add_gradient(GradBuilder& g) {
  for (int i = 0; i < 2; ++i)
    if (g.wants(i)) give(g, i, g.dout(0));
}
void sub_gradient(GradBuilder& g) {
  if (g.wants(0)) give(g, 0, g.dout(0));
  if (g.wants(1)) g.add(1, g.emit("neg", {g.sum_to(g.dout(0), g.type(g.in(1)).shape)}));
}
void mul_gradient(GradBuilder& g) {
  for (int i = 0; i < 2; ++i)
    if (g.wants(i)) give(g, i, times(g, g.dout(0), g.in(1 - i)));
}
void div_gradient(GradBuilder& g) {
  if (!g.wants(0) && !g.wants(1)) return;
  const Value da = g.emit("div", {g.dout(0), g.in(1)});
  if (g.wants(0)) give(g, 0, da);
  if (g.wants(1)) give(g, 1, g.emit("neg", {times(g, da, y_of(g))}));
}
// dy goes where the condition chooses: to `yes` where c is not 0, else to `no`.
void route(GradBuilder& g, Value c, int yes, int no) {
  const Value zero = g.constant(0);
  if (g.wants(yes)) give(g, yes, g.emit("select", {c, g.dout(0), zero}));
  if (g.wants(no)) give(g, no, g.emit("select", {c, zero, g.dout(0)}));
}
void max_gradient(GradBuilder& g) {  // equal operands: to the first
  if (g.wants(0) || g.wants(1)) route(g, g.emit("greater", {g.in(1), g.in(0)}), 1, 0);
}
void min_gradient(GradBuilder& g) {
  if (g.wants(0) || g.wants(1)) route(g, g.emit("greater", {g.in(0), g.in(1)}), 1, 0);
}
void select_gradient(GradBuilder& g) {
  if (g.wants(1) || g.wants(2)) route(g, g.in(0), 1, 2);
}

// --- the list ---
constexpr std::string_view kMasking = "(dy: float, y: constant) -> dx",
                           kChoice = "(c: constant, a: float, b: float) -> y";

constexpr std::string_view kSigned = "f32[]; f32[1]; f32[33]; f32[7,9]; f32[3,64]; f32[5,65]; f32[2,3,5,17]; f32[40]*8";
constexpr std::string_view kPositive = "f32[]+; f32[15]+; f32[9,31]+; f32[2,3,1,8]+";
constexpr std::string_view kPairs =  // every position an axis can stretch in, on either side
    "f32[], f32[]; f32[7], f32[7]; f32[3,65], f32[3,65]; f32[5,9], f32[9]; f32[9], f32[5,9]; f32[4,17], f32[];"
    "f32[], f32[4,17]; f32[8,1], f32[8,33]; f32[8,33], f32[8,1]; f32[1,15], f32[6,15]; f32[6,15], f32[1,15];"
    "f32[7,1], f32[1,16]; f32[1,5], f32[3,1]; f32[2,3,1,8], f32[4,8]; f32[3,4,1], f32[2,3,4,31];"
    "f32[2,1,3,1,5], f32[4,1,2,1]; f32[2,3,5,7], f32[2,3,5,7]; f32[1], f32[64]; f32[1,1], f32[1,1]";
constexpr std::string_view kMasks =
    "f32[33], f32[33]; f32[7,65], f32[7,65]; f32[2,5,3,9], f32[2,5,3,9]; f32[6,8], f32[8]; f32[5,1], f32[5,16];"
    "f32[40], f32[40]*9; f32[4,9], f32[4,9]<2; f32[9], f32[3,9]*9";
constexpr std::string_view kCompared =
    "f32[33], f32[33]; f32[7,9]<3, f32[7,9]<3; f32[6,5]<3, f32[5]<3; f32[4,1]<2, f32[1,17]<2; f32[], f32[15];"
    "f32[2,3,8], f32[]";
constexpr std::string_view kChosen =
    "f32[33]<2, f32[33], f32[33]; f32[5,9]<2, f32[9], f32[5,9]; f32[]<2, f32[7], f32[7]; f32[8,1]<3, f32[], f32[1,17];"
    "f32[4,7], f32[4,7], f32[]; f32[65]<2, f32[], f32[]; f32[2,3,5]<2, f32[2,1,5], f32[3,1]";

template <Scalar f>
constexpr OpDef comparison(std::string_view name) {
  OpDef op = pointwise_op<2, f>(name, nullptr, kCompared);
  op.magnitude = one;
  return op;
}

}  // namespace

OpList pointwise() {
  static constexpr OpDef defs[] = {pointwise_op<1, neg_of>("neg", neg_gradient, kSigned),
                                   pointwise_op<1, exp_of>("exp", chain<y_of>, kSigned),
                                   pointwise_op<1, log_of>("log", log_gradient, kPositive),
                                   pointwise_op<1, sqrt_of>("sqrt", chain<sqrt_slope>, kPositive),
                                   pointwise_op<1, rsqrt_of>("rsqrt", chain<rsqrt_slope>, kPositive),
                                   pointwise_op<1, reciprocal_of>("reciprocal", chain<reciprocal_slope>, kSigned),
                                   pointwise_op<1, abs_of>("abs", chain<abs_slope>, kSigned),
                                   pointwise_op<1, square_of>("square", chain<square_slope>, kSigned),
                                   pointwise_op<1, relu_of>("relu", relu_gradient, kSigned),
                                   pointwise_op<1, relu6_of>("relu6", relu6_gradient, kSigned),
                                   pointwise_op<1, sigmoid_of>("sigmoid", chain<sigmoid_slope>, kSigned),
                                   pointwise_op<1, tanh_of>("tanh", chain<tanh_slope>, kSigned),
                                   pointwise_op<1, silu_of>("silu", chain<silu_slope>, kSigned),
                                   pointwise_op<2, add_of>("add", add_gradient, kPairs),
                                   pointwise_op<2, sub_of>("sub", sub_gradient, kPairs),
                                   pointwise_op<2, mul_of>("mul", mul_gradient, kPairs),
                                   pointwise_op<2, div_of>("div", div_gradient, kPairs),
                                   pointwise_op<2, max_of>("max", max_gradient, kPairs),
                                   pointwise_op<2, min_of>("min", min_gradient, kPairs),
                                   comparison<greater_of>("greater"),
                                   comparison<equal_of>("equal"),
                                   pointwise_op<2, relu_mask_of>("relu_mask", relu_mask_gradient, kMasks, kMasking),
                                   pointwise_op<2, relu6_mask_of>("relu6_mask", relu6_mask_gradient, kMasks, kMasking),
                                   pointwise_op<3, select_of>("select", select_gradient, kChosen, kChoice)};
  return defs;
}
}  // namespace situ::ops::defs
