#include "backend/cpu/paired_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/paired_rows.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <algorithm>

#include "backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

// Other processors gain nothing by pairs, and vectors of unknown length fit no array.
#undef SITU_PAIRED_ROWS
#define SITU_PAIRED_ROWS (HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL)
#if SITU_PAIRED_ROWS
constexpr int kRows = kPairedRows, kVectors = 2;
constexpr int kNear = 2;                // into the second-level cache
constexpr int64_t kLine = 16;           // floats
constexpr int64_t kLanes = 16;          // of these targets
constexpr int64_t kWidth = 2 * kLanes;  // of a panel

// One pair of terms and a plain one for all rows, or its negative.
template <bool PLUS>
HWY_INLINE void three_terms(const float* a, const float* b, Floats (&c)[kRows][kVectors]) {
#pragma GCC unroll 2
  for (int j = 0; j < kVectors; ++j) {
    const float* const at = b + j * kLanes;
    const Floats b1 = kept(hn::LoadU(Tag(), at)), b2 = kept(hn::LoadU(Tag(), at + kWidth)),
                 b3 = kept(hn::LoadU(Tag(), at + 2 * kWidth));
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      c[i][j] = plus_product(b3, a + 2 * kRows + i, c[i][j]);
      if constexpr (PLUS)
        c[i][j] = hn::MulAdd(plus_value(b2, a + i), plus_value(b1, a + kRows + i), c[i][j]);
      else
        c[i][j] = hn::NegMulAdd(minus_value(b2, a + i), minus_value(b1, a + kRows + i), c[i][j]);
    }
  }
}

void run_paired_rows(const PairedRows& p) {
  const Tag d;
  const float *a0 = p.a, *ahead = p.ahead, *residual = p.residual;
  float* y = p.y;
  for (int64_t tile = 0; tile < p.tiles; ++tile, a0 += p.a_stride) {
    Floats c[kRows][kVectors];
    const float *a = a0, *b = p.b;
#pragma GCC unroll 2
    for (int j = 0; j < kVectors; ++j) {
      const Floats own = hn::LoadU(d, b + j * kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) c[i][j] = plus_value(own, a + i);
    }
    a += 2 * kRows;
    b += 2 * kWidth;
    for (int64_t k = 0; k < p.terms; k += kPairedStep, a += kPairedStep * kRows, b += kPairedStep * kWidth) {
      for (int64_t line = 0; line < p.ahead_lines; ++line, ahead += kLine) __builtin_prefetch(ahead, 0, kNear);
      three_terms<true>(a, b, c);
      three_terms<false>(a + 3 * kRows, b + 3 * kWidth, c);
    }
    const float* const scales = a0 + kRows;
    const Floats low = fill(p.low), high = fill(p.high);
#pragma GCC unroll 2
    for (int j = 0; j < kVectors; ++j) {
      const Floats scale = hn::LoadU(d, p.b + kWidth + j * kLanes);
      const Floats begin = p.bias ? hn::LoadU(d, p.bias + j * kLanes) : zeros();
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) c[i][j] = hn::MulAdd(hn::Mul(c[i][j], fill(scales[i])), scale, begin);
    }
    const auto add = [&](const float* from, int64_t row) HWY_ATTR {
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i, from += row) {
        c[i][0] = hn::Add(c[i][0], hn::LoadU(d, from));
        c[i][1] = hn::Add(c[i][1], hn::LoadU(d, from + kLanes));
      }
    };
    if (p.accumulate) add(y, p.y_row);
    if (residual) {
      add(residual, p.residual_row);
      residual += kRows * p.residual_row;
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i, y += p.y_row) {
      hn::StoreU(at_most(high, at_least(low, c[i][0])), d, y);
      hn::StoreU(at_most(high, at_least(low, c[i][1])), d, y + kLanes);
    }
  }
}
PairedRowsFunction paired_rows() { return run_paired_rows; }
#else
PairedRowsFunction paired_rows() { return nullptr; }
#endif

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
HWY_EXPORT(paired_rows);

PairedRowsFunction paired_rows_function() { return HWY_DYNAMIC_DISPATCH(paired_rows)(); }

bool take_epilogue(const TileEpilogue& epilogue, PairedRows* rows) {
  // In this order, each once or not at all: bias, residual, relu or relu6.
  TileEpilogue others = epilogue;
  for (int e = 0; e < epilogue.count; ++e) {
    const TileEpilogue::Word& word = epilogue.words[static_cast<size_t>(e)];
    if (word.kind != ops::Epilogue::residual) continue;
    if (e > 1 || (e == 1 && epilogue.words[0].kind != ops::Epilogue::bias)) return false;
    if (e + 1 < epilogue.count && epilogue.words[static_cast<size_t>(e) + 1].kind == ops::Epilogue::bias) return false;
    rows->residual = word.operand;
    rows->residual_row = word.pitch;
    std::copy(others.words.begin() + e + 1, others.words.begin() + others.count--, others.words.begin() + e);
    break;  // a second one is none of a range
  }
  SumRange range;
  if (!is_range(others, &range)) return false;
  rows->bias = range.bias;
  rows->low = range.low;
  rows->high = range.high;
  return true;
}

}  // namespace situ::cpu
#endif
