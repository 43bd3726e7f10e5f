// rotary.cpp -- pairs (i, i + D/2) of each head turned by an angle that grows with time; cosines and sines from a table
// made at binding. A task is a range of rows. x may be overwritten: both halves of a pair are read before either is
// written.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels/rotary.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <algorithm>
#include <memory>

#include "backend/cpu/kernel.h"
#include "backend/cpu/simd-inl.h"
#include "ops/rotary.h"

#ifndef SITU_BACKEND_CPU_ROTARY_ONCE_
#define SITU_BACKEND_CPU_ROTARY_ONCE_
namespace situ::cpu {
namespace {
struct Rotation {
  ops::Rotary r;
  std::vector<float> table;
  int64_t rows = 0, rows_per_task = 1;
  const float* x = nullptr;
  float* y = nullptr;
  int64_t x_pitch = 0, y_pitch = 0;
};
}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

HWY_INLINE void turn_head(const float* x, float* y, const float* table, int64_t half) {
  for (int64_t i = 0; i < half; i += lanes()) {
    const int64_t n = half - i;
    const Floats a = load_up_to(x + i, n), b = load_up_to(x + half + i, n);
    const Floats c = load_up_to(table + i, n), s = load_up_to(table + half + i, n);
    store_up_to(hn::NegMulAdd(b, s, hn::Mul(a, c)), y + i, n);
    store_up_to(hn::MulAdd(a, s, hn::Mul(b, c)), y + half + i, n);
  }
}

void rotary_rows(const Rotation& p, int64_t task) {
  const int64_t last = std::min(p.rows, (task + 1) * p.rows_per_task), width = 2 * p.r.half;
  for (int64_t row = task * p.rows_per_task; row < last; ++row)
    for (int64_t head = 0; head < p.r.heads; ++head)
      turn_head(p.x + row * p.x_pitch + head * width, p.y + row * p.y_pitch + head * width,
                p.table.data() + row % p.r.time * width, p.r.half);
}

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(rotary_rows);

constexpr int64_t kElementsPerTask = 4096;

Work bind_rotary(const Call& call) {
  const Operand &x = call.in[0], &y = call.out[0];
  auto p = std::make_shared<Rotation>();
  p->r = ops::rotary_of(call.attrs, x.shape());
  p->table = p->r.table();
  p->rows = x.rows();
  p->rows_per_task = std::max<int64_t>(1, kElementsPerTask / x.cols());
  p->x = x.f32();
  p->y = y.f32();
  p->x_pitch = x.pitch;
  p->y_pitch = y.pitch;
  const auto run = &HWY_DYNAMIC_DISPATCH(rotary_rows);
  return {ceil_div(p->rows, p->rows_per_task), [p, run](int64_t task) { (*run)(*p, task); }};
}

}  // namespace

namespace kernels {
KernelList rotary() {
  static constexpr Kernel kernels[] = {{"rotary", bind_rotary}};
  return {kernels, {}};
}
}  // namespace kernels
}  // namespace situ::cpu
#endif
