// softmax.cpp -- softmax along the last axis, and its gradient.
//   y  = exp(x - max x) / sum exp(x - max x)
//   dx = y * (dy - sum(y * dy))        reads y, not x: x's memory is free after forward
#include <algorithm>
#include <cmath>

#include "ops/op.h"

namespace situ::ops::defs {
namespace {

Types type(const OpView& v) {
  need(v.arity() == 1 && v.in(0).dtype == DType::f32 && v.in(0).shape.rank() >= 1,
       "one f32 operand with an axis is needed");
  return {v.in(0)};
}
Types grad_type(const OpView& v) {
  need(v.arity() == 2 && v.in(0).dtype == DType::f32 && v.in(0) == v.in(1), "y and dy must be f32 of one shape");
  need(v.in(0).shape.rank() >= 1, "y must have an axis");
  return {v.in(0)};
}

void gradient(GradBuilder& g) {
  if (g.wants(0)) g.add(0, g.emit("softmax_grad", {g.out(0), g.dout(0)}));
}

Cost cost(const OpView& v) { return {.flops = 5 * static_cast<double>(v.out(0).count())}; }
Cost grad_cost(const OpView& v) { return {.flops = 4 * static_cast<double>(v.out(0).count())}; }

std::vector<Alias> over_either(const OpView&) { return {{0, 0}, {0, 1}}; }

void row(const double* x, double* y, int64_t n) {
  const double top = *std::max_element(x, x + n);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += y[i] = std::exp(x[i] - top);
  for (int64_t i = 0; i < n; ++i) y[i] /= sum;
}

void reference(const RefCall& c) {
  const int64_t n = c.in[0].shape().cols();
  for (int64_t r = 0; r < c.in[0].shape().rows(); ++r) row(c.in[0].data + r * n, c.out[0].data + r * n, n);
}

// An error of eps * (|x| + |max|) in the exponent is a relative one of y, of this element and, through the sum, of all.
void magnitude(const RefCall& c) {
  reference(c);
  const int64_t n = c.in[0].shape().cols();
  for (int64_t r = 0; r < c.in[0].shape().rows(); ++r) {
    const double* x = c.in[0].data + r * n;
    double *y = c.out[0].data + r * n, through_sum = 0;
    const double top = *std::max_element(x, x + n);
    for (int64_t i = 0; i < n; ++i) through_sum += y[i] * (std::fabs(top) + std::fabs(x[i]));
    for (int64_t i = 0; i < n; ++i) y[i] *= 1 + std::fabs(top) + std::fabs(x[i]) + through_sum;
  }
}

// sign = -1 gives the gradient, +1 on absolute values its magnitude.
void grad_rows(const RefCall& c, double sign, double (*part)(double)) {
  const RefTensor &y = c.in[0], &dy = c.in[1], &dx = c.out[0];
  const int64_t n = y.shape().cols();
  for (int64_t r = 0; r < y.shape().rows(); ++r) {
    double dot = 0;
    for (int64_t i = r * n; i < (r + 1) * n; ++i) dot += part(y[i] * dy[i]);
    for (int64_t i = r * n; i < (r + 1) * n; ++i) dx[i] = part(y[i]) * (part(dy[i]) + sign * dot);
  }
}
void grad_reference(const RefCall& c) {
  grad_rows(c, -1, [](double v) { return v; });
}
void grad_magnitude(const RefCall& c) {
  grad_rows(c, +1, [](double v) { return std::fabs(v); });
}

}  // namespace

OpList softmax() {
  static constexpr OpDef defs[] = {
      {.name = "softmax",
       .signature = "(x: float) -> y",
       .type = type,
       .grad = gradient,
       .cost = cost,
       .reference = reference,
       .magnitude = magnitude,
       .aliases = first_over_first,
       .examples = "f32[1]; f32[10]; f32[4,10]; f32[2,3,65]; f32[1,1]; f32[7,1]; f32[3,8]; f32[2,2,3,17]; f32[33,7];"
                   "f32[5,64]; f32[3,31]*9; f32[2,100]*200; f32[3,1000]"},
      {.name = "softmax_grad",
       .signature = "(y: float, dy: float) -> dx",
       .type = grad_type,
       .cost = grad_cost,
       .reference = grad_reference,
       .magnitude = grad_magnitude,
       .aliases = over_either,
       .examples =
           "f32[1], f32[1]; f32[10], f32[10]; f32[4,10], f32[4,10]; f32[2,3,65], f32[2,3,65]; f32[7,1], f32[7,1];"
           "f32[3,8], f32[3,8]; f32[33,17], f32[33,17]; f32[5,64], f32[5,64]; f32[3,1000], f32[3,1000]"}};
  return defs;
}
}  // namespace situ::ops::defs
