// metrics.cpp -- the score of a batch, and the running totals the host reads now and then. Small: plain loops.
//
//   accuracy  score_i = weight_i if fewer than `top` logits of row i are larger than label_i's, or equal and before it
//   metrics   totals' = {totals0 + sum(loss) / scale, totals1 + sum(score), totals2 + sum(weight), sum(loss)}
//   confusion  counts'[label_i, first maximum of row i] += weight_i, for every sample in order
//   regression_metrics  totals' = totals + {sum w |e|, sum w e^2, sum w, sum w e} over all elements, e = prediction -
//   target
#include <algorithm>
#include <cmath>

#include "backend/cpu/kernel.h"

namespace situ::cpu {
namespace {

constexpr int64_t kRowsPerTask = 64;

// Counted without branches, so that the compiler makes vectors of it. A logit that is NaN is among none.
bool is_among(const float* row, int64_t cols, int32_t label, int64_t top) {
  if (label < 0 || label >= cols) return false;
  const float own = row[label];
  int32_t ahead = 0;
  for (int32_t c = 0; c < static_cast<int32_t>(cols); ++c)
    ahead += static_cast<int32_t>(row[c] > own) | static_cast<int32_t>((c < label && row[c] == own));
  return ahead < top && own == own;
}

Work bind_accuracy(const Call& call) {
  const Operand logits = call.in[0];
  const int64_t top = call.attrs.integer("top", 1);
  const int32_t* labels = call.in[1].i32();
  const float* weight = call.in[2].f32();
  float* score = call.out[0].f32();
  return {ceil_div(logits.rows(), kRowsPerTask), [=](int64_t task) {
            const int64_t last = std::min(logits.rows(), (task + 1) * kRowsPerTask);
            for (int64_t r = task * kRowsPerTask; r < last; ++r) {
              const float* row = logits.f32() + r * logits.pitch;
              score[r] = is_among(row, logits.cols(), labels[r], top) ? weight[r] : 0;
            }
          }};
}

// In double: a handful of numbers, and the totals of an epoch deserve them.
double sum(const float* x, int64_t n) {
  double total = 0;
  for (int64_t i = 0; i < n; ++i) total += static_cast<double>(x[i]);
  return total;
}

Work bind_metrics(const Call& call) {
  const float *totals = call.in[0].f32(), *loss = call.in[1].f32(), *score = call.in[2].f32();
  const float *weight = call.in[3].f32(), *scale = call.in[4].f32();
  float* fresh = call.out[0].f32();
  const int64_t n = call.in[1].type.count();
  return {1, [=](int64_t) {
            const double losses = sum(loss, n);
            fresh[0] = static_cast<float>(static_cast<double>(totals[0]) + losses / static_cast<double>(*scale));
            fresh[1] = static_cast<float>(static_cast<double>(totals[1]) + sum(score, n));
            fresh[2] = static_cast<float>(static_cast<double>(totals[2]) + sum(weight, n));
            fresh[3] = static_cast<float>(losses);
          }};
}

// A task owns some labels' rows of the matrix and walks over all samples.
Work bind_confusion(const Call& call) {
  const Operand counts = call.in[0], logits = call.in[1], fresh = call.out[0];
  const int32_t* labels = call.in[2].i32();
  const float* weight = call.in[3].f32();
  const int64_t classes = counts.cols(), tasks = std::min<int64_t>(classes, 16);
  return {tasks, [=](int64_t task) {
            const int64_t first = classes * task / tasks, last = classes * (task + 1) / tasks;
            for (int64_t r = first; r < last; ++r)
              std::copy_n(counts.f32() + r * counts.pitch, classes, fresh.f32() + r * fresh.pitch);
            for (int64_t i = 0; i < logits.rows(); ++i) {
              if (labels[i] < first || labels[i] >= last) continue;
              const float* row = logits.f32() + i * logits.pitch;
              const int64_t best = std::max_element(row, row + classes) - row;
              fresh.f32()[labels[i] * fresh.pitch + best] += weight[i];
            }
          }};
}

// A vector is a column of samples; anything else has `lines` rows for each sample.
Work bind_regression(const Call& call) {
  const Operand &x = call.in[1], &t = call.in[2];
  const float *totals = call.in[0].f32(), *weight = call.in[3].f32();
  float* fresh = call.out[0].f32();
  const bool vector = x.shape().rank() == 1;
  const int64_t n = x.shape()[0], lines = vector ? 1 : x.rows() / n, cols = vector ? 1 : x.cols();
  const int64_t x_pitch = vector ? 1 : x.pitch, t_pitch = vector ? 1 : t.pitch;
  const float *prediction = x.f32(), *target = t.f32();
  return {1, [=](int64_t) {
            double sums[4] = {};
            for (int64_t r = 0; r < n * lines; ++r) {
              const double w = static_cast<double>(weight[r / lines]);
              for (int64_t c = 0; c < cols; ++c) {
                const double e =
                    static_cast<double>(prediction[r * x_pitch + c]) - static_cast<double>(target[r * t_pitch + c]);
                sums[0] += w * std::fabs(e);
                sums[1] += w * e * e;
                sums[3] += w * e;
              }
              sums[2] += w * static_cast<double>(cols);
            }
            for (int i = 0; i < 4; ++i) fresh[i] = static_cast<float>(static_cast<double>(totals[i]) + sums[i]);
          }};
}

}  // namespace

namespace kernels {
KernelList metrics() {
  static constexpr Kernel kernels[] = {{"accuracy", bind_accuracy},
                                       {"metrics", bind_metrics},
                                       {"confusion", bind_confusion},
                                       {"regression_metrics", bind_regression}};
  return {kernels, {}};
}
}  // namespace kernels
}  // namespace situ::cpu
