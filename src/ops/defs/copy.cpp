// copy.cpp -- y = x, from any pitch to any pitch: what a concat or split costs where it cannot be a view.
#include <algorithm>

#include "ops/op.h"

namespace situ::ops::defs {
namespace {

Types type(const OpView& v) {
  need(v.arity() == 1, "one operand is needed");
  return {v.in(0)};
}

void gradient(GradBuilder& g) {
  if (g.wants(0)) g.add(0, g.dout(0));
}

Cost cost(const OpView&) { return {.flops = 0}; }

void reference(const RefCall& c) { std::copy_n(c.in[0].data, c.in[0].count(), c.out[0].data); }

}  // namespace

OpList copy() {
  static constexpr OpDef defs[] = {
      {.name = "copy",
       .signature = "(x: any) -> y",
       .type = type,
       .grad = gradient,
       .cost = cost,
       .reference = reference,
       .examples = "f32[]; f32[1]; f32[33]; f32[7,9]; f32[17,64]; f32[3,65]; f32[2,3,5,15]; i32[8]; i32[3,31]"}};
  return defs;
}
}  // namespace situ::ops::defs
