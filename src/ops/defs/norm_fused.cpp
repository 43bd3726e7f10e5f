// norm_fused.cpp -- statistics of columns and the pointwise function behind them, in one node: norm_fused.h. Made by
// fusion, after gradients are built, so it has no gradient rule of its own.
#include "ops/norm_fused.h"

#include <cmath>

#include "ops/broadcast.h"
#include "ops/expr.h"
#include "ops/magnitude.h"

namespace situ::ops {

std::span<const NormFused> norm_fused_forms() {
  static constexpr NormFused forms[] = {
      {.name = "moments_fused", .statistics = "moments", .operands = 1, .results = 3, .seen = {0, 2}},
      {.name = "norm_sums_fused", .statistics = "norm_sums", .operands = 4, .results = 2, .seen = {0, 1}}};
  return forms;
}
const NormFused& norm_fused_form(std::string_view name) { return norm_fused_forms()[name == "moments_fused" ? 0 : 1]; }

namespace defs {
namespace {

// The node's first operands and last results, as those of the statistics alone.
OpView statistics_view(const OpView& v, const NormFused& form) {
  OpView view{form.statistics, {v.ins.begin(), v.ins.begin() + form.operands}, {}, v.attrs};
  if (!v.outs.empty()) view.outs.assign(v.outs.begin() + 1, v.outs.end());
  return view;
}

Types type(const OpView& v) {
  const NormFused& form = norm_fused_form(v.op);
  if (v.arity() < form.operands) fail("at least {} operands are needed: those of {}", form.operands, form.statistics);
  Types types = get(form.statistics).type(statistics_view(v, form));
  const Expr expr = parse_expr(v.attrs.text("expr"));
  const int inputs = v.arity() + 2;
  if (expr.inputs > inputs || inputs > kMostExprInputs)
    fail("the expression uses {} inputs, the node gives it {}, at most {}", expr.inputs, inputs, kMostExprInputs);
  for (int i = form.operands; i < v.arity(); ++i)
    if (v.in(i).dtype != DType::f32 || !broadcasts_to(v.in(i).shape, v.in(0).shape))
      fail("operand {} does not broadcast to {}", to_string(v.in(i)), to_string(v.in(0)));
  types.insert(types.begin(), v.in(0));
  return types;
}

Cost cost(const OpView& v) {
  const auto steps = static_cast<double>(parse_expr(v.attrs.text("expr")).steps.size());
  const double statistics = cost_of(statistics_view(v, norm_fused_form(v.op))).flops;
  return {.flops = statistics + steps * static_cast<double>(v.in(0).count())};
}

// Each work-item owns its columns, and reads an element again before it writes it.
std::vector<Alias> aliases(const OpView& v) {
  std::vector<Alias> list;
  for (int i = 0; i < v.arity(); ++i)
    if (v.in(i) == v.out(0)) list.push_back({0, i});
  return list;
}

template <const std::string_view& NAME>
Values expand(Graph& graph, const Values& in, const Attrs& attrs) {
  const NormFused& form = norm_fused_form(NAME);
  Attrs own = attrs;
  own.erase("expr");
  const Values statistics = emit_all(graph, form.statistics, Values(in.begin(), in.begin() + form.operands), own);
  const Values inputs = function_inputs<Value>(form, in, statistics);
  const Expr expr = parse_expr(attrs.text("expr"));
  Values results{emit(graph, "fused", Values(inputs.begin(), inputs.begin() + expr.inputs),
                      {{"expr", attrs.text("expr")}, {"shape", graph.type(in[0]).shape.dims()}})};
  results.insert(results.end(), statistics.begin(), statistics.end());
  return results;
}

// The values of a tensor, each with the magnitude behind it.
std::vector<Sized> exact(const RefTensor& t) {
  std::vector<Sized> values;
  for (int64_t i = 0; i < t.count(); ++i) values.push_back({t[i], std::fabs(t[i])});
  return values;
}

// What the expression gives, from the values of the statistics and the errors behind them; c.out[1..] end up with the
// statistics' values or magnitudes.
template <double Sized::*part>
void each_element(const RefCall& c, const NormFused& form) {
  const OpDef& op = get(form.statistics);
  const RefCall own{c.attrs, c.in.first(static_cast<size_t>(form.operands)), c.out.subspan(1)};
  const auto columns = static_cast<size_t>(c.in[0].shape().cols());
  std::vector<std::vector<Sized>> statistics(own.out.size(), std::vector<Sized>(columns));
  op.reference(own);
  for (size_t s = 0; s < own.out.size(); ++s) statistics[s] = exact(own.out[s]);
  run_magnitude(op, own);
  for (size_t s = 0; s < own.out.size(); ++s)
    for (size_t i = 0; i < columns; ++i) {
      statistics[s][i].magnitude = own.out[s][static_cast<int64_t>(i)];
      own.out[s][static_cast<int64_t>(i)] = statistics[s][i].*part;
    }

  std::vector<std::vector<Sized>> operands;
  for (const RefTensor& t : c.in) operands.push_back(exact(t));
  const auto values = function_inputs<std::vector<Sized>>(form, operands, statistics);
  std::vector<Shape> operand_shapes, statistic_shapes;
  for (const RefTensor& t : c.in) operand_shapes.push_back(t.shape());
  for (const RefTensor& t : own.out) statistic_shapes.push_back(t.shape());
  const auto shapes = function_inputs<Shape>(form, operand_shapes, statistic_shapes);
  const RefTensor& y = c.out[0];
  std::vector<Strides> strides;
  for (const Shape& shape : shapes) strides.push_back(broadcast_strides(shape, y.shape()));
  const Expr expr = parse_expr(c.attrs.text("expr"));
  std::vector<Sized> inputs(values.size());
  for (int64_t i = 0; i < y.count(); ++i) {
    for (size_t a = 0; a < inputs.size(); ++a)
      inputs[a] = values[a][static_cast<size_t>(broadcast_index(i, y.shape(), strides[a]))];
    y[i] = evaluate(expr, inputs).*part;
  }
}
template <const std::string_view& NAME, double Sized::*part>
void reference(const RefCall& c) {
  each_element<part>(c, norm_fused_form(NAME));
}

// --- examples: batch norm with and without neighbours; whole vectors of columns, and others; few and many rows ---
constexpr std::string_view kMomentsExamples =
    "f32[7,9], f32[9], f32[9] {eps=1.0e-5, expr=\"t0 = normalize(i0, i1, i2, i3, i4)\"};"
    "f32[2,4,4,64], f32[64]*9, f32[64] {eps=1.0e-5, expr=\"t0 = normalize(i0, i1, i2, i3, i4); t1 = relu6(t0)\"};"
    "f32[2,3,3,192]+, f32[192], f32[192], f32[2,3,3,192] {eps=1.0e-3, expr=\"t0 = normalize(i0, i1, i2, i3, i4); t1 = "
    "add(t0, i5); t2 = relu(t1)\"};"
    "f32[1100,96], f32[1,96], f32[1] {eps=1.0e-5, expr=\"t0 = sub(i0, i1); t1 = mul(t0, i2); t2 = mul(t1, i3); t3 = "
    "add(t2, i4)\"};"
    "f32[40,32], f32[40,1] {eps=1.0e-5, expr=\"t0 = sub(i0, i1); t1 = mul(t0, i3)\"};"
    "f32[65,48] {eps=1.0e-5, expr=\"t0 = sub(i0, i1); t1 = mul(t0, i2)\"};"
    "f32[3,1] {eps=1.0e-5, expr=\"t0 = sub(i0, i1)\"};"
    "f32[4,1040], f32[1040] {eps=1.0e-5, expr=\"t0 = normalize(i0, i1, i2, i3, 0.5)\"};"
    "f32[33,130], f32[130], f32[130] {eps=1.0e-5, expr=\"t0 = normalize(i0, i1, i2, i3, i4)\"};"
    "f32[70,100]*4, f32[100]*9, f32[100] {eps=1.0e-5, expr=\"t0 = normalize(i0, i1, i2, i3, i4); t1 = relu6(t0)\"};"
    "f32[9,600], f32[600], f32[600] {eps=1.0e-5, expr=\"t0 = normalize(i0, i1, i2, i3, i4); t1 = relu(t0)\"};"
    "f32[5,1040], f32[1040], f32[1040], f32[5,1040] {eps=1.0e-5, expr=\"t0 = normalize(i0, i1, i2, i3, i4); t1 = "
    "add(i5, t0)\"}";
constexpr std::string_view kSumsExamples =
    "f32[7,9], f32[7,9], f32[9], f32[9]+, f32[9] {expr=\"t0 = norm_dx(i1, i0, i2, i3, i6, i4, i5, 0.125)\"};"
    "f32[2,4,4,64], f32[2,4,4,64], f32[64], f32[64]+, f32[64] {expr=\"t0 = norm_dx(i1, i0, i2, i3, i6, i4, i5, "
    "0.03125)\"};"
    "f32[2,3,3,192], f32[2,3,3,192], f32[192], f32[192]+, f32[192], f32[2,3,3,192] {expr=\"t0 = norm_dx(i1, i0, i2, "
    "i3, i6, i4, i5, 0.0625); t1 = add(t0, i7)\"};"
    "f32[1100,96], f32[1100,96], f32[96], f32[96]+, f32[1] {expr=\"t0 = mul(i1, i6); t1 = mul(i4, i0); t2 = sub(t0, "
    "t1); t3 = add(t2, i5)\"};"
    "f32[5,16], f32[5,16], f32[16], f32[16]+ {expr=\"t0 = sub(i1, i5); t1 = mul(t0, i3); t2 = sub(t1, i4)\"};"
    "f32[70,100], f32[70,100], f32[100], f32[100]+, f32[100] {expr=\"t0 = norm_dx(i1, i0, i2, i3, i6, i4, i5, "
    "0.0142)\"}; f32[33,130], f32[33,130], f32[130], f32[130]+, f32[33,1] {expr=\"t0 = mul(i1, i6); t1 = add(t0, "
    "i4)\"}";

constexpr std::string_view kMoments = "moments_fused", kSums = "norm_sums_fused";

}  // namespace

OpList norm_fused() {
  static constexpr OpDef defs[] = {{.name = kMoments,
                                    .signature = "(x: float, others: float...) -> y, mean, var, rstd",
                                    .type = type,
                                    .cost = cost,
                                    .reference = reference<kMoments, &Sized::value>,
                                    .magnitude = reference<kMoments, &Sized::magnitude>,
                                    .expand = expand<kMoments>,
                                    .aliases = aliases,
                                    .examples = kMomentsExamples},
                                   {.name = kSums,
                                    .signature = "(x: float, dy: float, mean: float, rstd: float, others: float...) "
                                                 "-> y, dgamma, dbeta",
                                    .type = type,
                                    .cost = cost,
                                    .reference = reference<kSums, &Sized::value>,
                                    .magnitude = reference<kSums, &Sized::magnitude>,
                                    .expand = expand<kSums>,
                                    .aliases = aliases,
                                    .examples = kSumsExamples}};
  return defs;
}
}  // namespace defs
}  // namespace situ::ops
