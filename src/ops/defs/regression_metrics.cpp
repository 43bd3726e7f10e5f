// regression_metrics.cpp -- adds the errors of one batch to running totals: mean absolute and squared error, and bias.
//   totals' = totals + {sum w |e|, sum w e^2, sum w, sum w e},   e = prediction - target, w the sample's weight
// The sums run over all elements, so totals2 counts elements, not samples.
#include <cmath>

#include "ops/op.h"

namespace situ::ops::defs {
namespace {

Types type(const OpView& v) {
  need(v.arity() == 4, "totals, prediction, target and weight are needed");
  need(v.in(0) == f32({4}), "totals must be f32[4]");
  need(v.in(1).dtype == DType::f32 && v.in(1).shape.rank() >= 1, "prediction must be f32[N,...]");
  need(v.in(2) == v.in(1), "target must have the type of prediction");
  if (v.in(3) != f32({v.in(1).shape[0]})) fail("weight must be f32[{}], one per sample", v.in(1).shape[0]);
  return {v.in(0)};
}

Cost cost(const OpView& v) { return {.flops = 5 * static_cast<double>(v.in(1).count())}; }

// On |operands| with sign = +1, every difference becomes a sum: the magnitude.
void add_up(const RefCall& c, double sign, double (*part)(double)) {
  const RefTensor &x = c.in[1], &t = c.in[2], &y = c.out[0];
  const int64_t each = x.count() / x.shape()[0];
  for (int64_t i = 0; i < 4; ++i) y[i] = part(c.in[0][i]);
  for (int64_t i = 0; i < x.count(); ++i) {
    const double e = part(x[i]) + sign * part(t[i]), w = part(c.in[3][i / each]);
    y[0] += w * std::fabs(e);
    y[1] += w * e * e;
    y[2] += w;
    y[3] += w * e;
  }
}
void reference(const RefCall& c) {
  add_up(c, -1, [](double v) { return v; });
}
void magnitude(const RefCall& c) {
  add_up(c, +1, [](double v) { return std::fabs(v); });
}

}  // namespace

OpList regression_metrics() {
  static constexpr OpDef defs[] = {
      {.name = "regression_metrics",
       .signature = "(totals: float, prediction: float, target: float, weight: float) -> totals",
       .type = type,
       .cost = cost,
       .reference = reference,
       .magnitude = magnitude,
       .aliases = first_over_first,
       .examples = "f32[4], f32[1], f32[1], f32[1]; f32[4]+, f32[64], f32[64], f32[64]+; f32[4]=0, f32[33,1], "
                   "f32[33,1], f32[33]<2; f32[4], f32[7,9], f32[7,9], f32[7]; f32[4]+, f32[5,65], f32[5,65], f32[5]=1; "
                   "f32[4], f32[3,2,5,17], f32[3,2,5,17], f32[3]+; f32[4]=0, f32[1000], f32[1000], f32[1000]+; "
                   "f32[4]+, f32[2,8], f32[2,8], f32[2]=0; f32[4], f32[9,31]*8, f32[9,31]*8, f32[9]+"}};
  return defs;
}
}  // namespace situ::ops::defs
