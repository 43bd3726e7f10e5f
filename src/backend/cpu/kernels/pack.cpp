// pack.cpp -- the right side of a matrix product as panels, so that the tile reads it front to back.
//
//   pack_b   w[K,N] (or [N,K] with tb) -> panels[G * N/TN][K][TN]; a convolution's weights [R,S,C,O] are K = R*S*C
//   rows.
//            With groups the columns of each group make panels of their own.
//   pack_dx  w[R,S,C,O] -> panels over c, K = (R-1-r, S-1-s, o): the taps of a data gradient, in reading order.
// Columns beyond the last are zeros. A task is up to kRows rows of one panel.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels/pack.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <algorithm>

#include "backend/cpu/kernel.h"
#include "backend/cpu/simd-inl.h"
#include "base/error.h"

#ifndef SITU_BACKEND_CPU_PACK_ONCE_
#define SITU_BACKEND_CPU_PACK_ONCE_
namespace situ::cpu {
namespace {
constexpr int64_t kRows = 256;

struct PackTask {
  const float* from = nullptr;  // element (k = 0, column 0) of the task
  int64_t pitch = 0;            // of the source's rows: k if plain, columns if transposed
  int64_t rows = 0, columns = 0, tn = 0;
  float* to = nullptr;
};
}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

void pack_plain(const PackTask& p) {
  for (int64_t k = 0; k < p.rows; ++k) {
    const float* from = p.from + k * p.pitch;
    float* to = p.to + k * p.tn;
    for (int64_t j = 0; j < p.tn; j += lanes()) {
      const Floats v = j < p.columns ? load_up_to(from + j, p.columns - j) : zeros();
      hn::StoreU(v, Tag(), to + j);
    }
  }
}

// Eight rows at a time, so that a line of the source is used up in two goes: where rows lie pages apart, all fall
// into one set of the cache, and lines do not stay for more.
void pack_transposed(const PackTask& p) {
  constexpr int64_t kHalfLine = 8;
  int64_t whole_rows = 0, whole_columns = 0;
#if HWY_TARGET != HWY_SCALAR
  whole_rows = p.rows / 4 * 4;
  whole_columns = p.columns / 4 * 4;
#endif
  for (int64_t k0 = 0; k0 < p.rows; k0 += kHalfLine) {
    const int64_t k1 = std::min(k0 + kHalfLine, p.rows), whole = std::min(k1, whole_rows);
#if HWY_TARGET != HWY_SCALAR
    for (int64_t j = 0; j < whole_columns; j += 4)
      for (int64_t k = k0; k < whole; k += 4)
        transpose_4x4(p.from + j * p.pitch + k, p.pitch, p.to + k * p.tn + j, p.tn);
#endif
    for (int64_t k = k0; k < k1; ++k)
      for (int64_t j = k < whole ? whole_columns : 0; j < p.tn; ++j)
        p.to[k * p.tn + j] = j < p.columns ? p.from[j * p.pitch + k] : 0;
  }
}

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(pack_plain);
HWY_EXPORT(pack_transposed);

Work bind_pack_b(const Call& call) {
  const Operand &w = call.in[0], &panels = call.out[0];
  const bool transposed = call.attrs.flag("tb");
  const int64_t groups = call.attrs.integer("groups", 1);
  const int64_t k = transposed ? w.cols() : w.rows(), n = (transposed ? w.rows() : w.cols()) / groups;
  const int64_t tn = panels.cols(), per_group = ceil_div(n, tn), chunks = ceil_div(k, kRows);
  SITU_ASSERT(panels.rows() == groups * per_group * k && panels.pitch == tn && (groups == 1 || !transposed));
  const float* from = w.f32();
  float* to = panels.f32();
  const int64_t pitch = w.pitch;
  const auto pack = transposed ? &HWY_DYNAMIC_DISPATCH(pack_transposed) : &HWY_DYNAMIC_DISPATCH(pack_plain);
  return {groups * per_group * chunks, [=](int64_t task) {
            const int64_t panel = task / chunks, k0 = task % chunks * kRows;
            const int64_t column = panel / per_group * n + panel % per_group * tn;
            PackTask p{.pitch = pitch,
                       .rows = std::min(kRows, k - k0),
                       .columns = std::min(tn, n - panel % per_group * tn),
                       .tn = tn,
                       .to = to + (panel * k + k0) * tn};
            p.from = transposed ? from + column * pitch + k0 : from + k0 * pitch + column;
            pack(p);
          }};
}

// A task is one tap of one panel.
Work bind_pack_dx(const Call& call) {
  const Operand &w = call.in[0], &panels = call.out[0];
  const int64_t groups = call.attrs.integer("groups", 1);
  const int64_t taps = w.shape()[0] * w.shape()[1], channels = w.shape()[2], outputs = w.shape()[3] / groups;
  const int64_t tn = panels.cols(), per_group = ceil_div(channels, tn), k = taps * outputs;
  SITU_ASSERT(panels.rows() == groups * per_group * k && panels.pitch == tn);
  const float* from = w.f32();
  float* to = panels.f32();
  const int64_t pitch = w.pitch;
  const auto pack = &HWY_DYNAMIC_DISPATCH(pack_transposed);
  return {groups * per_group * taps, [=](int64_t task) {
            const int64_t panel = task / taps, tap = task % taps, group = panel / per_group;
            const int64_t channel = panel % per_group * tn;
            pack({.from = from + ((taps - 1 - tap) * channels + channel) * pitch + group * outputs,
                  .pitch = pitch,
                  .rows = outputs,
                  .columns = std::min(tn, channels - channel),
                  .tn = tn,
                  .to = to + (panel * k + tap * outputs) * tn});
          }};
}

}  // namespace

namespace kernels {
KernelList pack() {
  static constexpr Kernel kernels[] = {{"pack_b", bind_pack_b}, {"pack_dx", bind_pack_dx}};
  return {kernels, {}};
}
}  // namespace kernels
}  // namespace situ::cpu
#endif
