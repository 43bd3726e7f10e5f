#include "ops/sequence.h"

namespace situ::ops {

Sequence sequence_of(const Attrs& attrs, const Shape& state) {
  return {state[0], state[1], state[2], attrs.flag("reverse")};
}

Attrs direction(const Attrs& attrs) { return {{"reverse", int64_t{attrs.flag("reverse")}}}; }

Value recurrent_weight_gradient(GradBuilder& g, Value h, Value du) {
  const Value before = g.emit("shift_time", {h}, direction(g.attrs()));
  const auto flat = [&](Value v) {
    const Shape shape = g.type(v).shape;
    return g.emit("reshape", {v}, {{"shape", Ints{shape[0] * shape[1], shape[2]}}});
  };
  const Value states = flat(before), sums = flat(du);
  return g.emit("matmul", {states, sums}, {{"ta", int64_t{1}}});
}

Cost recurrent_cost(const Shape& sums, int64_t width) {
  return {.flops = static_cast<double>(sums.count()) * (2 * static_cast<double>(width) + 8)};
}

double add_from_next(double dh, const RefTensor& du, const RefTensor& w, const Sequence& s, int64_t row, int64_t step,
                     int64_t j, const Terms& t) {
  if (step + 1 == s.time) return dh;
  const int64_t cols = du.shape()[2], after = row - s.back();
  for (int64_t k = 0; k < cols; ++k) dh += du[after * cols + k] * t.part(w[j * cols + k]);
  return dh;
}

}  // namespace situ::ops
