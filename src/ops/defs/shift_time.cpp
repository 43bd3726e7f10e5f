// shift_time.cpp -- what a recurrent op saw one step earlier:  y[n,t,:] = x[n,t-1,:], zeros at t = 0.
//   With reverse=1 time runs backwards: y[n,t,:] = x[n,t+1,:], zeros at the end. Each is the other's gradient.
// The weight gradient of a recurrence is then one matmul over all steps: shift_time(h)^T dz.
#include "ops/sequence.h"

namespace situ::ops::defs {
namespace {

Types type(const OpView& v) {
  need(v.arity() == 1 && v.in(0).dtype == DType::f32 && v.in(0).shape.rank() == 3, "x must be f32[N,T,H]");
  return {v.in(0)};
}

void gradient(GradBuilder& g) {
  if (g.wants(0)) g.add(0, g.emit("shift_time", {g.dout(0)}, {{"reverse", int64_t{!g.attrs().flag("reverse")}}}));
}

Cost cost(const OpView&) { return {.flops = 0}; }

void reference(const RefCall& c) {
  const RefTensor &x = c.in[0], &y = c.out[0];
  const Sequence s = sequence_of(c.attrs, x.shape());
  for (int64_t n = 0; n < s.batch; ++n)
    for (int64_t step = 0; step < s.time; ++step)
      for (int64_t j = 0; j < s.width; ++j) {
        const int64_t row = s.row(n, step);
        y[row * s.width + j] = step ? x[(row + s.back()) * s.width + j] : 0;
      }
}

}  // namespace

OpList shift_time() {
  static constexpr OpDef defs[] = {
      {.name = "shift_time",
       .signature = "(x: float) -> y",
       .type = type,
       .grad = gradient,
       .cost = cost,
       .reference = reference,
       .examples = "f32[1,1,1]; f32[2,3,5]; f32[3,4,17] {reverse=1}; f32[1,9,8]; f32[4,1,7] {reverse=1}; f32[2,7,65];"
                   "f32[5,2,33] {reverse=1}; f32[3,5,64] {reverse=1}"}};
  return defs;
}
}  // namespace situ::ops::defs
