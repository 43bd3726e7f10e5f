// softmax_xent.cpp -- cross entropy of the softmax of the logits, with a weight per sample, and its gradient in one go.
//   loss_i    = weight_i * scale * sum_c t_ic * (log sum exp(l_i) - l_ic)
//   dlogits_i = weight_i * scale * (sum_c t_ic * softmax(l_i) - t_i)                d(sum of loss) / d(logits)
// softmax_xent has t = (1 - smoothing) * onehot(label) + smoothing / C; a label outside 0..C-1 is no class: loss NaN,
// no one-hot term. softmax_soft_xent is given t. A row of weight 0 gives exactly 0, whatever it holds.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/op.h"

namespace situ::ops::defs {
namespace {

void need_samples(const OpView& v) {
  need(v.in(0).dtype == DType::f32 && v.in(0).shape.rank() == 2, "logits must be f32[N,C]");
  const int64_t n = v.in(0).shape[0];
  if (v.in(2) != f32({n})) fail("weight must be f32[{}], one per row of logits", n);
  need(v.in(3) == f32({}), "scale must be f32[]");
}
Types type(const OpView& v) {
  need(v.arity() == 4, "logits, labels, weight and scale are needed");
  need_samples(v);
  const int64_t n = v.in(0).shape[0];
  if (v.in(1) != i32({n})) fail("labels must be i32[{}], one per row of logits", n);
  const double smoothing = v.attrs.number("smoothing", 0);
  if (!(smoothing >= 0 && smoothing <= 1)) fail("smoothing is {}: use 0 to 1", smoothing);
  return {f32({n}), v.in(0)};
}
Types soft_type(const OpView& v) {
  need(v.arity() == 4, "logits, targets, weight and scale are needed");
  need_samples(v);
  if (v.in(1) != v.in(0)) fail("targets must be {} as logits are", to_string(v.in(0)));
  return {f32({v.in(0).shape[0]}), v.in(0)};
}

// loss_i depends on row i alone, so its gradient is dlogits times what arrives. dlogits itself moves by the softmax's
// gradient, for those who differentiate it again.
void rows_gradient(GradBuilder& g, bool soft) {
  if (!g.wants(0)) return;
  const Ints column{g.type(g.in(0)).shape[0], 1};
  if (g.has_dout(0)) g.add(0, g.emit("mul", {g.out(1), g.emit("reshape", {g.dout(0)}, {{"shape", column}})}));
  if (!g.has_dout(1)) return;
  const Value moved = g.emit("softmax_grad", {g.emit("softmax", {g.in(0)}), g.dout(1)});
  Value factor = g.emit("reshape", {g.emit("mul", {g.in(2), g.in(3)})}, {{"shape", column}});
  if (soft)
    factor = g.emit("mul",
                    {factor, g.emit("reduce", {g.in(1)}, {{"kind", "sum"}, {"axes", Ints{1}}, {"keep", int64_t{1}}})});
  g.add(0, g.emit("mul", {moved, factor}));
}
void gradient(GradBuilder& g) { rows_gradient(g, false); }
void soft_gradient(GradBuilder& g) { rows_gradient(g, true); }

Cost cost(const OpView& v) { return {.flops = 7 * static_cast<double>(v.in(0).count())}; }
Cost soft_cost(const OpView& v) { return {.flops = 10 * static_cast<double>(v.in(0).count())}; }

struct Row {
  const double* logits;
  int64_t n;
  std::vector<double> targets;
  double total;  // of the targets
  double factor;
  double *loss, *dlogits;
};

// Labels as targets. One that is no class makes the loss NaN.
Row hard_row(const RefCall& c, Row row, int64_t r) {
  const double smoothing = c.attrs.number("smoothing", 0), label = c.in[1][r];
  row.targets.assign(static_cast<size_t>(row.n), smoothing / static_cast<double>(row.n));
  row.total = 1;
  if (label >= 0 && label < static_cast<double>(row.n))
    row.targets[static_cast<size_t>(label)] += 1 - smoothing;
  else
    row.total = std::numeric_limits<double>::quiet_NaN();
  return row;
}
Row soft_row(const RefCall& c, Row row, int64_t r) {
  row.targets.assign(c.in[1].data + r * row.n, c.in[1].data + (r + 1) * row.n);
  row.total = 0;
  for (double t : row.targets) row.total += t;
  return row;
}

template <Row (*with_targets)(const RefCall&, Row, int64_t), void (*visit)(const Row&)>
void each_row(const RefCall& c) {
  const int64_t n = c.in[0].shape().cols();
  for (int64_t r = 0; r < c.in[0].shape().rows(); ++r) {
    const Row row{c.in[0].data + r * n, n, {}, 0, c.in[2][r] * c.in[3][0], &c.out[0][r], c.out[1].data + r * n};
    if (row.factor != 0) {
      visit(with_targets(c, row, r));
      continue;
    }
    *row.loss = 0;
    std::fill_n(row.dlogits, n, 0.0);
  }
}

// log sum exp(l - top) as the loss, softmax(l) as dlogits.
void unscaled(const Row& r, double top) {
  double sum = 0;
  for (int64_t i = 0; i < r.n; ++i) sum += r.dlogits[i] = std::exp(r.logits[i] - top);
  for (int64_t i = 0; i < r.n; ++i) r.dlogits[i] /= sum;
  *r.loss = std::log(sum);
}

void reference_row(const Row& r) {
  const double top = *std::max_element(r.logits, r.logits + r.n);
  unscaled(r, top);
  double below = 0;
  for (int64_t i = 0; i < r.n; ++i)
    if (const double t = r.targets[static_cast<size_t>(i)]; t != 0) below += t * (top - r.logits[i]);
  *r.loss = r.factor * (r.total * *r.loss + below);
  const double total = std::isnan(r.total) ? 1 : r.total;
  for (int64_t i = 0; i < r.n; ++i)
    r.dlogits[i] = r.factor * (total * r.dlogits[i] - r.targets[static_cast<size_t>(i)]);
}

// Terms of the loss: the largest logit, those of the targets, the log and the relative error of its argument. For
// dlogits see softmax.cpp.
void magnitude_row(const Row& r) {
  const double top = *std::max_element(r.logits, r.logits + r.n), factor = std::fabs(r.factor);
  unscaled(r, top);
  double through_sum = 0, chosen = 0, total = 0;
  for (int64_t i = 0; i < r.n; ++i) {
    const double t = std::fabs(r.targets[static_cast<size_t>(i)]);
    through_sum += r.dlogits[i] * (std::fabs(top) + std::fabs(r.logits[i]));
    chosen += t * std::fabs(r.logits[i]);
    total += t;
  }
  *r.loss = factor * (total * (*r.loss + std::fabs(top) + 1 + through_sum) + chosen);
  for (int64_t i = 0; i < r.n; ++i) {
    const double p = r.dlogits[i] * (1 + std::fabs(top) + std::fabs(r.logits[i]) + through_sum);
    r.dlogits[i] = factor * (total * p + std::fabs(r.targets[static_cast<size_t>(i)]));
  }
}

constexpr std::string_view kExamples =
    "f32[1,1], i32[1]<1, f32[1]+, f32[]=1; f32[4,10], i32[4]<10, f32[4]+, f32[]+; f32[1,10], i32[1]<10, f32[1]=1, "
    "f32[]=0.5;"
    "f32[7,3], i32[7]<3, f32[7]<2, f32[]=0.25; f32[33,17], i32[33]<17, f32[33]=1, f32[]=0.03125; f32[5,8], i32[5]<8, "
    "f32[5]=0, f32[]=1;"
    "f32[9,64], i32[9]<64, f32[9], f32[]+; f32[3,65]*9, i32[3]<65, f32[3]+, f32[]=1; f32[64,10]*3, i32[64]<10, "
    "f32[64]<2, f32[]=0.015625;"
    "f32[6,5]*80, i32[6]<5, f32[6]=1, f32[]=1; f32[2,1000], i32[2]<1000, f32[2]+, f32[]=0.5;"
    "f32[4,10], i32[4]<10, f32[4]+, f32[]+ {smoothing=0.1}; f32[7,33]*9, i32[7]<33, f32[7]<2, f32[]=0.25 "
    "{smoothing=0.5}; f32[3,1], i32[3]<1, f32[3], f32[]+ {smoothing=0.25}; f32[5,9], i32[5]<9, f32[5]+, f32[]=1 "
    "{smoothing=1}";
constexpr std::string_view kSoftExamples =
    "f32[1,1], f32[1,1]+, f32[1]+, f32[]=1; f32[4,10], f32[4,10]+, f32[4]+, f32[]+; f32[7,3], f32[7,3], f32[7]<2, "
    "f32[]=0.25;"
    "f32[33,17], f32[33,17]<2, f32[33]=1, f32[]=0.03125; f32[5,8], f32[5,8], f32[5]=0, f32[]=1; f32[9,64], f32[9,64]+, "
    "f32[9], f32[]+;"
    "f32[3,65]*9, f32[3,65]+, f32[3]+, f32[]=1; f32[6,5]*80, f32[6,5]<2, f32[6]=1, f32[]=1; f32[2,1000], "
    "f32[2,1000]*0.01, f32[2]+, f32[]=0.5; f32[2,31], f32[2,31]=0, f32[2]+, f32[]=1";

}  // namespace

OpList softmax_xent() {
  static constexpr OpDef defs[] = {
      {.name = "softmax_xent",
       .signature = "(logits: float, labels: int, weight: constant, scale: constant) -> loss, dlogits",
       .type = type,
       .grad = gradient,
       .cost = cost,
       .reference = each_row<hard_row, reference_row>,
       .magnitude = each_row<hard_row, magnitude_row>,
       .examples = kExamples},
      {.name = "softmax_soft_xent",
       .signature = "(logits: float, targets: constant, weight: constant, scale: constant) -> loss, dlogits",
       .type = soft_type,
       .grad = soft_gradient,
       .cost = soft_cost,
       .reference = each_row<soft_row, reference_row>,
       .magnitude = each_row<soft_row, magnitude_row>,
       .examples = kSoftExamples}};
  return defs;
}
}  // namespace situ::ops::defs
