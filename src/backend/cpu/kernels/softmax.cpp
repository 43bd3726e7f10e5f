// softmax.cpp -- softmax along the last axis, its gradient, and the cross entropy made of it.
//
//   softmax       y  = exp(x - max x) / sum exp(x - max x)
//   softmax_grad  dx = y * (dy - sum(y * dy))
//   softmax_xent  loss = f * (log sum exp(l - max l) + sum t * (max l - l)),  dlogits = f * (softmax(l) - t),
//                 t = (1 - smoothing) * onehot(label) + smoothing / C, f = weight * scale; f = 0 gives zeros whatever
//                 the row holds. A label that is no class: loss NaN, no one-hot term.
//   softmax_soft_xent  the same with t given: loss = f * (T log sum exp(..) + ..), dlogits = f * (T softmax(l) - t),
//                 T = sum t
// A task is a range of rows. Exponentials rest in the result until the sum is known.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels/softmax.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/kernel.h"
#include "backend/cpu/math-inl.h"
#include "backend/cpu/simd-inl.h"

#ifndef SITU_BACKEND_CPU_SOFTMAX_ONCE_
#define SITU_BACKEND_CPU_SOFTMAX_ONCE_
namespace situ::cpu {
namespace {
struct Softmax {
  int64_t rows = 0, cols = 0, rows_per_task = 1;
  const float* x = nullptr;  // softmax_grad: y
  int64_t x_pitch = 0;
  const float* dy = nullptr;
  int64_t dy_pitch = 0;
  float* y = nullptr;  // softmax_grad: dx; softmax_xent: dlogits
  int64_t y_pitch = 0;
  const int32_t* labels = nullptr;
  const float* targets = nullptr;
  int64_t targets_pitch = 0;
  double smoothing = 0;
  const float *weight = nullptr, *scale = nullptr;
  float* loss = nullptr;
};
}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

HWY_INLINE float row_max(const float* x, int64_t n) {
  if (n < lanes()) return *std::max_element(x, x + n);
  Floats top = hn::LoadU(Tag(), x);
  for (int64_t i = lanes(); i + lanes() <= n; i += lanes()) top = hn::Max(top, hn::LoadU(Tag(), x + i));
  // The last vector may overlap the one before: a maximum does not mind.
  return max_lanes(hn::Max(top, hn::LoadU(Tag(), x + n - lanes())));
}

// y = exp(x - top); the sum of y.
HWY_INLINE float exponentials(const float* x, float* y, int64_t n, float top) {
  const Floats shift = fill(top);
  Floats sum = zeros();
  int64_t i = 0;
  while (i + lanes() <= n) {
    Floats block = zeros();  // of a few terms: long rows on short vectors would lose digits
    for (int k = 0; k < 32 && i + lanes() <= n; ++k, i += lanes()) {
      const Floats e = exp_of(hn::Sub(hn::LoadU(Tag(), x + i), shift));
      hn::StoreU(e, Tag(), y + i);
      block = hn::Add(block, e);
    }
    sum = hn::Add(sum, block);
  }
  if (i < n) {
    const Floats e = exp_of(hn::Sub(load_part(x + i, n - i), shift));
    store_part(e, y + i, n - i);
    sum = hn::Add(sum, hn::IfThenElseZero(hn::FirstN(Tag(), static_cast<size_t>(n - i)), e));
  }
  return sum_lanes(sum);
}

HWY_INLINE void scale_row(float* y, int64_t n, float factor) {
  const Floats f = fill(factor);
  for (int64_t i = 0; i < n; i += lanes()) store_up_to(hn::Mul(load_up_to(y + i, n - i), f), y + i, n - i);
}

void softmax_rows(const Softmax& s, int64_t task) {
  const int64_t last = std::min(s.rows, (task + 1) * s.rows_per_task);
  for (int64_t r = task * s.rows_per_task; r < last; ++r) {
    const float* x = s.x + r * s.x_pitch;
    float* y = s.y + r * s.y_pitch;
    scale_row(y, s.cols, 1.0f / exponentials(x, y, s.cols, row_max(x, s.cols)));
  }
}

void grad_rows(const Softmax& s, int64_t task) {
  const int64_t last = std::min(s.rows, (task + 1) * s.rows_per_task), n = s.cols;
  for (int64_t r = task * s.rows_per_task; r < last; ++r) {
    const float *y = s.x + r * s.x_pitch, *dy = s.dy + r * s.dy_pitch;
    float* dx = s.y + r * s.y_pitch;
    Floats sum = zeros();
    for (int64_t i = 0; i < n; i += lanes()) sum = hn::MulAdd(load_up_to(y + i, n - i), load_up_to(dy + i, n - i), sum);
    const Floats dot = fill(sum_lanes(sum));
    for (int64_t i = 0; i < n; i += lanes()) {
      const Floats v = hn::Mul(load_up_to(y + i, n - i), hn::Sub(load_up_to(dy + i, n - i), dot));
      store_up_to(v, dx + i, n - i);
    }
  }
}

// sum(top - x)
HWY_INLINE float sum_below(const float* x, int64_t n, float top) {
  Floats sum = zeros();
  for (int64_t i = 0; i + lanes() <= n; i += lanes()) sum = hn::Add(sum, hn::Sub(fill(top), hn::LoadU(Tag(), x + i)));
  float rest = 0;
  for (int64_t i = n / lanes() * lanes(); i < n; ++i) rest += top - x[i];
  return sum_lanes(sum) + rest;
}

// y = factor * y - less
HWY_INLINE void scale_and_shift_row(float* y, int64_t n, float factor, float less) {
  for (int64_t i = 0; i < n; i += lanes())
    store_up_to(hn::MulSub(load_up_to(y + i, n - i), fill(factor), fill(less)), y + i, n - i);
}

void xent_row(const Softmax& s, int64_t r, float factor) {
  const float* x = s.x + r * s.x_pitch;
  float* dx = s.y + r * s.y_pitch;
  const int32_t label = s.labels[r];
  const bool known = label >= 0 && label < s.cols;
  const float chosen = known ? x[label] : std::numeric_limits<float>::quiet_NaN();
  const float top = row_max(x, s.cols), sum = exponentials(x, dx, s.cols, top);
  const float p = known ? dx[label] / sum : 0;
  if (s.smoothing == 0) {
    s.loss[r] = factor * (std::log(sum) + (top - chosen));
    scale_row(dx, s.cols, factor / sum);
    if (known) dx[label] = factor * (p - 1);
    return;
  }
  const auto share = static_cast<float>(s.smoothing / static_cast<double>(s.cols));
  const auto rest = static_cast<float>(1 - s.smoothing);
  s.loss[r] = factor * (std::log(sum) + (rest * (top - chosen) + share * sum_below(x, s.cols, top)));
  scale_and_shift_row(dx, s.cols, factor / sum, factor * share);
  if (known) dx[label] = factor * (p - (rest + share));
}

// sum(t * (top - x)), where a target of 0 takes no part, and sum(t)
HWY_INLINE std::pair<float, float> target_sums(const float* x, const float* t, int64_t n, float top) {
  Floats below = zeros(), total = zeros();
  for (int64_t i = 0; i < n;) {
    Floats block_below = zeros(), block_total = zeros();  // long rows on short vectors would lose digits
    for (int k = 0; k < 32 && i < n; ++k, i += lanes()) {
      const Floats target = load_up_to(t + i, n - i), v = hn::Sub(fill(top), load_up_to(x + i, n - i));
      block_below = hn::Add(block_below, hn::IfThenElseZero(hn::Ne(target, zeros()), hn::Mul(target, v)));
      block_total = hn::Add(block_total, target);
    }
    below = hn::Add(below, block_below);
    total = hn::Add(total, block_total);
  }
  return {sum_lanes(below), sum_lanes(total)};
}

void soft_row(const Softmax& s, int64_t r, float factor) {
  const float *x = s.x + r * s.x_pitch, *t = s.targets + r * s.targets_pitch;
  float* dx = s.y + r * s.y_pitch;
  const float top = row_max(x, s.cols);
  const auto [below, total] = target_sums(x, t, s.cols, top);
  const float sum = exponentials(x, dx, s.cols, top);
  s.loss[r] = factor * (total * std::log(sum) + below);
  const Floats share = fill(total / sum), f = fill(factor);
  for (int64_t i = 0; i < s.cols; i += lanes()) {
    const int64_t n = s.cols - i;
    store_up_to(hn::Mul(f, hn::MulSub(load_up_to(dx + i, n), share, load_up_to(t + i, n))), dx + i, n);
  }
}

void xent_rows(const Softmax& s, int64_t task) {
  const int64_t last = std::min(s.rows, (task + 1) * s.rows_per_task);
  for (int64_t r = task * s.rows_per_task; r < last; ++r) {
    const float factor = s.weight[r] * s.scale[0];
    if (factor == 0) {
      std::fill_n(s.y + r * s.y_pitch, s.cols, 0.0f);
      s.loss[r] = 0;
    } else if (s.targets) {
      soft_row(s, r, factor);
    } else {
      xent_row(s, r, factor);
    }
  }
}

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(softmax_rows);
HWY_EXPORT(grad_rows);
HWY_EXPORT(xent_rows);

constexpr int64_t kElementsPerTask = 1024;

Softmax make_softmax(const Operand& x, const Operand& y) {
  Softmax s;
  s.rows = x.rows();
  s.cols = x.cols();
  s.rows_per_task = std::max<int64_t>(1, kElementsPerTask / s.cols);
  s.x = x.f32();
  s.x_pitch = x.pitch;
  s.y = y.f32();
  s.y_pitch = y.pitch;
  return s;
}
template <typename Run>
Work work(const Softmax& s, Run run) {
  return {ceil_div(s.rows, s.rows_per_task), [s, run](int64_t task) { run(s, task); }};
}

Work bind_softmax(const Call& call) {
  return work(make_softmax(call.in[0], call.out[0]), &HWY_DYNAMIC_DISPATCH(softmax_rows));
}
Work bind_grad(const Call& call) {
  Softmax s = make_softmax(call.in[0], call.out[0]);
  s.dy = call.in[1].f32();
  s.dy_pitch = call.in[1].pitch;
  return work(s, &HWY_DYNAMIC_DISPATCH(grad_rows));
}
Work bind_xent(const Call& call) {
  Softmax s = make_softmax(call.in[0], call.out[1]);
  if (call.in[1].type.dtype == DType::i32) {
    s.labels = call.in[1].i32();
    s.smoothing = call.attrs.number("smoothing", 0);
  } else {
    s.targets = call.in[1].f32();
    s.targets_pitch = call.in[1].pitch;
  }
  s.weight = call.in[2].f32();
  s.scale = call.in[3].f32();
  s.loss = call.out[0].f32();
  return work(s, &HWY_DYNAMIC_DISPATCH(xent_rows));
}

}  // namespace

namespace kernels {
KernelList softmax() {
  static constexpr Kernel kernels[] = {{"softmax", bind_softmax},
                                       {"softmax_grad", bind_grad},
                                       {"softmax_xent", bind_xent},
                                       {"softmax_soft_xent", bind_xent}};
  return {kernels, {}};
}
}  // namespace kernels
}  // namespace situ::cpu
#endif
