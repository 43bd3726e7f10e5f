#include "backend/cpu/short_sums.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/short_sums.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <algorithm>

#include "backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

// With sixteen registers the weights would not stay in them, and vectors of unknown length fit no array.
#undef SITU_SHORT_SUMS
#define SITU_SHORT_SUMS (HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL)
#if SITU_SHORT_SUMS
// ROWS results of one vector: as many chains as hide the latency of a multiply-add.
template <int LINES, int LENGTH, int ROWS>
HWY_INLINE void some_rows(const ShortSums& s, int64_t row, const Floats* weights, Floats begin, float* y) {
  Floats sum[ROWS];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) sum[r] = begin;
#pragma GCC unroll 3
  for (int l = 0; l < LINES; ++l) {
    const float* const a = s.line[l] + row * s.step;
#pragma GCC unroll 32
    for (int k = 0; k < LENGTH; ++k)
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; ++r) sum[r] = plus_product(weights[l * LENGTH + k], a + r * s.step + k, sum[r]);
  }
  const Floats low = fill(s.range.low), high = fill(s.range.high);
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) hn::StoreU(at_most(high, at_least(low, sum[r])), Tag(), y + (row + r) * s.y_pitch);
}

template <int LINES, int LENGTH>
void run_short_sums(const ShortSums& s) {
  constexpr int kRows = 8, kTerms = LINES * LENGTH;
  for (int64_t j = 0; j < s.columns; j += lanes()) {
    Floats weights[kTerms];
#pragma GCC unroll 32
    for (int k = 0; k < kTerms; ++k) weights[k] = kept(hn::LoadU(Tag(), s.b + k * s.b_step + j));
    const Floats begin = s.range.bias ? hn::LoadU(Tag(), s.range.bias + j) : zeros();
    int64_t row = 0;
    for (; row + kRows <= s.m; row += kRows) some_rows<LINES, LENGTH, kRows>(s, row, weights, begin, s.y + j);
    for (; row < s.m; ++row) some_rows<LINES, LENGTH, 1>(s, row, weights, begin, s.y + j);
  }
}

ShortSumsFunction short_sums_for(int64_t lines, int64_t length) {
  if (lines == 1 && length == 8) return run_short_sums<1, 8>;
  if (lines == 1 && length == 16) return run_short_sums<1, 16>;
  if (lines == 1 && length == 24) return run_short_sums<1, 24>;
  if (lines == 3 && length == 3) return run_short_sums<3, 3>;  // windows of 3 x 3 over one channel
  if (lines == 3 && length == 9) return run_short_sums<3, 9>;  // and over three
  return nullptr;
}
#else
ShortSumsFunction short_sums_for(int64_t, int64_t) { return nullptr; }
#endif

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
HWY_EXPORT(short_sums_for);

ShortSumsFunction short_sums_function(int64_t lines, int64_t length) {
  return HWY_DYNAMIC_DISPATCH(short_sums_for)(lines, length);
}

ShortProduct short_product(int64_t lines, int64_t length, int64_t columns, const TileEpilogue& epilogue,
                           const device::Tuning& tuning) {
  ShortProduct product;
  if (columns % tuning.get("simd.lanes", 8) == 0 && is_range(epilogue, &product.range))
    product.run = short_sums_function(lines, length);
  return product;
}

void multiply_short(const ShortProduct& product, const PanelSet& set, int64_t panel0, int64_t panel1, ShortSums sums,
                    float* y, int64_t y_pitch) {
  sums.b_step = set.b_step;
  sums.y_pitch = y_pitch;
  sums.range = product.range;
  for (int64_t panel = panel0; panel < panel1; ++panel) {
    const int64_t col = panel * set.tn;
    sums.b = set.b + panel * set.panel_stride;
    sums.columns = std::min(set.tn, set.n - col);
    sums.y = y + col;
    if (product.range.bias) sums.range.bias = product.range.bias + col;
    product.run(sums);
  }
}

}  // namespace situ::cpu
#endif
