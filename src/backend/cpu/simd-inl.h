// simd-inl.h -- what the kernels need beside Highway's own operations: vectors cut off at the end of a row, and sums.
//
// Included once per instruction set (Highway's toggling guard). Partial loads and stores touch exactly n elements: a
// kernel neither reads nor writes beyond its operands, not even within the slab.
#if defined(SITU_BACKEND_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SITU_BACKEND_CPU_SIMD_INL_H_
#undef SITU_BACKEND_CPU_SIMD_INL_H_
#else
#define SITU_BACKEND_CPU_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::ScalableTag<float>;
using IntTag = hn::ScalableTag<int32_t>;
using Floats = hn::Vec<Tag>;
using Ints = hn::Vec<IntTag>;

// Whether MaskedLoad leaves masked-off memory alone; elsewhere it loads everything and blends.
#undef SITU_MASKED_LOAD
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_HAVE_SCALABLE
#define SITU_MASKED_LOAD 1
#else
#define SITU_MASKED_LOAD 0
#endif

// Sixteen vector registers, where others have thirty-two.
#undef SITU_FEW_REGISTERS
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSE2 || HWY_TARGET == HWY_SCALAR
#define SITU_FEW_REGISTERS 1
#else
#define SITU_FEW_REGISTERS 0
#endif

HWY_INLINE int64_t lanes() { return static_cast<int64_t>(hn::Lanes(Tag())); }

// Copies n < 2 * SIZE words in a few moves; memcpy with a variable length would be a call.
template <size_t SIZE>
HWY_INLINE void copy_words(const float* from, float* to, size_t n) {
  if (n & SIZE) {
    std::memcpy(to, from, SIZE * sizeof(float));
    from += SIZE;
    to += SIZE;
  }
  if constexpr (SIZE > 1) copy_words<SIZE / 2>(from, to, n);
}

// The first n elements of p, 0 < n < lanes; zeros above.
HWY_INLINE Floats load_part(const float* p, int64_t n) {
  const Tag d;
#if SITU_MASKED_LOAD
  return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(n)), d, p);
#else
  HWY_ALIGN float buffer[hn::MaxLanes(d)] = {};
  if constexpr (hn::MaxLanes(d) > 1) copy_words<hn::MaxLanes(d) / 2>(p, buffer, static_cast<size_t>(n));
  return hn::Load(d, buffer);
#endif
}

HWY_INLINE void store_part(Floats v, float* p, int64_t n) {
  const Tag d;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_HAVE_SCALABLE
  hn::BlendedStore(v, hn::FirstN(d, static_cast<size_t>(n)), d, p);
#else  // AVX2 has a masked store, but it takes a dozen cycles on some processors
  HWY_ALIGN float buffer[hn::MaxLanes(d)];
  hn::Store(v, d, buffer);
  if constexpr (hn::MaxLanes(d) > 1) copy_words<hn::MaxLanes(d) / 2>(buffer, p, static_cast<size_t>(n));
#endif
}

// Either of the two, for loops whose last turn is short.
HWY_INLINE Floats load_up_to(const float* p, int64_t n) { return n >= lanes() ? hn::LoadU(Tag(), p) : load_part(p, n); }
HWY_INLINE void store_up_to(Floats v, float* p, int64_t n) {
  if (n >= lanes())
    hn::StoreU(v, Tag(), p);
  else
    store_part(v, p, n);
}

// The same where the caller knows which: WHOLE vectors, or parts of n.
template <bool WHOLE>
HWY_INLINE Floats load_up_to(const float* p, int64_t n) {
  return WHOLE ? hn::LoadU(Tag(), p) : load_part(p, n);
}
template <bool WHOLE>
HWY_INLINE void store_up_to(Floats v, float* p, int64_t n) {
  if constexpr (WHOLE)
    hn::StoreU(v, Tag(), p);
  else
    store_part(v, p, n);
}

HWY_INLINE Floats fill(float value) { return hn::Set(Tag(), value); }
// A loaded vector that several products share: told nothing, GCC may load it again for each of them, which takes longer
// than the products.
HWY_INLINE Floats kept(Floats v) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR
  asm("" : "+v"(v.raw));
#endif
  return v;
}
// b + *a, b - *a and c + b * *a in every lane, where *a is read by the operation itself. Compilers load a value that
// two operations take once, but a processor may have the units to read it twice and none to spare for a load.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
HWY_INLINE Floats plus_value(Floats b, const float* a) {
  Floats sum;
  asm("vaddps %2%{1to16%}, %1, %0" : "=v"(sum.raw) : "v"(b.raw), "m"(*a));
  return sum;
}
HWY_INLINE Floats minus_value(Floats b, const float* a) {
  Floats difference;
  asm("vsubps %2%{1to16%}, %1, %0" : "=v"(difference.raw) : "v"(b.raw), "m"(*a));
  return difference;
}
HWY_INLINE Floats plus_product(Floats b, const float* a, Floats c) {
  asm("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(c.raw) : "v"(b.raw), "m"(*a));
  return c;
}
#else
HWY_INLINE Floats plus_value(Floats b, const float* a) { return hn::Add(b, fill(*a)); }
HWY_INLINE Floats minus_value(Floats b, const float* a) { return hn::Sub(b, fill(*a)); }
HWY_INLINE Floats plus_product(Floats b, const float* a, Floats c) { return hn::MulAdd(b, fill(*a), c); }
#endif
HWY_INLINE Floats zeros() { return hn::Zero(Tag()); }
HWY_INLINE float sum_lanes(Floats v) { return hn::GetLane(hn::SumOfLanes(Tag(), v)); }
HWY_INLINE float max_lanes(Floats v) { return hn::GetLane(hn::MaxOfLanes(Tag(), v)); }
// A NaN in x stays one. x86's maximum returns its second operand then, Arm's and the scalar one the number.
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR
HWY_INLINE Floats at_least(Floats low, Floats x) { return hn::Max(low, x); }
HWY_INLINE Floats at_most(Floats high, Floats x) { return hn::Min(high, x); }
#else
HWY_INLINE Floats at_least(Floats low, Floats x) { return hn::IfThenElse(hn::Lt(x, low), low, x); }
HWY_INLINE Floats at_most(Floats high, Floats x) { return hn::IfThenElse(hn::Gt(x, high), high, x); }
#endif
HWY_INLINE Floats relu_of(Floats x) { return at_least(zeros(), x); }
// v where 0 < x < 6, else 0: the gradient of relu6.
HWY_INLINE Floats inside_six(Floats x, Floats v) {
  return hn::IfThenElseZero(hn::And(hn::Gt(x, zeros()), hn::Lt(x, fill(6.0f))), v);
}
HWY_INLINE Floats relu6_of(Floats x) { return at_most(fill(6.0f), relu_of(x)); }

#if HWY_TARGET != HWY_SCALAR
// to[k][j] = from[j][k] for a block of 4 x 4.
HWY_INLINE void transpose_4x4(const float* from, int64_t pitch, float* to, int64_t to_pitch) {
  const hn::FixedTag<float, 4> d;
  const hn::Repartition<double, decltype(d)> dd;
  const auto r0 = hn::LoadU(d, from), r1 = hn::LoadU(d, from + pitch);
  const auto r2 = hn::LoadU(d, from + 2 * pitch), r3 = hn::LoadU(d, from + 3 * pitch);
  const auto a = hn::BitCast(dd, hn::InterleaveLower(d, r0, r1)), b = hn::BitCast(dd, hn::InterleaveLower(d, r2, r3));
  const auto e = hn::BitCast(dd, hn::InterleaveUpper(d, r0, r1)), f = hn::BitCast(dd, hn::InterleaveUpper(d, r2, r3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, a, b)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, a, b)), d, to + to_pitch);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, e, f)), d, to + 2 * to_pitch);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, e, f)), d, to + 3 * to_pitch);
}

// The same for a block of 2 x 4: four pairs.
HWY_INLINE void transpose_2x4(const float* from, int64_t pitch, float* to, int64_t to_pitch) {
  const hn::FixedTag<float, 4> d;
  const hn::FixedTag<float, 2> pair;
  const auto r0 = hn::LoadU(d, from), r1 = hn::LoadU(d, from + pitch);
  const auto a = hn::InterleaveLower(d, r0, r1), b = hn::InterleaveUpper(d, r0, r1);
  hn::StoreU(hn::LowerHalf(pair, a), pair, to);
  hn::StoreU(hn::UpperHalf(pair, a), pair, to + to_pitch);
  hn::StoreU(hn::LowerHalf(pair, b), pair, to + 2 * to_pitch);
  hn::StoreU(hn::UpperHalf(pair, b), pair, to + 3 * to_pitch);
}
#endif

}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SITU_BACKEND_CPU_SIMD_INL_H_
