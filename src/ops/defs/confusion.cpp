// confusion.cpp -- what was answered for each label: counts[label_i, first maximum of row i of the logits] += weight_i.
// The running matrix of an evaluation stays on the device; the host reads it once. Labels that are no class count
// nothing.
#include <algorithm>
#include <cmath>

#include "ops/op.h"

namespace situ::ops::defs {
namespace {

Types type(const OpView& v) {
  need(v.arity() == 4, "counts, logits, labels and weight are needed");
  need(v.in(1).dtype == DType::f32 && v.in(1).shape.rank() == 2, "logits must be f32[N,C]");
  const int64_t n = v.in(1).shape[0], classes = v.in(1).shape[1];
  if (v.in(0) != f32({classes, classes})) fail("counts must be f32[{},{}], a row per label", classes, classes);
  if (v.in(2) != i32({n})) fail("labels must be i32[{}], one per row of logits", n);
  if (v.in(3) != f32({n})) fail("weight must be f32[{}], one per row of logits", n);
  return {v.in(0)};
}

Cost cost(const OpView& v) { return {.flops = static_cast<double>(v.in(1).count() + v.in(0).count())}; }

void count(const RefCall& c, double (*part)(double)) {
  const RefTensor &old = c.in[0], &logits = c.in[1], &labels = c.in[2], &weight = c.in[3], &counts = c.out[0];
  const int64_t n = logits.shape().cols();
  for (int64_t i = 0; i < old.count(); ++i) counts[i] = part(old[i]);
  for (int64_t r = 0; r < logits.shape().rows(); ++r) {
    const double* row = logits.data + r * n;
    const int64_t best = std::max_element(row, row + n) - row;
    if (labels[r] >= 0 && labels[r] < static_cast<double>(n))
      counts[static_cast<int64_t>(labels[r]) * n + best] += part(weight[r]);
  }
}
void reference(const RefCall& c) {
  count(c, [](double v) { return v; });
}
void magnitude(const RefCall& c) {
  count(c, [](double v) { return std::fabs(v); });
}

}  // namespace

OpList confusion() {
  static constexpr OpDef defs[] = {
      {.name = "confusion",
       .signature = "(counts: float, logits: float, labels: int, weight: float) -> counts",
       .type = type,
       .cost = cost,
       .reference = reference,
       .magnitude = magnitude,
       .aliases = first_over_first,
       .examples = "f32[1,1], f32[1,1], i32[1]<1, f32[1]+; f32[3,3], f32[33,3], i32[33]<3, f32[33]+; f32[10,10]+, "
                   "f32[8,10], i32[8]<10, f32[8]<2; f32[2,2]=0, f32[64,2]<2, i32[64]<2, f32[64]=1; f32[5,5], "
                   "f32[17,5]<3, i32[17]<7, f32[17]; f32[17,17], f32[65,17], i32[65]<17, f32[65]+; f32[33,33]=5, "
                   "f32[9,33], i32[9]<33, f32[9]=1; f32[4,4]<100, f32[1000,4], i32[1000]<4, f32[1000]=1"}};
  return defs;
}
}  // namespace situ::ops::defs
