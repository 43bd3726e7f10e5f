// peak.cpp -- what the processor can do at best, as launches: for step/roofline.cpp alone.
//
// peak_flops: y = y a + b, `rounds` times, ten vectors of a row at a time; a task per row. 160 columns fit any vector.
// peak_triad: c = a / 2 + b, `rounds` times over; a task per part of the range, so a part stays in one core's cache.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels/peak.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <algorithm>

#include "backend/cpu/kernel.h"
#include "backend/cpu/simd-inl.h"
#include "base/error.h"

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

// Ten chains hide the latency of two FMA units; their start is read, so that the compiler cannot compute them once.
void fma_chains(int64_t rounds, float* y, int64_t cols) {
  const Tag d;
  const Floats a = hn::Set(d, 0.999f), b = hn::Set(d, 0.001f);
  for (const float* end = y + cols; y < end; y += 10 * lanes()) {
    const int64_t n = lanes();
    Floats c0 = hn::LoadU(d, y), c1 = hn::LoadU(d, y + n), c2 = hn::LoadU(d, y + 2 * n), c3 = hn::LoadU(d, y + 3 * n);
    Floats c4 = hn::LoadU(d, y + 4 * n), c5 = hn::LoadU(d, y + 5 * n), c6 = hn::LoadU(d, y + 6 * n);
    Floats c7 = hn::LoadU(d, y + 7 * n), c8 = hn::LoadU(d, y + 8 * n), c9 = hn::LoadU(d, y + 9 * n);
    for (int64_t i = 0; i < rounds; ++i) {
      c0 = hn::MulAdd(c0, a, b);
      c1 = hn::MulAdd(c1, a, b);
      c2 = hn::MulAdd(c2, a, b);
      c3 = hn::MulAdd(c3, a, b);
      c4 = hn::MulAdd(c4, a, b);
      c5 = hn::MulAdd(c5, a, b);
      c6 = hn::MulAdd(c6, a, b);
      c7 = hn::MulAdd(c7, a, b);
      c8 = hn::MulAdd(c8, a, b);
      c9 = hn::MulAdd(c9, a, b);
    }
    hn::StoreU(c0, d, y);
    hn::StoreU(c1, d, y + n);
    hn::StoreU(c2, d, y + 2 * n);
    hn::StoreU(c3, d, y + 3 * n);
    hn::StoreU(c4, d, y + 4 * n);
    hn::StoreU(c5, d, y + 5 * n);
    hn::StoreU(c6, d, y + 6 * n);
    hn::StoreU(c7, d, y + 7 * n);
    hn::StoreU(c8, d, y + 8 * n);
    hn::StoreU(c9, d, y + 9 * n);
  }
}

void triad(const float* a, const float* b, float* c, int64_t n) {
  const Tag d;
  const Floats s = hn::Set(d, 0.5f);
  for (int64_t i = 0; i < n; i += lanes())
    store_up_to(hn::MulAdd(s, load_up_to(a + i, n - i), load_up_to(b + i, n - i)), c + i, n - i);
}

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(fma_chains);
HWY_EXPORT(triad);

Work bind_flops(const Call& call) {
  float* const y = call.out[0].f32();
  const int64_t rounds = call.attrs.integer("rounds"), pitch = call.out[0].pitch, cols = call.out[0].cols();
  SITU_ASSERT(cols % (10 * call.tuning().get("simd.lanes", 1)) == 0, "{} columns are no whole chains", cols);
  const auto run = &HWY_DYNAMIC_DISPATCH(fma_chains);
  return {call.out[0].rows(), [=](int64_t task) { run(rounds, y + task * pitch, cols); }};
}

Work bind_triad(const Call& call) {
  const float *a = call.in[0].f32(), *b = call.in[1].f32();
  float* const c = call.out[0].f32();
  const int64_t rounds = call.attrs.integer("rounds"), count = call.out[0].type.count();
  const int64_t part = ceil_div(count, std::max<int64_t>(1, call.target.compute_units));
  const auto run = &HWY_DYNAMIC_DISPATCH(triad);
  return {ceil_div(count, part), [=](int64_t task) {
            const int64_t at = task * part;
            for (int64_t i = 0; i < rounds; ++i) run(a + at, b + at, c + at, std::min(part, count - at));
          }};
}

}  // namespace

namespace kernels {
KernelList peak() {
  static constexpr Kernel kernels[] = {{"peak_flops", bind_flops}, {"peak_triad", bind_triad}};
  return {kernels, {}};
}
}  // namespace kernels
}  // namespace situ::cpu
#endif
