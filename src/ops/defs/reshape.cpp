// reshape.cpp -- the same elements in the same order under another shape.
#include <algorithm>

#include "ops/op.h"

namespace situ::ops::defs {
namespace {

Types type(const OpView& v) {
  need(v.arity() == 1, "one operand is needed");
  const Shape shape(v.attrs.ints("shape"));
  if (shape.count() != v.in(0).count())
    fail("{} has {} elements, {} has {}: the products must agree", to_string(shape), shape.count(),
         to_string(v.in(0).shape), v.in(0).count());
  return {{v.in(0).dtype, shape}};
}

void gradient(GradBuilder& g) {
  if (g.wants(0)) g.add(0, g.emit("reshape", {g.dout(0)}, {{"shape", g.type(g.in(0)).shape.dims()}}));
}

void reference(const RefCall& c) { std::copy_n(c.in[0].data, c.in[0].count(), c.out[0].data); }

}  // namespace

OpList reshape() {
  static constexpr OpDef defs[] = {
      {.name = "reshape",
       .signature = "(x: any) -> y",
       .type = type,
       .grad = gradient,
       .reference = reference,
       .examples = "f32[6] {shape=[2,3]}; f32[2,3,4,5] {shape=[2,60]}; f32[1] {shape=[]}; f32[] {shape=[1,1,1]};"
                   "f32[7,9] {shape=[7,1,9]}; f32[3,8] {shape=[8,3]}; i32[4,2] {shape=[8]}; f32[16,15] {shape=[240]}",
       .view = true}};
  return defs;
}
}  // namespace situ::ops::defs
