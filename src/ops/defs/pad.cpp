// pad.cpp -- zeros around a tensor, and the reverse: a part of one. Each is the other's gradient.
//   pad    y[i - before...] = x, zeros elsewhere         slice  y[i...] = x[begin + i...]
// A slice along the last axis or along rows is a view: expand makes it a split, which costs nothing.
#include <algorithm>

#include "ops/op.h"

namespace situ::ops::defs {
namespace {

const Ints& per_axis(const Attrs& attrs, std::string_view name, const Shape& shape) {
  const Ints& list = attrs.ints(name);
  if (static_cast<int>(list.size()) != shape.rank()) fail("`{}` needs a number for each axis of x", name);
  for (int64_t v : list)
    if (v < 0) fail("`{}` must not be negative", name);
  return list;
}

Types pad_type(const OpView& v) {
  need(v.arity() == 1 && v.in(0).shape.rank() >= 1, "one operand with an axis is needed");
  const Ints &before = per_axis(v.attrs, "before", v.in(0).shape), &after = per_axis(v.attrs, "after", v.in(0).shape);
  std::vector<int64_t> dims = v.in(0).shape.dims();
  for (size_t i = 0; i < dims.size(); ++i) dims[i] += before[i] + after[i];
  return {{v.in(0).dtype, Shape(dims)}};
}
Types slice_type(const OpView& v) {
  need(v.arity() == 1 && v.in(0).shape.rank() >= 1, "one operand with an axis is needed");
  const Ints &begin = per_axis(v.attrs, "begin", v.in(0).shape), &size = per_axis(v.attrs, "size", v.in(0).shape);
  for (int i = 0; i < v.in(0).shape.rank(); ++i) {
    const auto a = static_cast<size_t>(i);
    if (size[a] < 1 || begin[a] + size[a] > v.in(0).shape[i])
      fail("{} elements from {} on do not lie in axis {} of {}", size[a], begin[a], i, v.in(0).shape[i]);
  }
  return {{v.in(0).dtype, Shape(size)}};
}

void pad_gradient(GradBuilder& g) {
  if (g.wants(0))
    g.add(0,
          g.emit("slice", {g.dout(0)}, {{"begin", g.attrs().ints("before")}, {"size", g.type(g.in(0)).shape.dims()}}));
}
void slice_gradient(GradBuilder& g) {
  if (!g.wants(0)) return;
  const Ints &begin = g.attrs().ints("begin"), &size = g.attrs().ints("size");
  Ints after = g.type(g.in(0)).shape.dims();
  for (size_t i = 0; i < after.size(); ++i) after[i] -= begin[i] + size[i];
  g.add(0, g.emit("pad", {g.dout(0)}, {{"before", begin}, {"after", after}}));
}

// Views for the axes that allow it, then one slice for the rest.
Values expand_slice(Graph& graph, const Values& in, const Attrs& attrs) {
  Value x = in[0];
  Ints begin = attrs.ints("begin");
  const Ints& size = attrs.ints("size");
  bool whole = true, first = true;  // first: all axes before have extent 1 by now
  for (int i = 0; i < graph.type(x).shape.rank(); ++i) {
    const auto a = static_cast<size_t>(i);
    const int64_t extent = graph.type(x).shape[i];
    const bool last = i + 1 == graph.type(x).shape.rank();
    if (size[a] < extent && (first || last)) {
      Ints sizes;
      if (begin[a] > 0) sizes.push_back(begin[a]);
      sizes.push_back(size[a]);
      if (begin[a] + size[a] < extent) sizes.push_back(extent - begin[a] - size[a]);
      x = emit_all(graph, "split", {x}, {{"axis", int64_t{i}}, {"sizes", sizes}})[begin[a] > 0 ? 1 : 0];
      begin[a] = 0;
    }
    whole = whole && graph.type(x).shape[i] == size[a];
    first = first && size[a] == 1 && graph.type(x).shape[i] == 1;
  }
  return {whole ? x : emit(graph, "slice", {x}, {{"begin", begin}, {"size", size}})};
}

Cost moved(const OpView& v) {
  const Type& smaller = v.in(0).count() < v.out(0).count() ? v.in(0) : v.out(0);
  return {.flops = 0, .bytes = static_cast<double>((smaller.count() + v.out(0).count()) * bytes_of(smaller.dtype))};
}

// Calls visit(element of the part, element of the whole) for a part that starts at `begin`.
void each_element(const Shape& part, const Shape& whole, const Ints& begin, auto visit) {
  for (int64_t i = 0; i < part.count(); ++i) {
    int64_t rest = i, index = 0, step = 1;
    for (int axis = part.rank() - 1; axis >= 0; --axis) {
      index += (rest % part[axis] + begin[static_cast<size_t>(axis)]) * step;
      rest /= part[axis];
      step *= whole[axis];
    }
    visit(i, index);
  }
}
void pad_reference(const RefCall& c) {
  const RefTensor &x = c.in[0], &y = c.out[0];
  std::fill_n(y.data, y.count(), 0.0);
  each_element(x.shape(), y.shape(), c.attrs.ints("before"), [&](int64_t i, int64_t at) { y[at] = x[i]; });
}
void slice_reference(const RefCall& c) {
  const RefTensor &x = c.in[0], &y = c.out[0];
  each_element(y.shape(), x.shape(), c.attrs.ints("begin"), [&](int64_t i, int64_t at) { y[i] = x[at]; });
}

constexpr std::string_view kPadExamples =
    "f32[7] {before=[2], after=[3]}; f32[1] {before=[0], after=[0]}; f32[3,5] {before=[1,2], after=[0,1]};"
    "f32[2,3,4,8] {before=[0,1,1,0], after=[0,1,1,0]}; f32[2,3,4,9] {before=[0,2,0,0], after=[0,0,3,0]};"
    "f32[5,17] {before=[0,3], after=[0,0]}; f32[4,1] {before=[2,0], after=[1,7]}; f32[2,3,2,3,2] {before=[1,0,1,0,1], "
    "after=[0,1,0,1,0]}; f32[33,65] {before=[1,1], after=[1,1]}; i32[4,3]<9 {before=[1,0], after=[0,2]}";
constexpr std::string_view kSliceExamples =
    "f32[7] {begin=[2], size=[3]}; f32[1] {begin=[0], size=[1]}; f32[5,9] {begin=[1,2], size=[3,7]}; f32[5,9] "
    "{begin=[0,2], size=[5,4]}; f32[5,9] {begin=[3,0], size=[2,9]}; f32[2,5,4,8] {begin=[0,1,1,0], size=[2,3,2,8]};"
    "f32[2,5,4,9] {begin=[0,2,0,0], size=[2,3,4,9]}; f32[1,5,4,3] {begin=[0,2,0,0], size=[1,3,4,3]};"
    "f32[3,5,4,17] {begin=[1,0,2,1], size=[1,5,2,15]}; f32[3,2,3,2,3] {begin=[1,0,1,0,1], size=[2,1,2,1,2]};"
    "f32[40,70] {begin=[3,3], size=[33,65]}; i32[4,6]<9 {begin=[1,2], size=[2,3]}";

}  // namespace

OpList pad() {
  static constexpr OpDef defs[] = {{.name = "pad",
                                    .signature = "(x: float) -> y",
                                    .type = pad_type,
                                    .grad = pad_gradient,
                                    .cost = moved,
                                    .reference = pad_reference,
                                    .examples = kPadExamples},
                                   {.name = "slice",
                                    .signature = "(x: float) -> y",
                                    .type = slice_type,
                                    .grad = slice_gradient,
                                    .cost = moved,
                                    .reference = slice_reference,
                                    .expand = expand_slice,
                                    .examples = kSliceExamples}};
  return defs;
}
}  // namespace situ::ops::defs
