// fused.cpp -- a chain of pointwise ops in one node: expr.h. Made by fusion, after gradients are built, so it has no
// gradient rule of its own; also the way to stretch a value to a larger shape.
#include <cmath>

#include "ops/broadcast.h"
#include "ops/expr.h"

namespace situ::ops::defs {
namespace {

Types type(const OpView& v) {
  const Shape shape(v.attrs.ints("shape"));
  const Expr expr = parse_expr(v.attrs.text("expr"));
  if (expr.inputs != v.arity()) fail("the expression uses {} inputs, the node has {}", expr.inputs, v.arity());
  if (v.arity() < 1 || v.arity() > kMostExprInputs)
    fail("a fused node has 1 to {} inputs, not {}", kMostExprInputs, v.arity());
  for (const Type& t : v.ins)
    if (t.dtype != DType::f32 || !broadcasts_to(t.shape, shape))
      fail("operand {} does not broadcast to f32{}", to_string(t), to_string(shape));
  return {f32(shape)};
}

Cost cost(const OpView& v) {
  const Expr expr = parse_expr(v.attrs.text("expr"));
  return {.flops = static_cast<double>(expr.steps.size()) * static_cast<double>(v.out(0).count())};
}

std::vector<Alias> aliases(const OpView& v) {
  std::vector<Alias> list;
  for (int i = 0; i < v.arity(); ++i)
    if (v.in(i) == v.out(0)) list.push_back({0, i});
  return list;
}

template <double Sized::*part>
void each_element(const RefCall& c) {
  const RefTensor& y = c.out[0];
  const Expr expr = parse_expr(c.attrs.text("expr"));
  std::vector<Strides> strides;
  for (const RefTensor& t : c.in) strides.push_back(broadcast_strides(t.shape(), y.shape()));
  std::vector<Sized> inputs(c.in.size());
  for (int64_t i = 0; i < y.count(); ++i) {
    for (size_t a = 0; a < inputs.size(); ++a) {
      const double value = c.in[a][broadcast_index(i, y.shape(), strides[a])];
      inputs[a] = {value, std::fabs(value)};
    }
    y[i] = evaluate(expr, inputs).*part;
  }
}

constexpr std::string_view kExamples =
    "f32[33] {expr=\"t0 = relu(i0)\", shape=[33]}; f32[] {expr=\"t0 = mul(i0, 0x1p+0)\", shape=[]};"
    "f32[7,9], f32[9] {expr=\"t0 = add(i0, i1); t1 = relu(t0); t2 = mul(t1, 0x1p-1)\", shape=[7,9]};"
    "f32[1,5] {expr=\"t0 = mul(i0, 0.25)\", shape=[17,5]}; f32[3,1,65], f32[4,1] {expr=\"t0 = sub(i0, i1)\", "
    "shape=[3,4,65]};"
    "f32[8] {expr=\"t0 = add(i0, 1)\", shape=[2,3,8]};"
    "f32[9] {expr=\"t0 = mul(i0, 3); t1 = add(t0, 0.5); t2 = mul(t1, 7)\", shape=[9]};"
    "f32[5,31] {expr=\"t0 = neg(i0); t1 = exp(t0); t2 = add(t1, 1); t3 = reciprocal(t2); t4 = mul(t3, i0)\", "
    "shape=[5,31]};"
    "f32[2,3,4,8], f32[2,3,4,8], f32[] {expr=\"t0 = sub(i0, i1); t1 = square(t0); t2 = mul(t1, i2)\", shape=[2,3,4,8]};"
    "f32[64]*4, f32[64], f32[1] {expr=\"t0 = tanh(i0); t1 = sigmoid(i1); t2 = max(t0, t1); t3 = min(t2, i2)\", "
    "shape=[64]};"
    "f32[9,7]+, f32[9,1]+ {expr=\"t0 = log(i0); t1 = sqrt(i1); t2 = div(t0, t1); t3 = rsqrt(i0); t4 = abs(t2); "
    "t5 = add(t4, t3)\", shape=[9,7]};"
    "f32[15], f32[15], f32[15]<2 {expr=\"t0 = greater(i0, i1); t1 = select(i2, t0, i1); t2 = equal(i2, 1); "
    "t3 = add(t1, t2)\", shape=[15]};"
    "f32[6,17], f32[6,17]*8, f32[17] {expr=\"t0 = relu6(i1); t1 = relu6_mask(i0, i1); t2 = relu_mask(t1, i2); "
    "t3 = add(t2, t0)\", shape=[6,17]};"
    "f32[16,16], f32[16], f32[16,1], f32[], f32[16,16], f32[1,16], f32[16,16], f32[16], f32[], f32[16,1], f32[1,1], "
    "f32[16,16] {expr=\"t0 = add(i0, i1); t1 = mul(i2, i3); t2 = add(t0, t1); t3 = mul(i4, i5); t4 = add(t2, t3); "
    "t5 = mul(i6, i7); t6 = sub(t4, t5); t7 = mul(i8, i9); t8 = add(t6, t7); t9 = mul(i10, i11); "
    "t10 = add(t8, t9)\", shape=[16,16]}";

}  // namespace

OpList fused() {
  static constexpr OpDef defs[] = {{.name = "fused",
                                    .signature = "(inputs: float...) -> y",
                                    .type = type,
                                    .cost = cost,
                                    .reference = each_element<&Sized::value>,
                                    .magnitude = each_element<&Sized::magnitude>,
                                    .aliases = aliases,
                                    .examples = kExamples}};
  return defs;
}
}  // namespace situ::ops::defs
