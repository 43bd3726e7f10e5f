#include "backend/cpu/turn.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/turn.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <algorithm>

#include "backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

// Along r first, so that lines of the cache are written whole.
void turn(const float* from, int64_t from_step, int64_t rows, int64_t cols, float* to, int64_t to_step) {
  int64_t whole_rows = 0, whole_cols = 0;
#if HWY_TARGET != HWY_SCALAR
  constexpr int64_t kBlock = 16;
  whole_rows = rows / 4 * 4;
  whole_cols = cols / 4 * 4;
  for (int64_t r0 = 0; r0 < whole_rows; r0 += kBlock)
    for (int64_t c = 0; c < whole_cols; c += 4)
      for (int64_t r = r0; r < std::min(r0 + kBlock, whole_rows); r += 4)
        transpose_4x4(from + r * from_step + c, from_step, to + c * to_step + r, to_step);
#endif
  for (int64_t c = 0; c < cols; ++c)
    for (int64_t r = c < whole_cols ? whole_rows : 0; r < rows; ++r) to[c * to_step + r] = from[r * from_step + c];
}

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(turn);
}  // namespace

Turn turn_function() { return &HWY_DYNAMIC_DISPATCH(turn); }

}  // namespace situ::cpu
#endif
