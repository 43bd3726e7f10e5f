// gather.cpp -- rows of a table by id (an embedding), and its gradient.
//   y[..., :] = table[ids[...], :]           an id outside the table gives zeros
//   dtable[v, :] = sum of dy[..., :] where ids[...] == v, added up in the order of the ids: no atomics, one result
#include <algorithm>

#include "ops/op.h"

namespace situ::ops::defs {
namespace {

Shape rows_shape(const Shape& ids, int64_t width) {
  std::vector<int64_t> dims = ids.dims();
  dims.push_back(width);
  return Shape(dims);
}

Types gather_type(const OpView& v) {
  need(v.arity() == 2, "table and ids are needed");
  need(v.in(0).dtype == DType::f32 && v.in(0).shape.rank() == 2, "table must be f32[V,D]");
  need(v.in(1).dtype == DType::i32, "ids must be i32");
  return {f32(rows_shape(v.in(1).shape, v.in(0).shape[1]))};
}

Types grad_type(const OpView& v) {
  need(v.arity() == 2, "ids and dy are needed");
  need(v.in(0).dtype == DType::i32, "ids must be i32");
  need(v.in(1).dtype == DType::f32 && v.in(1).shape.rank() >= 1, "dy must be f32 with an axis for the width");
  const int64_t width = v.in(1).shape.cols();
  const Shape wanted = rows_shape(v.in(0).shape, width);
  if (v.in(1).shape != wanted) fail("dy must be {}, a row for each id", to_string(wanted));
  return {f32({v.attrs.integer("rows"), width})};
}

void gather_gradient(GradBuilder& g) {
  if (g.wants(0)) g.add(0, g.emit("gather_grad", {g.in(1), g.dout(0)}, {{"rows", g.type(g.in(0)).shape[0]}}));
}
void grad_gradient(GradBuilder& g) {
  if (g.wants(1)) g.add(1, g.emit("gather", {g.dout(0), g.in(0)}));
}

// Only the rows that are named move.
Cost gather_cost(const OpView& v) {
  return {.flops = 0, .bytes = 4.0 * static_cast<double>(v.in(1).count() + 2 * v.out(0).count())};
}
Cost grad_cost(const OpView& v) { return {.flops = static_cast<double>(v.in(1).count())}; }

// Calls visit(element of the table, element of the rows) for each id that names a row of the table.
void each_element(const RefTensor& ids, const Shape& table, auto visit) {
  for (int64_t i = 0; i < ids.count(); ++i) {
    const int64_t row = static_cast<int64_t>(ids[i]);
    if (row < 0 || row >= table[0]) continue;
    for (int64_t d = 0; d < table[1]; ++d) visit(row * table[1] + d, i * table[1] + d);
  }
}

void gather_reference(const RefCall& c) {
  const RefTensor &table = c.in[0], &y = c.out[0];
  std::fill_n(y.data, y.count(), 0.0);
  each_element(c.in[1], table.shape(), [&](int64_t t, int64_t r) { y[r] = table[t]; });
}
void grad_reference(const RefCall& c) {
  const RefTensor &dy = c.in[1], &dtable = c.out[0];
  std::fill_n(dtable.data, dtable.count(), 0.0);
  each_element(c.in[0], dtable.shape(), [&](int64_t t, int64_t r) { dtable[t] += dy[r]; });
}

}  // namespace

OpList gather() {
  static constexpr OpDef defs[] = {
      {.name = "gather",
       .signature = "(table: float, ids: int) -> y",
       .type = gather_type,
       .grad = gather_gradient,
       .cost = gather_cost,
       .reference = gather_reference,
       .examples =
           "f32[1,1], i32[]<1; f32[5,3], i32[7]<5; f32[9,65], i32[4]<9; f32[17,8], i32[3,5]<17; f32[9,7], i32[15]<12;"
           "f32[4,16], i32[33]<4; f32[100,31], i32[2,1,4]<100; f32[8,1], i32[9]<8"},
      {.name = "gather_grad",
       .signature = "(ids: int, dy: float) -> dtable",
       .type = grad_type,
       .grad = grad_gradient,
       .cost = grad_cost,
       .reference = grad_reference,
       .examples =
           "i32[]<1, f32[1] {rows=1}; i32[7]<5, f32[7,3] {rows=5}; i32[4]<9, f32[4,65] {rows=9};"
           "i32[3,5]<17, f32[3,5,8] {rows=17}; i32[15]<12, f32[15,7] {rows=9}; i32[33]<4, f32[33,16] {rows=4};"
           "i32[2,1,4]<100, f32[2,1,4,31] {rows=100}; i32[300]<2, f32[300,9] {rows=3}; i32[9]<8, f32[9,1] {rows=8}"}};
  return defs;
}
}  // namespace situ::ops::defs
