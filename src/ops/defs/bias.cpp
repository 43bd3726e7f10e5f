// bias.cpp -- y = x + b, b along the last axis.    dx = dy,  db = sum of dy over all other axes
#include "ops/op.h"

namespace situ::ops::defs {
namespace {

Types type(const OpView& v) {
  need(v.arity() == 2 && v.in(0).dtype == DType::f32 && v.in(1).dtype == DType::f32, "x and b must be f32");
  need(v.in(0).shape.rank() >= 1, "x must have an axis");
  const Shape wanted{v.in(0).shape.cols()};
  if (v.in(1).shape != wanted) fail("b must be {}, as long as the last axis of x", to_string(wanted));
  return {v.in(0)};
}

void gradient(GradBuilder& g) {
  if (g.wants(0)) g.add(0, g.dout(0));
  if (g.wants(1)) g.add(1, g.sum_to(g.dout(0), g.type(g.in(1)).shape));
}

void reference(const RefCall& c) {
  const RefTensor &x = c.in[0], &b = c.in[1], &y = c.out[0];
  for (int64_t i = 0; i < x.count(); ++i) y[i] = x[i] + b[i % b.count()];
}

}  // namespace

OpList bias() {
  static constexpr OpDef defs[] = {
      {.name = "bias",
       .signature = "(x: float, b: float) -> y",
       .type = type,
       .grad = gradient,
       .reference = reference,
       .aliases = first_over_first,
       .examples = "f32[7], f32[7]; f32[1,1], f32[1]; f32[33,9], f32[9]; f32[4,64], f32[64]; f32[3,65], f32[65];"
                   "f32[2,5,7,3], f32[3]; f32[1,4,4,17], f32[17]; f32[5,1], f32[1]; f32[2,3,1,5,15], f32[15]"}};
  return defs;
}
}  // namespace situ::ops::defs
