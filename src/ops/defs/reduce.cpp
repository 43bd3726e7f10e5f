// reduce.cpp -- the sum, mean or maximum over some axes; over [1,2] of an image it is global pooling.
//   sum, mean: dx = dy stretched (divided by the number of elements)     max: dy shared evenly among the maxima
#include <algorithm>
#include <limits>

#include "ops/broadcast.h"
#include "ops/op.h"
#include "ops/reduced_axes.h"

namespace situ::ops::defs {
namespace {

enum class Kind { sum, mean, max };

Kind kind_of(const Attrs& attrs) {
  const std::string& kind = attrs.text("kind");
  if (kind == "sum") return Kind::sum;
  if (kind == "mean") return Kind::mean;
  if (kind != "max") fail("`{}` is no kind of reduction: use sum, mean or max", kind);
  return Kind::max;
}

// The shape of x with every reduced axis of extent 1.
Shape kept_shape(const Attrs& attrs, const Shape& x) {
  Shape shape = x;
  const Ints& axes = attrs.ints("axes");
  need(!axes.empty(), "`axes` must name at least one axis");
  std::vector<bool> seen(kMaxRank);
  for (int64_t given : axes) {
    const int axis = normal_axis(given, x.rank());
    if (axis < 0 || axis >= x.rank()) fail("axis {} does not exist in {}", given, to_string(x));
    if (seen[static_cast<size_t>(axis)]) fail("axis {} stands twice in `axes`", given);
    seen[static_cast<size_t>(axis)] = true;
    shape[axis] = 1;
  }
  return shape;
}

Shape dropped_shape(const Attrs& attrs, const Shape& x) {
  const std::vector<bool> gone = reduced_axes(attrs, x.rank());
  std::vector<int64_t> dims;
  for (int i = 0; i < x.rank(); ++i)
    if (!gone[static_cast<size_t>(i)]) dims.push_back(x[i]);
  return Shape(dims);
}

Types type(const OpView& v) {
  need(v.arity() == 1 && v.in(0).dtype == DType::f32, "one f32 operand is needed");
  kind_of(v.attrs);
  const Shape kept = kept_shape(v.attrs, v.in(0).shape);
  return {f32(v.attrs.flag("keep") ? kept : dropped_shape(v.attrs, v.in(0).shape))};
}

Value shared_by_maxima(GradBuilder& g, const Shape& kept) {
  const Value is_max = g.emit("equal", {g.in(0), g.reshaped(g.out(0), kept)});
  const Value ties =
      g.emit("reduce", {is_max}, {{"kind", "sum"}, {"axes", g.attrs().ints("axes")}, {"keep", int64_t{1}}});
  return g.emit("mul", {is_max, g.emit("div", {g.reshaped(g.dout(0), kept), ties})});
}

void gradient(GradBuilder& g) {
  if (!g.wants(0)) return;
  const Shape x = g.type(g.in(0)).shape, kept = kept_shape(g.attrs(), x);
  const Kind kind = kind_of(g.attrs());
  if (kind == Kind::max) return g.add(0, shared_by_maxima(g, kept));
  const double factor = kind == Kind::sum ? 1 : static_cast<double>(kept.count()) / static_cast<double>(x.count());
  g.add(0, g.emit("fused", {g.reshaped(g.dout(0), kept)},
                  {{"expr", fmt::format("t0 = mul(i0, {:a})", factor)}, {"shape", x.dims()}}));
}

Cost cost(const OpView& v) { return {.flops = static_cast<double>(v.in(0).count())}; }

void reference(const RefCall& c) {
  const RefTensor &x = c.in[0], &y = c.out[0];
  const Kind kind = kind_of(c.attrs);
  const Strides strides = broadcast_strides(kept_shape(c.attrs, x.shape()), x.shape());
  std::fill_n(y.data, y.count(), kind == Kind::max ? -std::numeric_limits<double>::infinity() : 0);
  for (int64_t i = 0; i < x.count(); ++i) {
    double& sum = y[broadcast_index(i, x.shape(), strides)];
    sum = kind == Kind::max ? std::max(sum, x[i]) : sum + x[i];
  }
  const double scale = kind == Kind::mean ? static_cast<double>(y.count()) / static_cast<double>(x.count()) : 1;
  for (int64_t i = 0; i < y.count(); ++i) y[i] *= scale;
}

constexpr std::string_view kExamples =  // first, middle, last, all and separate axes; long and short rows
    "f32[1] {kind=\"sum\", axes=[0]}; f32[33] {kind=\"sum\", axes=[0]}; f32[7,9] {kind=\"sum\", axes=[0]};"
    "f32[7,9] {kind=\"sum\", axes=[1]}; f32[7,9] {kind=\"sum\", axes=[0,1]}; f32[9,65] {kind=\"sum\", axes=[-1], "
    "keep=1};"
    "f32[3,5,8] {kind=\"sum\", axes=[1]}; f32[3,5,17] {kind=\"sum\", axes=[0,2]}; f32[2,3,4,5] {kind=\"sum\", "
    "axes=[0,2], keep=1};"
    "f32[2,3,4,5] {kind=\"sum\", axes=[1,3]}; f32[2,3,4,31] {kind=\"sum\", axes=[0,1,2]}; f32[64,1] {kind=\"sum\", "
    "axes=[0]};"
    "f32[1,64] {kind=\"sum\", axes=[0]}; f32[2,3,1,4,2,3] {kind=\"sum\", axes=[0,3,5]}; f32[1000,3] {kind=\"sum\", "
    "axes=[0]};"
    "f32[3,1000] {kind=\"sum\", axes=[1]}; f32[70,90] {kind=\"sum\", axes=[0,1], keep=1};"
    "f32[33] {kind=\"mean\", axes=[0]}; f32[2,7,7,9] {kind=\"mean\", axes=[1,2]}; f32[5,15] {kind=\"mean\", axes=[1], "
    "keep=1};"
    "f32[16,17] {kind=\"mean\", axes=[0]}; f32[3,4,5] {kind=\"mean\", axes=[0,2]}; f32[50,41] {kind=\"mean\", "
    "axes=[0,1]};"
    "f32[33] {kind=\"max\", axes=[0]}; f32[7,65] {kind=\"max\", axes=[1]}; f32[16,9] {kind=\"max\", axes=[0], keep=1};"
    "f32[2,5,7,3] {kind=\"max\", axes=[1,2]}; f32[3,5,8] {kind=\"max\", axes=[0,2]}; f32[4,1] {kind=\"max\", axes=[1]}";

}  // namespace

OpList reduce() {
  static constexpr OpDef defs[] = {{.name = "reduce",
                                    .signature = "(x: float) -> y",
                                    .type = type,
                                    .grad = gradient,
                                    .cost = cost,
                                    .reference = reference,
                                    .examples = kExamples}};
  return defs;
}
}  // namespace situ::ops::defs
