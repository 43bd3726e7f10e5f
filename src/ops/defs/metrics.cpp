// metrics.cpp -- adds one batch to the running totals that the host reads now and then.
//   totals' = {totals0 + sum(loss) / scale, totals1 + sum(score), totals2 + sum(weight), sum(loss)}
// Dividing by the scale undoes what the loss was multiplied by, so totals0 / totals2 is the mean loss of a sample.
#include <numeric>

#include "ops/op.h"

namespace situ::ops::defs {
namespace {

Types type(const OpView& v) {
  need(v.arity() == 5, "totals, loss, score, weight and scale are needed");
  need(v.in(0) == f32({4}), "totals must be f32[4]");
  need(v.in(1).dtype == DType::f32 && v.in(1).shape.rank() == 1, "loss must be f32[N]");
  need(v.in(2) == v.in(1) && v.in(3) == v.in(1), "score and weight must have the type of loss");
  need(v.in(4) == f32({}), "scale must be f32[]");
  return {v.in(0)};
}

Cost cost(const OpView& v) { return {.flops = 3 * static_cast<double>(v.in(1).count())}; }

double sum(const RefTensor& t) { return std::accumulate(t.data, t.data + t.count(), 0.0); }

void reference(const RefCall& c) {
  const RefTensor &totals = c.in[0], &fresh = c.out[0];
  const double loss = sum(c.in[1]);
  fresh[0] = totals[0] + loss / c.in[4][0];
  fresh[1] = totals[1] + sum(c.in[2]);
  fresh[2] = totals[2] + sum(c.in[3]);
  fresh[3] = loss;
}

}  // namespace

OpList metrics() {
  static constexpr OpDef defs[] = {
      {.name = "metrics",
       .signature = "(totals: float, loss: float, score: float, weight: float, scale: float) -> totals",
       .type = type,
       .cost = cost,
       .reference = reference,
       .aliases = first_over_first,
       .examples = "f32[4], f32[1], f32[1], f32[1], f32[]=1; f32[4]+, f32[64]+, f32[64]<2, f32[64]=1, f32[]=0.015625;"
                   "f32[4], f32[7], f32[7]<2, f32[7]<2, f32[]+; f32[4]=0, f32[65], f32[65], f32[65]+, f32[]+;"
                   "f32[4]+, f32[1000]+, f32[1000]<2, f32[1000]=1, f32[]=0.001"}};
  return defs;
}
}  // namespace situ::ops::defs
