// rotary.cpp -- positions as rotations: in each head of width D, channels (i, i + D/2) turn by the angle
//   t * base^(-2i/D)      (the two halves side by side, as in LLaMA);  inverse=1 turns back, and is the gradient.
#include "ops/rotary.h"

#include <cmath>

#include "ops/op.h"

namespace situ::ops::defs {
namespace {

Types type(const OpView& v) {
  need(v.arity() == 1 && v.in(0).dtype == DType::f32 && v.in(0).shape.rank() == 3, "x must be f32[N,T,heads*D]");
  const int64_t heads = v.attrs.integer("heads");
  need(heads > 0 && v.in(0).shape[2] % (2 * heads) == 0, "the last axis must hold `heads` heads of an even width");
  need(v.attrs.number("base", 10000) > 0, "base must be positive");
  return {v.in(0)};
}

void gradient(GradBuilder& g) {
  if (!g.wants(0)) return;
  Attrs attrs = g.attrs();
  attrs.set("inverse", int64_t{!attrs.flag("inverse")});
  g.add(0, g.emit("rotary", {g.dout(0)}, attrs));
}

Cost cost(const OpView& v) { return {.flops = 3 * static_cast<double>(v.out(0).count())}; }

void rotate(const RefCall& c, bool terms) {
  const RefTensor &x = c.in[0], &y = c.out[0];
  const Rotary r = rotary_of(c.attrs, x.shape());
  const auto part = [&](double v) { return terms ? std::fabs(v) : v; };
  for (int64_t row = 0; row < x.shape().rows(); ++row)
    for (int64_t head = 0; head < r.heads; ++head)
      for (int64_t i = 0; i < r.half; ++i) {
        const double angle = r.angle(row % r.time, i), turn_x = std::cos(angle), turn_y = std::sin(angle);
        const int64_t at = (row * r.heads + head) * 2 * r.half + i;
        const double a = x[at], b = x[at + r.half];
        y[at] = part(a * turn_x) + part(-b * turn_y);
        y[at + r.half] = part(b * turn_x) + part(a * turn_y);
      }
}
void reference(const RefCall& c) { rotate(c, false); }
void magnitude(const RefCall& c) { rotate(c, true); }

std::vector<Alias> in_place(const OpView&) { return {{0, 0}}; }

}  // namespace

OpList rotary() {
  static constexpr OpDef defs[] = {
      {.name = "rotary",
       .signature = "(x: float) -> y",
       .type = type,
       .grad = gradient,
       .cost = cost,
       .reference = reference,
       .magnitude = magnitude,
       .aliases = in_place,
       .examples =
           "f32[1,1,2] {heads=1}; f32[2,3,8] {heads=2}; f32[1,9,14] {heads=1, inverse=1}; f32[3,5,48] {heads=3};"
           "f32[1,65,16] {heads=1, base=100.0}; f32[2,7,34] {heads=1}; f32[1,4,66] {heads=1, inverse=1};"
           "f32[2,17,128] {heads=2}; f32[1,300,30] {heads=1, base=500000.0}; f32[1,3,128] {heads=1}"}};
  return defs;
}
}  // namespace situ::ops::defs
