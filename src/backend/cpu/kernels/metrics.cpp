// metrics.cpp -- the score of a batch, and the running totals the host reads now and then. Small: plain loops.
//
//   accuracy  score_i = weight_i if the first maximum of row i stands at label_i, else 0
//   metrics   totals' = {totals0 + sum(loss) / scale, totals1 + sum(score), totals2 + sum(weight), sum(loss)}
#include <algorithm>

#include "backend/cpu/kernel.h"

namespace situ::cpu {
namespace {

constexpr int64_t kRowsPerTask = 64;

Work bind_accuracy(const Call& call) {
  const Operand logits = call.in[0];
  const int32_t* labels = call.in[1].i32();
  const float* weight = call.in[2].f32();
  float* score = call.out[0].f32();
  return {ceil_div(logits.rows(), kRowsPerTask), [=](int64_t task) {
            const int64_t last = std::min(logits.rows(), (task + 1) * kRowsPerTask);
            for (int64_t r = task * kRowsPerTask; r < last; ++r) {
              const float* row = logits.f32() + r * logits.pitch;
              const int64_t first = std::max_element(row, row + logits.cols()) - row;
              score[r] = first == labels[r] ? weight[r] : 0;
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

}  // namespace

namespace kernels {
KernelList metrics() {
  static constexpr Kernel kernels[] = {{"accuracy", bind_accuracy}, {"metrics", bind_metrics}};
  return {kernels, {}};
}
}  // namespace kernels
}  // namespace situ::cpu
