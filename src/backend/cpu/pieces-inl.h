// pieces-inl.h -- floats taken apart (pieces.h), sixteen at a time or as many as a vector has.
#if defined(SITU_BACKEND_CPU_PIECES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SITU_BACKEND_CPU_PIECES_INL_H_
#undef SITU_BACKEND_CPU_PIECES_INL_H_
#else
#define SITU_BACKEND_CPU_PIECES_INL_H_
#endif

#include <algorithm>

#include "backend/cpu/pieces.h"
#include "backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {

using LineTag = hn::CappedTag<float, kPieceLanes>;  // at most a row of a tile
using WordTag = hn::RebindToUnsigned<LineTag>;
using Line = hn::Vec<LineTag>;
using Words = hn::Vec<WordTag>;

// x rounded to the nearest bfloat16, ties away from zero; its lower half is zero.
HWY_INLINE Words rounded(Line x) {
  const WordTag d;
  return hn::And(hn::Add(hn::BitCast(d, x), hn::Set(d, 0x8000u)), hn::Set(d, 0xFFFF0000u));
}
HWY_INLINE Line without(Line x, Words piece) { return hn::Sub(x, hn::BitCast(LineTag(), piece)); }

// One word of two pieces. The lower half of `upper` is zero.
HWY_INLINE Words joined(Words lower, Words upper) { return hn::Or(hn::ShiftRight<16>(lower), upper); }
HWY_INLINE void store_words(Words words, float* to) { hn::StoreU(hn::BitCast(LineTag(), words), LineTag(), to); }

// The three pieces of a line. The last is not cut off: eight bits are left of it, or nine zeros.
HWY_INLINE void take_apart(Line x, Words& first, Words& second, Words& third) {
  first = rounded(x);
  const Line rest = without(x, first);
  second = rounded(rest);
  third = hn::BitCast(WordTag(), without(rest, second));
}
HWY_INLINE Words cut_off(Words piece) { return hn::And(piece, hn::Set(WordTag(), 0xFFFF0000u)); }

// Sixteen values, of which the first n exist, or all.
template <bool WHOLE>
HWY_INLINE Line load_line(const float* p, [[maybe_unused]] int64_t n) {
  const LineTag d;
#if SITU_MASKED_LOAD
  if constexpr (!WHOLE) return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(std::max<int64_t>(n, 0))), d, p);
#endif
  return hn::LoadU(d, p);
}

}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
