// sum_splits.cpp -- adds the parts of a product whose K was split:  y = epilogue(parts[0] + parts[1] + ...), in order.
//
// parts[S, ...] is dense; y has rows x cols like one part. A task is a range of elements, cut at whole rows if there is
// an epilogue or a pitch.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels/sum_splits.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <algorithm>

#include "backend/cpu/epilogue-inl.h"
#include "backend/cpu/simd-inl.h"
#include "backend/cpu/tile.h"
#include "base/error.h"

#ifndef SITU_BACKEND_CPU_SUM_SPLITS_ONCE_
#define SITU_BACKEND_CPU_SUM_SPLITS_ONCE_
namespace situ::cpu {
namespace {
struct SumSplits {
  const float* parts = nullptr;
  int64_t splits = 0, count = 0;  // elements of one part
  float* y = nullptr;
  int64_t rows = 0, cols = 0, pitch = 0, rows_per_task = 0;
  TileEpilogue epilogue;
};
}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

void sum_rows(const SumSplits& s, int64_t task) {
  const int64_t row1 = std::min(s.rows, (task + 1) * s.rows_per_task);
  for (int64_t row = task * s.rows_per_task; row < row1; ++row) {
    for (int64_t col = 0; col < s.cols; col += lanes()) {
      const float* part = s.parts + row * s.cols + col;
      const int64_t n = s.cols - col;
      Floats sum = load_up_to(part, n);
      for (int64_t i = 1; i < s.splits; ++i) sum = hn::Add(sum, load_up_to(part + i * s.count, n));
      store_up_to(apply_epilogue(s.epilogue, sum, row, col, n), s.y + row * s.pitch + col, n);
    }
  }
}

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(sum_rows);

constexpr int64_t kElementsPerTask = 2048;

Work bind_sum_splits(const Call& call) {
  const Operand &parts = call.in[0], &y = call.out[0];
  SumSplits s;
  s.parts = parts.f32();
  s.splits = parts.shape()[0];
  s.count = y.type.count();
  SITU_ASSERT(parts.type.count() == s.splits * s.count && parts.pitch == parts.cols());
  s.y = y.f32();
  s.epilogue = bind_epilogue(call, 1);
  const bool flat = s.epilogue.count == 0 && y.pitch == y.cols();
  s.cols = flat ? std::min(s.count, kElementsPerTask) : y.cols();
  if (flat && s.count % s.cols != 0) s.cols = y.cols();
  s.rows = s.count / s.cols;
  s.pitch = flat ? s.cols : y.pitch;
  s.rows_per_task = std::max<int64_t>(1, kElementsPerTask / s.cols);
  const auto run = &HWY_DYNAMIC_DISPATCH(sum_rows);
  return {ceil_div(s.rows, s.rows_per_task), [=](int64_t task) { run(s, task); }};
}

}  // namespace

namespace kernels {
KernelList sum_splits() {
  static constexpr Kernel kernels[] = {{"sum_splits", bind_sum_splits}};
  return {kernels, {}};
}
}  // namespace kernels
}  // namespace situ::cpu
#endif
