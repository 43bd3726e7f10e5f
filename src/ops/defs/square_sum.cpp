// square_sum.cpp -- the sum of the squares of all elements of any number of tensors: the norm that clipping needs.
//   square_sum(x0, x1, ...)       = sum x0^2 + sum x1^2 + ...                          dx = 2 * dy * x
//   square_sum_parts(x0, x1, ...) = the same, a number for each piece of kPiece elements of each tensor, in order
// A device sums the pieces side by side and then their results: two launches for all tensors together, one fixed order.
#include <algorithm>

#include "ops/op.h"

namespace situ::ops::defs {
namespace {

constexpr int64_t kPiece = 4096;

void need_floats(const OpView& v) {
  need(v.arity() >= 1, "at least one operand is needed");
  for (const Type& t : v.ins) need(t.dtype == DType::f32, "all operands must be f32");
}

Types type(const OpView& v) {
  need_floats(v);
  return {f32({})};
}
Types parts_type(const OpView& v) {
  need_floats(v);
  const int64_t piece = v.attrs.integer("piece");
  need(piece >= 1, "`piece` must be at least 1");
  int64_t parts = 0;
  for (const Type& t : v.ins) parts += ceil_div(t.count(), piece);
  return {f32({parts})};
}

void gradient(GradBuilder& g) {
  for (int i = 0; i < g.arity(); ++i)
    if (g.wants(i)) g.add(i, g.emit("mul", {g.in(i), g.emit("mul", {g.dout(0), g.constant(2)})}));
}

Values expand(Graph& graph, const Values& inputs, const Attrs&) {
  const Value parts = emit(graph, "square_sum_parts", inputs, {{"piece", kPiece}});
  return {emit(graph, "reduce", {parts}, {{"kind", "sum"}, {"axes", Ints{0}}})};
}

Cost cost(const OpView& v) {
  double elements = 0;
  for (const Type& t : v.ins) elements += static_cast<double>(t.count());
  return {.flops = 2 * elements};
}

double squares(const RefTensor& x, int64_t first, int64_t last) {
  double sum = 0;
  for (int64_t i = first; i < last; ++i) sum += x[i] * x[i];
  return sum;
}

void reference(const RefCall& c) {
  c.out[0][0] = 0;
  for (const RefTensor& x : c.in) c.out[0][0] += squares(x, 0, x.count());
}
void parts_reference(const RefCall& c) {
  const int64_t piece = c.attrs.integer("piece");
  int64_t part = 0;
  for (const RefTensor& x : c.in)
    for (int64_t i = 0; i < x.count(); i += piece) c.out[0][part++] = squares(x, i, std::min(i + piece, x.count()));
}

}  // namespace

OpList square_sum() {
  static constexpr OpDef defs[] = {
      {.name = "square_sum",
       .signature = "(x: float, ...) -> y",
       .type = type,
       .grad = gradient,
       .cost = cost,
       .reference = reference,
       .expand = expand,
       .examples = "f32[]; f32[7]; f32[1,9], f32[33], f32[]; f32[3,65], f32[8], f32[2,3,5,17]; f32[5000]; "
                   "f32[100,100], f32[4096], f32[1], f32[4097]"},
      {.name = "square_sum_parts",
       .signature = "(x: float, ...) -> parts",
       .type = parts_type,
       .cost = cost,
       .reference = parts_reference,
       .examples = "f32[] {piece=8}; f32[7] {piece=8}; f32[1,9], f32[33], f32[] {piece=4096}; f32[17], f32[64], f32[9] "
                   "{piece=8}; f32[3,65], f32[8], f32[2,3,5,17] {piece=64}; f32[31] {piece=1}; f32[9000], f32[4097] "
                   "{piece=4096}",
       .dense = true}};
  return defs;
}
}  // namespace situ::ops::defs
