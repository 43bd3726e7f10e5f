// matmul.cpp -- y[M,N] = a' b' where ' transposes if the flag ta or tb is set, then the epilogue.
//   da = dy b'^T,  db = a'^T dy, transposed back if ta/tb: always a matmul with other flags, never a transpose.
#include "ops/epilogue.h"
#include "ops/magnitude.h"

namespace situ::ops::defs {
namespace {

struct Sizes {
  int64_t m, n, k;
  bool ta, tb;
  int64_t a_index(int64_t i, int64_t l) const { return ta ? l * m + i : i * k + l; }
  int64_t b_index(int64_t l, int64_t j) const { return tb ? j * k + l : l * n + j; }
};

Sizes sizes_of(const Attrs& attrs, const Shape& a, const Shape& b) {
  const bool ta = attrs.flag("ta"), tb = attrs.flag("tb");
  return {a[ta ? 1 : 0], b[tb ? 0 : 1], a[ta ? 0 : 1], ta, tb};
}

Types type(const OpView& v) {
  need(v.arity() >= 2, "two matrices are needed");
  const Shape &a = v.in(0).shape, &b = v.in(1).shape;
  need(v.in(0).dtype == DType::f32 && v.in(1).dtype == DType::f32, "both matrices must be f32");
  need(a.rank() == 2 && b.rank() == 2, "both operands must have two axes: reshape them to [rows, cols] first");
  const Sizes s = sizes_of(v.attrs, a, b);
  const int64_t other = b[s.tb ? 1 : 0];
  if (s.k != other) fail("the inner sizes {} and {} differ: set ta or tb if a matrix lies transposed", s.k, other);
  check_epilogue(v, 2, f32({s.m, s.n}));
  return {f32({s.m, s.n})};
}

Attrs flags(bool ta, bool tb) {  // equal products get equal attributes: a zero flag is left out
  Attrs attrs;
  if (ta) attrs.set("ta", int64_t{1});
  if (tb) attrs.set("tb", int64_t{1});
  return attrs;
}

void gradient(GradBuilder& g) {
  const Value a = g.in(0), b = g.in(1), dy = epilogue_gradient(g, "matmul", 2);
  if (dy == ir::kNoValue) return;
  const bool ta = g.attrs().flag("ta"), tb = g.attrs().flag("tb");
  if (g.wants(0))
    g.add(0, ta ? g.emit("matmul", {b, dy}, flags(tb, true)) : g.emit("matmul", {dy, b}, flags(false, !tb)));
  if (g.wants(1))
    g.add(1, tb ? g.emit("matmul", {dy, a}, flags(true, ta)) : g.emit("matmul", {a, dy}, flags(!ta, false)));
}

Cost cost(const OpView& v) {
  const Sizes s = sizes_of(v.attrs, v.in(0).shape, v.in(1).shape);
  return {.flops = 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k)};
}

void product(const RefCall& c) {
  const RefTensor &a = c.in[0], &b = c.in[1], &y = c.out[0];
  const Sizes s = sizes_of(c.attrs, a.shape(), b.shape());
  for (int64_t i = 0; i < s.m; ++i)
    for (int64_t j = 0; j < s.n; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < s.k; ++l) sum += a[s.a_index(i, l)] * b[s.b_index(l, j)];
      y[i * s.n + j] = sum;
    }
}

void reference(const RefCall& c) {
  product(c);
  reference_epilogue(c, 2, c.out[0]);
}

void magnitude(const RefCall& c) {
  product(AbsoluteCall(c).call());
  magnitude_epilogue(c, 2, c.out[0]);
}

constexpr std::string_view kExamples =
    "f32[1,1], f32[1,1]; f32[3,5], f32[5,7]; f32[1,17], f32[17,9]; f32[9,1], f32[1,33]; f32[16,16], f32[16,16];"
    "f32[8,31], f32[31,15]; f32[17,64], f32[64,65]; f32[65,33], f32[33,1]; f32[33,7], f32[7,64];"
    "f32[7,5], f32[7,9] {ta=1}; f32[65,33], f32[65,17] {ta=1}; f32[1,8], f32[1,3] {ta=1};"
    "f32[5,7], f32[9,7] {tb=1}; f32[31,65], f32[15,65] {tb=1}; f32[3,1], f32[8,1] {tb=1};"
    "f32[7,5], f32[9,7] {ta=1, tb=1}; f32[33,16], f32[17,33] {ta=1, tb=1}; f32[64,1], f32[1,64] {ta=1, tb=1};"
    "f32[100,130], f32[130,70]; f32[300,20], f32[300,24] {ta=1}; f32[2,1000], f32[3,1000] {tb=1};"
    "f32[7,333], f32[333,270], f32[270] {epilogue=\"bias+relu\"};"  // few rows, of a b that is cut by rows
    "f32[9,7], f32[7,15], f32[15] {epilogue=\"bias\"}; f32[7,9], f32[9,17] {epilogue=\"relu\"};"
    "f32[3,65], f32[65,8] {epilogue=\"relu6\"}; f32[9,5], f32[5,16], f32[9,16] {epilogue=\"residual\"};"
    "f32[9,7], f32[7,17], f32[9,17]*8 {epilogue=\"mask6\"};"
    "f32[9,7], f32[7,17], f32[9,17] {epilogue=\"mask\"}; f32[5,3], f32[3,1], f32[1] {epilogue=\"bias+relu\"};"
    "f32[8,7]*4, f32[9,7]*2, f32[9] {tb=1, epilogue=\"bias+relu6\"};"
    "f32[17,6], f32[17,31], f32[31] {ta=1, epilogue=\"bias+relu\"};"
    "f32[3,7], f32[7,9], f32[9], f32[3,9] {epilogue=\"bias+residual+relu\"};"
    "f32[5,7], f32[7,8], f32[5,8], f32[5,8] {epilogue=\"relu+residual+mask\"};"
    "f32[6,5], f32[5,7], f32[6,7], f32[7] {epilogue=\"mask+bias\"};"
    "f32[9,4], f32[7,9], f32[4,7], f32[4,7] {ta=1, tb=1, epilogue=\"residual+mask\"};"
    "f32[8,300], f32[300,77], f32[77] {epilogue=\"bias\"}; f32[4,600], f32[600,50], f32[50] {epilogue=\"bias+relu\"}; "
    "f32[5,131], f32[70,131] {tb=1}; f32[8,70], f32[33,70], f32[33] {tb=1, epilogue=\"bias\"};"
    "f32[3,41], f32[41,300], f32[300] {epilogue=\"bias\"}; f32[8,530], f32[530,257], f32[8,257] {epilogue=\"mask\"};"
    "f32[70,33], f32[33,66], f32[66] {epilogue=\"bias+relu\"}; f32[8,600], f32[600,50], f32[50]*1000 "
    "{epilogue=\"bias\"}";

}  // namespace

OpList matmul() {
  static constexpr OpDef defs[] = {{.name = "matmul",
                                    .signature = "(a: float, b: float, epilogue operands: float...) -> y",
                                    .type = type,
                                    .grad = gradient,
                                    .cost = cost,
                                    .reference = reference,
                                    .magnitude = magnitude,
                                    .examples = kExamples}};
  return defs;
}
}  // namespace situ::ops::defs
