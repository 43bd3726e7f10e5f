// accuracy.cpp -- score_i = weight_i if the first maximum of row i of the logits stands at label_i, else 0.
#include <algorithm>
#include <cmath>

#include "ops/op.h"

namespace situ::ops::defs {
namespace {

Types type(const OpView& v) {
  need(v.arity() == 3, "logits, labels and weight are needed");
  need(v.in(0).dtype == DType::f32 && v.in(0).shape.rank() == 2, "logits must be f32[N,C]");
  const int64_t n = v.in(0).shape[0];
  if (v.in(1) != i32({n})) fail("labels must be i32[{}], one per row of logits", n);
  if (v.in(2) != f32({n})) fail("weight must be f32[{}], one per row of logits", n);
  return {f32({n})};
}

Cost cost(const OpView& v) { return {.flops = static_cast<double>(v.in(0).count())}; }

void reference(const RefCall& c) {
  const RefTensor &logits = c.in[0], &labels = c.in[1], &weight = c.in[2];
  const int64_t n = logits.shape().cols();
  for (int64_t r = 0; r < logits.shape().rows(); ++r) {
    const double* row = logits.data + r * n;
    const auto first = std::max_element(row, row + n) - row;
    c.out[0][r] = static_cast<double>(first) == labels[r] ? weight[r] : 0;
  }
}

void magnitude(const RefCall& c) {  // where the maximum lies depends on signs; the weight is an upper bound
  for (int64_t r = 0; r < c.out[0].count(); ++r) c.out[0][r] = std::fabs(c.in[2][r]);
}

}  // namespace

OpList accuracy() {
  static constexpr OpDef defs[] = {
      {.name = "accuracy",
       .signature = "(logits: float, labels: int, weight: float) -> score",
       .type = type,
       .cost = cost,
       .reference = reference,
       .magnitude = magnitude,
       .examples =
           "f32[1,1], i32[1]<1, f32[1]+; f32[33,3], i32[33]<3, f32[33]+; f32[8,10], i32[8]<10, f32[8]<2;"
           "f32[64,2]<2, i32[64]<2, f32[64]=1; f32[17,5]<3, i32[17]<5, f32[17]+; f32[40,4], i32[40]<7, f32[40]=1;"
           "f32[65,9], i32[65]<3, f32[65]"}};
  return defs;
}
}  // namespace situ::ops::defs
