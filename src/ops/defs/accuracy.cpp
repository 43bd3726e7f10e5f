// accuracy.cpp -- score_i = weight_i if label_i is among the `top` first of row i of the logits, else 0.
// A logit comes first if it is larger, or equal and further in front; so top = 1 asks for the first maximum.
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
  need(v.attrs.integer("top", 1) >= 1, "`top` must be at least 1");
  return {f32({n})};
}

Cost cost(const OpView& v) { return {.flops = static_cast<double>(v.in(0).count())}; }

// A logit that is NaN is among none.
bool is_among(const double* row, int64_t n, int64_t label, int64_t top) {
  int64_t ahead = 0;
  for (int64_t i = 0; i < n; ++i) ahead += row[i] > row[label] || (i < label && row[i] == row[label]);
  return ahead < top && !std::isnan(row[label]);
}

void reference(const RefCall& c) {
  const RefTensor &logits = c.in[0], &labels = c.in[1], &weight = c.in[2];
  const int64_t n = logits.shape().cols(), top = c.attrs.integer("top", 1);
  for (int64_t r = 0; r < logits.shape().rows(); ++r) {
    const double* row = logits.data + r * n;
    const auto label = static_cast<int64_t>(labels[r]);
    c.out[0][r] = label >= 0 && label < n && is_among(row, n, label, top) ? weight[r] : 0;
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
           "f32[65,9], i32[65]<3, f32[65]; f32[33,10], i32[33]<10, f32[33]+ {top=5}; f32[40,17]<4, i32[40]<19, "
           "f32[40]+ "
           "{top=3}; f32[9,2], i32[9]<2, f32[9]=1 {top=2}; f32[7,4], i32[7]<4, f32[7]=1 {top=9}"}};
  return defs;
}
}  // namespace situ::ops::defs
