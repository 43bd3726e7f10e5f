// softmax_xent.cpp -- cross entropy of the softmax of the logits, with a weight per sample, and its gradient in one go.
//   loss_i    = weight_i * scale * (log sum exp(l_i) - l_i[label_i])
//   dlogits_i = weight_i * scale * (softmax(l_i) - onehot(label_i))      d(sum of loss) / d(logits)
// A row of weight 0 gives exactly 0, whatever it holds. A label outside 0..C-1 is no class: loss NaN, no one-hot term.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/op.h"

namespace situ::ops::defs {
namespace {

Types type(const OpView& v) {
  need(v.arity() == 4, "logits, labels, weight and scale are needed");
  need(v.in(0).dtype == DType::f32 && v.in(0).shape.rank() == 2, "logits must be f32[N,C]");
  const int64_t n = v.in(0).shape[0];
  if (v.in(1) != i32({n})) fail("labels must be i32[{}], one per row of logits", n);
  if (v.in(2) != f32({n})) fail("weight must be f32[{}], one per row of logits", n);
  need(v.in(3) == f32({}), "scale must be f32[]");
  return {f32({n}), v.in(0)};
}

// loss_i depends on row i alone, so its gradient is dlogits times what arrives. dlogits itself moves by the softmax's
// gradient, for those who differentiate it again.
void gradient(GradBuilder& g) {
  if (!g.wants(0)) return;
  const Ints column{g.type(g.in(0)).shape[0], 1};
  if (g.has_dout(0)) g.add(0, g.emit("mul", {g.out(1), g.emit("reshape", {g.dout(0)}, {{"shape", column}})}));
  if (!g.has_dout(1)) return;
  const Value moved = g.emit("softmax_grad", {g.emit("softmax", {g.in(0)}), g.dout(1)});
  const Value factor = g.emit("reshape", {g.emit("mul", {g.in(2), g.in(3)})}, {{"shape", column}});
  g.add(0, g.emit("mul", {moved, factor}));
}

Cost cost(const OpView& v) { return {.flops = 7 * static_cast<double>(v.in(0).count())}; }

struct Row {
  const double* logits;
  int64_t n;
  double label, factor;
  double *loss, *dlogits;
  bool is_label(int64_t i) const { return static_cast<double>(i) == label; }
};

void each_row(const RefCall& c, void (*visit)(const Row&)) {
  const int64_t n = c.in[0].shape().cols();
  for (int64_t r = 0; r < c.in[0].shape().rows(); ++r)
    visit({c.in[0].data + r * n, n, c.in[1][r], c.in[2][r] * c.in[3][0], &c.out[0][r], c.out[1].data + r * n});
}

// Without the factor: log sum exp(l - top) as the loss, softmax(l) as dlogits.
void unscaled(const Row& r, double top) {
  double sum = 0;
  for (int64_t i = 0; i < r.n; ++i) sum += r.dlogits[i] = std::exp(r.logits[i] - top);
  for (int64_t i = 0; i < r.n; ++i) r.dlogits[i] /= sum;
  *r.loss = std::log(sum);
}

void zero(const Row& r) {
  *r.loss = 0;
  std::fill_n(r.dlogits, r.n, 0.0);
}

void reference_row(const Row& r) {
  if (r.factor == 0) return zero(r);
  const double top = *std::max_element(r.logits, r.logits + r.n);
  unscaled(r, top);
  const bool known = r.label >= 0 && r.label < static_cast<double>(r.n);
  const double chosen = known ? r.logits[static_cast<int64_t>(r.label)] : std::numeric_limits<double>::quiet_NaN();
  *r.loss = r.factor * (*r.loss + top - chosen);
  for (int64_t i = 0; i < r.n; ++i) r.dlogits[i] = r.factor * (r.dlogits[i] - (r.is_label(i) ? 1 : 0));
}

// Terms of the loss: the largest logit, the label's, the log and the relative error of its argument. For dlogits see
// softmax.cpp.
void magnitude_row(const Row& r) {
  if (r.factor == 0) return zero(r);
  const double top = *std::max_element(r.logits, r.logits + r.n), factor = std::fabs(r.factor);
  unscaled(r, top);
  double through_sum = 0, chosen = 0;
  for (int64_t i = 0; i < r.n; ++i) {
    through_sum += r.dlogits[i] * (std::fabs(top) + std::fabs(r.logits[i]));
    if (r.is_label(i)) chosen = std::fabs(r.logits[i]);
  }
  *r.loss = factor * (*r.loss + std::fabs(top) + chosen + 1 + through_sum);
  for (int64_t i = 0; i < r.n; ++i) {
    const double p = r.dlogits[i] * (1 + std::fabs(top) + std::fabs(r.logits[i]) + through_sum);
    r.dlogits[i] = factor * (p + (r.is_label(i) ? 1 : 0));
  }
}

constexpr std::string_view kExamples =
    "f32[1,1], i32[1]<1, f32[1]+, f32[]=1; f32[4,10], i32[4]<10, f32[4]+, f32[]+; f32[1,10], i32[1]<10, f32[1]=1, "
    "f32[]=0.5;"
    "f32[7,3], i32[7]<3, f32[7]<2, f32[]=0.25; f32[33,17], i32[33]<17, f32[33]=1, f32[]=0.03125; f32[5,8], i32[5]<8, "
    "f32[5]=0, f32[]=1;"
    "f32[9,64], i32[9]<64, f32[9], f32[]+; f32[3,65]*9, i32[3]<65, f32[3]+, f32[]=1; f32[64,10]*3, i32[64]<10, "
    "f32[64]<2, f32[]=0.015625;"
    "f32[6,5]*80, i32[6]<5, f32[6]=1, f32[]=1; f32[2,1000], i32[2]<1000, f32[2]+, f32[]=0.5";

}  // namespace

OpList softmax_xent() {
  static constexpr OpDef defs[] = {
      {.name = "softmax_xent",
       .signature = "(logits: float, labels: int, weight: constant, scale: constant) -> loss, dlogits",
       .type = type,
       .grad = gradient,
       .cost = cost,
       .reference = [](const RefCall& c) { each_row(c, reference_row); },
       .magnitude = [](const RefCall& c) { each_row(c, magnitude_row); },
       .examples = kExamples}};
  return defs;
}
}  // namespace situ::ops::defs
