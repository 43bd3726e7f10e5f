// norm_rows.cpp -- layer norm and rms norm along the last axis, and their gradients with respect to x.
//
//   layer_norm     y = (x - mean) rstd gamma + beta      rms_norm     y = x rstd gamma
//   layer_norm_dx  dx = rstd (g - mean(g) - h mean(g h)), g = dy gamma, h = (x - mean) rstd
//   rms_norm_dx    dx = rstd (g - h mean(g h)), h = x rstd
// A task is a range of rows; a row is read again from the cache once its sums are known. Sums are made of short blocks.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels/norm_rows.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <algorithm>
#include <cmath>

#include "backend/cpu/columns.h"
#include "backend/cpu/simd-inl.h"

#ifndef SITU_BACKEND_CPU_NORM_ROWS_ONCE_
#define SITU_BACKEND_CPU_NORM_ROWS_ONCE_
namespace situ::cpu {
namespace {
struct RowWork {
  int64_t rows = 0, cols = 0, rows_per_task = 1;
  Matrix x, dy, y;  // y: dx in the gradients
  const float *gamma = nullptr, *beta = nullptr;
  Statistic mean, rstd;
  bool centred = true;  // layer norm
  float eps = 0;
};
}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

// The sum of term(i, n) over vectors that start at i and hold n elements, zeros beyond them; in blocks of 32 vectors.
template <class Term>
HWY_INLINE float sum_row(int64_t cols, const Term& term) {
  const int64_t w = lanes();
  Floats total = zeros();
  int64_t i = 0;
  while (i + 4 * w <= cols) {
    Floats a = zeros(), b = zeros(), c = zeros(), d = zeros();
    for (int k = 0; k < 8 && i + 4 * w <= cols; ++k, i += 4 * w) {
      a = hn::Add(a, term(i, w));
      b = hn::Add(b, term(i + w, w));
      c = hn::Add(c, term(i + 2 * w, w));
      d = hn::Add(d, term(i + 3 * w, w));
    }
    total = hn::Add(total, hn::Add(hn::Add(a, b), hn::Add(c, d)));
  }
  Floats rest = zeros();
  for (; i < cols; i += w) rest = hn::Add(rest, term(i, cols - i));
  return sum_lanes(hn::Add(total, rest));
}

// put(i, n) for all vectors of a row.
template <class Put>
HWY_INLINE void each_vector(int64_t cols, const Put& put) {
  int64_t i = 0;
  for (; i + lanes() <= cols; i += lanes()) put(i, lanes());
  if (i < cols) put(i, cols - i);
}

HWY_INLINE Floats zero_beyond(Floats v, int64_t n) {
  return n >= lanes() ? v : hn::IfThenElseZero(hn::FirstN(Tag(), static_cast<size_t>(n)), v);
}

void forward_rows(const RowWork& w, int64_t task) {
  const int64_t last = std::min(w.rows, (task + 1) * w.rows_per_task), cols = w.cols;
  const float n = static_cast<float>(cols);
  for (int64_t r = task * w.rows_per_task; r < last; ++r) {
    const float* x = w.x.at(r, 0);
    float *y = w.y.at(r, 0), mean = 0;
    if (w.centred) mean = sum_row(cols, [&](int64_t i, int64_t left) HWY_ATTR { return load_up_to(x + i, left); }) / n;
    const Floats shift = fill(mean);
    const float squares = sum_row(cols, [&](int64_t i, int64_t left) HWY_ATTR {
      const Floats d = zero_beyond(hn::Sub(load_up_to(x + i, left), shift), left);
      return hn::Mul(d, d);
    });
    const float rstd = 1.0f / std::sqrt(squares / n + w.eps);
    const Floats scale = fill(rstd);
    each_vector(cols, [&](int64_t i, int64_t left) HWY_ATTR {
      const Floats h = hn::Mul(hn::Sub(load_up_to(x + i, left), shift), scale), gamma = load_up_to(w.gamma + i, left);
      const Floats v = w.beta ? hn::MulAdd(h, gamma, load_up_to(w.beta + i, left)) : hn::Mul(h, gamma);
      store_up_to(v, y + i, left);
    });
    if (w.centred) w.mean[r] = mean;
    w.rstd[r] = rstd;
  }
}

void dx_rows(const RowWork& w, int64_t task) {
  const int64_t last = std::min(w.rows, (task + 1) * w.rows_per_task), cols = w.cols;
  const float n = static_cast<float>(cols);
  for (int64_t r = task * w.rows_per_task; r < last; ++r) {
    const float *x = w.x.at(r, 0), *dy = w.dy.at(r, 0);
    float* dx = w.y.at(r, 0);
    const Floats shift = fill(w.centred ? w.mean[r] : 0), scale = fill(w.rstd[r]);
    const auto g = [&](int64_t i, int64_t left)
                       HWY_ATTR { return hn::Mul(load_up_to(dy + i, left), load_up_to(w.gamma + i, left)); };
    const auto h = [&](int64_t i, int64_t left)
                       HWY_ATTR { return hn::Mul(hn::Sub(load_up_to(x + i, left), shift), scale); };
    const Floats plain = fill(w.centred ? sum_row(cols, g) / n : 0);
    const auto product = [&](int64_t i, int64_t left) HWY_ATTR { return hn::Mul(g(i, left), h(i, left)); };
    const Floats share = fill(sum_row(cols, product) / n);  // g is 0 beyond the row
    each_vector(cols, [&](int64_t i, int64_t left) HWY_ATTR {
      const Floats v = hn::NegMulAdd(h(i, left), share, hn::Sub(g(i, left), plain));
      store_up_to(hn::Mul(scale, v), dx + i, left);
    });
  }
}

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(forward_rows);
HWY_EXPORT(dx_rows);

constexpr int64_t kElementsPerTask = 4096;

RowWork over(const Operand& x, const Operand& y, bool centred) {
  RowWork w;
  w.rows = x.rows();
  w.cols = x.cols();
  w.rows_per_task = std::max<int64_t>(1, kElementsPerTask / w.cols);
  w.x = Matrix(x);
  w.y = Matrix(y);
  w.centred = centred;
  return w;
}
template <typename Run>
Work work(const RowWork& w, Run run) {
  return {ceil_div(w.rows, w.rows_per_task), [w, run](int64_t task) { run(w, task); }};
}

template <bool CENTRED>
Work bind_forward(const Call& call) {
  RowWork w = over(call.in[0], call.out[0], CENTRED);
  w.gamma = call.in[1].f32();
  if (CENTRED) w.beta = call.in[2].f32();
  if (CENTRED) w.mean = Statistic(call.out[1]);
  w.rstd = Statistic(call.out.back());
  w.eps = static_cast<float>(call.attrs.number("eps"));
  return work(w, &HWY_DYNAMIC_DISPATCH(forward_rows));
}
template <bool CENTRED>
Work bind_dx(const Call& call) {
  RowWork w = over(call.in[0], call.out[0], CENTRED);
  w.dy = Matrix(call.in[1]);
  w.gamma = call.in[2].f32();
  if (CENTRED) w.mean = Statistic(call.in[3]);
  w.rstd = Statistic(call.in.back());
  return work(w, &HWY_DYNAMIC_DISPATCH(dx_rows));
}

}  // namespace

namespace kernels {
KernelList norm_rows() {
  static constexpr Kernel kernels[] = {{"layer_norm", bind_forward<true>},
                                       {"layer_norm_dx", bind_dx<true>},
                                       {"rms_norm", bind_forward<false>},
                                       {"rms_norm_dx", bind_dx<false>}};
  return {kernels, {}};
}
}  // namespace kernels
}  // namespace situ::cpu
#endif
