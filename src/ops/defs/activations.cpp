// activations.cpp -- the smooth and the hard activations of PyTorch, each a scalar function like those of
// pointwise.cpp.
//
//   gelu  x Phi(x)                       gelu_tanh  x sigmoid(2 u(x)), u = sqrt(2 / pi) (x + 0.044715 x^3)
//   softplus  log(1 + e^x)               elu  x > 0 ? x : alpha (e^x - 1)
//   hard_sigmoid  clamp(x + 3, 0, 6) / 6 hard_swish  x hard_sigmoid(x)      leaky_relu  x > 0 ? x : slope x
// Gradients are chains of pointwise ops, so that they fuse into one launch; slopes with much in common with their
// function are ops of their own.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/pointwise_op.h"

namespace situ::ops::defs {
namespace {

using namespace elementwise;

constexpr double kRootHalf = 1 / std::numbers::sqrt2, kTwoOverRootPi = 2 * std::numbers::inv_sqrtpi;
constexpr double kCube = 0.044715;

// --- functions ---
double normal_below(double x) { return 0.5 * std::erfc(-x * kRootHalf); }  // Phi
double normal_at(double x) { return std::exp(-0.5 * x * x) * std::numbers::inv_sqrtpi * kRootHalf; }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double two_u(double x) { return kTwoOverRootPi * std::numbers::sqrt2 * (x + kCube * x * x * x); }
double two_u_slope(double x) { return kTwoOverRootPi * std::numbers::sqrt2 * (1 + 3 * kCube * x * x); }

double erf_of(const double* a) { return std::erf(a[0]); }
double gelu_of(const double* a) { return a[0] * normal_below(a[0]); }
double gelu_slope_of(const double* a) { return normal_below(a[0]) + a[0] * normal_at(a[0]); }
double gelu_tanh_of(const double* a) { return a[0] * sigmoid(two_u(a[0])); }
double gelu_tanh_slope_of(const double* a) {
  const double s = sigmoid(two_u(a[0]));
  return s + a[0] * s * (1 - s) * two_u_slope(a[0]);
}
double softplus_of(const double* a) { return std::max(a[0], 0.0) + std::log1p(std::exp(-std::fabs(a[0]))); }
double hard_sigmoid_of(const double* a) { return std::clamp(a[0] + 3, 0.0, 6.0) / 6; }
double hard_swish_of(const double* a) { return a[0] * hard_sigmoid_of(a); }
double hard_swish_slope_of(const double* a) { return a[0] < -3 ? 0 : a[0] > 3 ? 1 : a[0] / 3 + 0.5; }
double leaky_relu_of(const double* a) { return a[0] > 0 ? a[0] : a[0] * a[1]; }
double elu_of(const double* a) { return a[0] > 0 ? a[0] : a[1] * std::expm1(a[0]); }

// --- gradients ---
Value erf_slope(GradBuilder& g) {
  return scaled(g, g.emit("exp", {g.emit("neg", {g.emit("square", {g.in(0)})})}), kTwoOverRootPi);
}
Value gelu_slope(GradBuilder& g) { return g.emit("gelu_slope", {g.in(0)}); }
Value gelu_tanh_slope(GradBuilder& g) { return g.emit("gelu_tanh_slope", {g.in(0)}); }
Value softplus_slope(GradBuilder& g) { return g.emit("sigmoid", {g.in(0)}); }
Value hard_swish_slope(GradBuilder& g) { return g.emit("hard_swish_slope", {g.in(0)}); }
void hard_sigmoid_gradient(GradBuilder& g) {  // 6 y lies between 0 and 6 where x does between -3 and 3
  if (g.wants(0)) g.add(0, g.emit("relu6_mask", {scaled(g, g.dout(0), 1.0 / 6), scaled(g, g.out(0), 6)}));
}
// dy where x > 0, else dy * low.
void above_zero_or(GradBuilder& g, Value low) {
  const Value above = g.emit("greater", {g.in(0), g.constant(0)});
  give(g, 0, g.emit("select", {above, g.dout(0), times(g, g.dout(0), low)}));
}
void leaky_relu_gradient(GradBuilder& g) {
  if (g.wants(0)) above_zero_or(g, g.in(1));
}
void elu_gradient(GradBuilder& g) {
  if (g.wants(0)) above_zero_or(g, times(g, g.in(1), g.emit("exp", {g.in(0)})));
}

// --- the list ---
constexpr std::string_view kSlope = "(x: constant) -> slope";
constexpr std::string_view kLeaky = "(x: float, slope: constant) -> y", kElu = "(x: float, alpha: constant) -> y";
constexpr std::string_view kSigned =
    "f32[33]; f32[]; f32[1]; f32[7,9]; f32[3,64]; f32[5,65]; f32[2,3,5,17]; f32[40]*8; f32[31]*3.5; f32[16]*12;"
    "f32[15]*0.001";
constexpr std::string_view kPlain =
    "f32[33]; f32[]; f32[1]; f32[7,9]; f32[3,64]; f32[5,65]; f32[2,3,5,17]; f32[40]*8; f32[31]*3.5; f32[8]*30";
constexpr std::string_view kWithNumber =
    "f32[33], f32[]=0.01; f32[], f32[]=0.5; f32[7,9], f32[]=0.2; f32[5,65], f32[1]=1; f32[4,17], f32[17];"
    "f32[2,3,5,8], f32[]=0; f32[6,1], f32[6,15]; f32[40]*8, f32[]=0.7; f32[15]*0.001, f32[]=1.5; f32[64], f32[]";

}  // namespace

OpList activations() {
  static constexpr OpDef defs[] = {
      pointwise_op<1, erf_of>("erf", chain<erf_slope>, kSigned),
      pointwise_op<1, gelu_of>("gelu", chain<gelu_slope>, kSigned),
      pointwise_op<1, gelu_slope_of>("gelu_slope", no_gradient, kPlain, kSlope),
      pointwise_op<1, gelu_tanh_of>("gelu_tanh", chain<gelu_tanh_slope>, kSigned),
      pointwise_op<1, gelu_tanh_slope_of>("gelu_tanh_slope", no_gradient, kPlain, kSlope),
      pointwise_op<1, softplus_of>("softplus", chain<softplus_slope>, kPlain),
      pointwise_op<1, hard_sigmoid_of>("hard_sigmoid", hard_sigmoid_gradient, kPlain),
      pointwise_op<1, hard_swish_of>("hard_swish", chain<hard_swish_slope>, kSigned),
      pointwise_op<1, hard_swish_slope_of>("hard_swish_slope", no_gradient, kPlain, kSlope),
      pointwise_op<2, leaky_relu_of>("leaky_relu", leaky_relu_gradient, kWithNumber, kLeaky),
      pointwise_op<2, elu_of>("elu", elu_gradient, kWithNumber, kElu)};
  return defs;
}
}  // namespace situ::ops::defs
