// concat.cpp -- tensors one after the other along an axis, and the reverse. Both are views where the layout allows:
// along the last axis the parts are columns of one tensor with a larger pitch, along the first they are rows.
#include "ops/op.h"

namespace situ::ops::defs {
namespace {

int axis_of(const Attrs& attrs, const Shape& shape) {
  const int64_t given = attrs.integer("axis");
  const int axis = normal_axis(given, shape.rank());
  if (axis < 0 || axis >= shape.rank()) fail("axis {} does not exist in {}", given, to_string(shape));
  return axis;
}

Types concat_type(const OpView& v) {
  need(v.arity() >= 1, "at least one operand is needed");
  Type whole = v.in(0);
  const int axis = axis_of(v.attrs, whole.shape);
  for (int i = 1; i < v.arity(); ++i) {
    Type expected = v.in(i);
    need(expected.shape.rank() == whole.shape.rank(), "all operands must have as many axes as the first");
    expected.shape[axis] = v.in(0).shape[axis];
    if (expected != v.in(0)) fail("operand {} must equal the first but for axis {}", to_string(v.in(i)), axis);
    whole.shape[axis] += v.in(i).shape[axis];
  }
  return {{whole.dtype, Shape(whole.shape.dims())}};
}

Types split_type(const OpView& v) {
  need(v.arity() == 1, "one operand is needed");
  const int axis = axis_of(v.attrs, v.in(0).shape);
  Types parts;
  int64_t total = 0;
  for (int64_t size : v.attrs.ints("sizes")) {
    std::vector<int64_t> dims = v.in(0).shape.dims();
    dims[static_cast<size_t>(axis)] = size;
    parts.push_back({v.in(0).dtype, Shape(dims)});
    total += size;
  }
  if (total != v.in(0).shape[axis]) fail("`sizes` add up to {}, axis {} has {}", total, axis, v.in(0).shape[axis]);
  return parts;
}

void concat_gradient(GradBuilder& g) {
  Ints sizes;
  bool any = false;
  for (int i = 0; i < g.arity(); ++i) {
    const Shape& part = g.type(g.in(i)).shape;
    sizes.push_back(part[axis_of(g.attrs(), part)]);
    any |= g.wants(i);
  }
  if (!any) return;
  const Values parts = g.emit_all("split", {g.dout(0)}, {{"axis", g.attrs().integer("axis")}, {"sizes", sizes}});
  for (int i = 0; i < g.arity(); ++i) g.add(i, parts[static_cast<size_t>(i)]);
}

void split_gradient(GradBuilder& g) {
  if (!g.wants(0)) return;
  Values douts;
  for (size_t i = 0; i < g.attrs().ints("sizes").size(); ++i) douts.push_back(g.dout(static_cast<int>(i)));
  g.add(0, g.emit("concat", douts, {{"axis", g.attrs().integer("axis")}}));
}

// Calls copy(part, its element, the element of the whole), the whole seen as [before][axis][after].
void each_element(std::span<const RefTensor> parts, const Shape& whole, int axis, auto copy) {
  int64_t before = 1, after = 1, offset = 0;
  for (int i = 0; i < axis; ++i) before *= whole[i];
  for (int i = axis + 1; i < whole.rank(); ++i) after *= whole[i];
  for (const RefTensor& part : parts) {
    const int64_t run = part.shape()[axis] * after;
    for (int64_t b = 0; b < before; ++b)
      for (int64_t i = 0; i < run; ++i) copy(part[b * run + i], b * whole[axis] * after + offset + i);
    offset += run;
  }
}

void concat_reference(const RefCall& c) {
  const RefTensor& y = c.out[0];
  each_element(c.in, y.shape(), axis_of(c.attrs, y.shape()), [&](double& part, int64_t i) { y[i] = part; });
}
void split_reference(const RefCall& c) {
  const RefTensor& x = c.in[0];
  each_element(c.out, x.shape(), axis_of(c.attrs, x.shape()), [&](double& part, int64_t i) { part = x[i]; });
}

}  // namespace

OpList concat() {
  static constexpr OpDef defs[] = {
      {.name = "concat",
       .signature = "(parts: float...) -> whole",
       .type = concat_type,
       .grad = concat_gradient,
       .reference = concat_reference,
       .examples =
           "f32[3], f32[5] {axis=0}; f32[2,3], f32[2,4] {axis=1}; f32[7,9], f32[1,9], f32[8,9] {axis=0};"
           "f32[2,3,5], f32[2,1,5], f32[2,7,5] {axis=1}; f32[4,17], f32[4,1], f32[4,15] {axis=-1}; f32[3,8] {axis=0};"
           "f32[2,5,4,3], f32[2,5,4,8] {axis=3}; i32[3,2], i32[3,1] {axis=1}",
       .view = true},
      {.name = "split",
       .signature = "(whole: float) -> parts...",
       .type = split_type,
       .grad = split_gradient,
       .reference = split_reference,
       .examples =
           "f32[8] {axis=0, sizes=[3,5]}; f32[2,7] {axis=1, sizes=[3,4]}; f32[16,9] {axis=0, sizes=[7,1,8]};"
           "f32[2,11,5] {axis=1, sizes=[3,1,7]}; f32[4,33] {axis=-1, sizes=[17,1,15]}; f32[3,8] {axis=0, sizes=[3]};"
           "f32[2,5,4,11] {axis=3, sizes=[3,8]}; i32[3,3] {axis=1, sizes=[2,1]}",
       .view = true}};
  return defs;
}
}  // namespace situ::ops::defs
