// transpose.cpp -- axes in another order: axis i of y is axis perm[i] of x.    dx = dy with the inverse permutation
#include "ops/broadcast.h"
#include "ops/op.h"

namespace situ::ops::defs {
namespace {

Ints inverse(const Ints& perm) {
  Ints result(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) result[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  return result;
}

Types type(const OpView& v) {
  need(v.arity() == 1, "one operand is needed");
  const Shape& x = v.in(0).shape;
  const Ints& perm = v.attrs.ints("perm");
  if (static_cast<int>(perm.size()) != x.rank()) fail("`perm` has {} axes, x has {}", perm.size(), x.rank());
  std::vector<bool> seen(perm.size());
  std::vector<int64_t> dims;
  for (int64_t axis : perm) {
    need(axis >= 0 && axis < x.rank() && !seen[static_cast<size_t>(axis)], "`perm` must hold each axis of x once");
    seen[static_cast<size_t>(axis)] = true;
    dims.push_back(x[static_cast<int>(axis)]);
  }
  return {{v.in(0).dtype, Shape(dims)}};
}

void gradient(GradBuilder& g) {
  if (g.wants(0)) g.add(0, g.emit("transpose", {g.dout(0)}, {{"perm", inverse(g.attrs().ints("perm"))}}));
}

Cost cost(const OpView&) { return {.flops = 0}; }

void reference(const RefCall& c) {
  const RefTensor &x = c.in[0], &y = c.out[0];
  const Ints& perm = c.attrs.ints("perm");
  Strides in_x{}, in_y{};  // of x, and how far a step along each axis of y moves in x
  for (int64_t axis = x.shape().rank() - 1, step = 1; axis >= 0; step *= x.shape()[static_cast<int>(axis--)])
    in_x[static_cast<size_t>(axis)] = step;
  for (size_t i = 0; i < perm.size(); ++i) in_y[i] = in_x[static_cast<size_t>(perm[i])];
  for (int64_t i = 0; i < y.count(); ++i) y[i] = x[broadcast_index(i, y.shape(), in_y)];
}

}  // namespace

OpList transpose() {
  static constexpr OpDef defs[] = {
      {.name = "transpose",
       .signature = "(x: any) -> y",
       .type = type,
       .grad = gradient,
       .cost = cost,
       .reference = reference,
       .examples = "f32[7] {perm=[0]}; f32[1,1] {perm=[1,0]}; f32[3,5] {perm=[1,0]}; f32[17,65] {perm=[1,0]};"
                   "f32[33,31] {perm=[1,0]}; f32[64,16] {perm=[1,0]}; f32[1,9] {perm=[1,0]}; f32[5,4] {perm=[0,1]};"
                   "f32[2,3,4] {perm=[0,2,1]}; f32[2,3,4] {perm=[2,0,1]}; f32[3,2,17] {perm=[1,0,2]};"
                   "f32[2,5,7,3] {perm=[0,3,1,2]}; f32[2,3,5,7] {perm=[0,2,3,1]}; f32[3,3,4,8] {perm=[3,2,0,1]};"
                   "f32[2,3,1,4,2,3] {perm=[5,0,3,2,4,1]}; i32[4,9] {perm=[1,0]}; f32[70,130] {perm=[1,0]}"}};
  return defs;
}
}  // namespace situ::ops::defs
