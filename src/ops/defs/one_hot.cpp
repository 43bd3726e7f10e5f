// one_hot.cpp -- y[..., k] = ids[...] == k ? 1 : 0; an id outside 0..classes-1 gives a row of zeros.
#include "ops/op.h"

namespace situ::ops::defs {
namespace {

Types type(const OpView& v) {
  need(v.arity() == 1 && v.in(0).dtype == DType::i32, "ids must be i32");
  std::vector<int64_t> dims = v.in(0).shape.dims();
  dims.push_back(v.attrs.integer("classes"));
  return {f32(Shape(dims))};
}

void reference(const RefCall& c) {
  const int64_t classes = c.attrs.integer("classes");
  for (int64_t i = 0; i < c.in[0].count(); ++i)
    for (int64_t k = 0; k < classes; ++k) c.out[0][i * classes + k] = c.in[0][i] == static_cast<double>(k) ? 1 : 0;
}

}  // namespace

OpList one_hot() {
  static constexpr OpDef defs[] = {
      {.name = "one_hot",
       .signature = "(ids: int) -> y",
       .type = type,
       .reference = reference,
       .examples = "i32[]<5 {classes=5}; i32[1]<1 {classes=1}; i32[7]<10 {classes=10}; i32[3,5]<17 {classes=17};"
                   "i32[9]<65 {classes=65}; i32[33]<12 {classes=8}; i32[2,1,4]<3 {classes=3}"}};
  return defs;
}
}  // namespace situ::ops::defs
