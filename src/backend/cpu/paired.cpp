#include "backend/cpu/paired.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/paired.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <algorithm>

#include "backend/cpu/simd-inl.h"
#include "backend/cpu/tile.h"
#include "backend/cpu/turn.h"

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

// The power of two at or below x > 0, as far as it and its inverse are ordinary numbers.
template <class D>
HWY_INLINE hn::Vec<D> power_below(D d, hn::Vec<D> x) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::And(hn::BitCast(du, x), hn::Set(du, 0x7F800000u));
  return hn::BitCast(d, hn::Min(hn::Max(bits, hn::Set(du, 1u << 23)), hn::Set(du, 253u << 23)));
}
template <class D>
HWY_INLINE hn::Vec<D> inverse_power(D d, hn::Vec<D> power) {
  const hn::RebindToUnsigned<D> du;
  return hn::BitCast(d, hn::Sub(hn::Set(du, 254u << 23), hn::BitCast(du, power)));
}

constexpr int kNear = 2;  // into the second-level cache

// Stores a row of a panel; returns the sums of absolute values so far.
template <class D>
HWY_INLINE hn::Vec<D> put_row(D d, hn::Vec<D> v, float* to, hn::Vec<D> sizes) {
  hn::StoreU(v, d, to);
  return hn::Add(sizes, hn::Abs(v));
}

// Scales lanes whose terms begin at `to`, adds up their own sums and fills the last pattern with zeros.
template <class D>
HWY_INLINE void finish_lanes(D d, float* to, int64_t width, int64_t terms, hn::Vec<D> sizes) {
  const int64_t rows = round_up(terms, kPairedStep);
  const auto power = power_below(d, hn::Mul(sizes, hn::Set(d, 1.0f / static_cast<float>(terms)))),
             inverse = inverse_power(d, power);
  for (int64_t row = terms; row < rows; ++row) hn::StoreU(hn::Zero(d), d, to + row * width);
  auto plus = hn::Zero(d), minus = hn::Zero(d);
  for (float* row = to; row < to + rows * width; row += kPairedStep * width) {
    const auto scaled = [&](int64_t i) HWY_ATTR {
      const auto v = hn::Mul(hn::LoadU(d, row + i * width), inverse);
      hn::StoreU(v, d, row + i * width);
      return v;
    };
    const auto a1 = scaled(0), a2 = scaled(1);
    scaled(2);
    const auto a3 = scaled(3), a4 = scaled(4);
    scaled(5);
    plus = hn::MulAdd(a1, a2, plus);
    minus = hn::MulAdd(a3, a4, minus);
  }
  hn::StoreU(hn::Sub(minus, plus), d, to - 2 * width);
  hn::StoreU(hn::IfThenZeroElse(hn::Eq(sizes, hn::Zero(d)), power), d, to - width);  // zeros stay zeros
}

// Lanes [j, j + Lanes(d)) whose values lie in rows.
template <class D>
HWY_INLINE void pack_lanes(D d, const PairedPanel& p, const float* from, int64_t step, int64_t j) {
  const int64_t n = p.lanes - j;
  float* const to = p.to + 2 * p.width + j;
  auto some = hn::Zero(d), others = hn::Zero(d);
  if (n >= static_cast<int64_t>(hn::Lanes(d))) {
    const auto row = [&](int64_t r) HWY_ATTR {
      if (p.ahead) __builtin_prefetch(from + r * step + j + p.ahead, 0, kNear);
      return hn::LoadU(d, from + r * step + j);
    };
    int64_t r = 0;
    for (; r + 1 < p.terms; r += 2) {
      some = put_row(d, row(r), to + r * p.width, some);
      others = put_row(d, row(r + 1), to + (r + 1) * p.width, others);
    }
    if (r < p.terms) some = put_row(d, row(r), to + r * p.width, some);
  } else {
    for (int64_t r = 0; r < p.terms; ++r) {
      HWY_ALIGN float part[hn::MaxLanes(d)] = {};
      for (int64_t i = 0; i < n; ++i) part[i] = from[r * step + j + i];
      some = put_row(d, hn::Load(d, part), to + r * p.width, some);
    }
  }
  finish_lanes(d, to, p.width, p.terms, hn::Add(some, others));
}

#undef SITU_EIGHT_LANES
#define SITU_EIGHT_LANES (HWY_MAX_BYTES >= 32 && !HWY_HAVE_SCALABLE)
#if SITU_EIGHT_LANES
// Lanes [j, j + 8) whose values lie in columns: blocks of 8 x 8 are turned over in registers.
HWY_INLINE void turn_eight(const PairedPanel& p, int64_t j) {
  using D = hn::FixedTag<float, 8>;
  const D d;
  const hn::Repartition<double, D> dd;
  float* const to = p.to + 2 * p.width + j;
  auto some = hn::Zero(d), others = hn::Zero(d);
  int64_t k = 0;
  for (; k + 8 <= p.terms; k += 8) {
    const float* from = p.from + j * p.lane_step + k;
    if (p.ahead)
      for (int64_t i = 0; i < 8; ++i) __builtin_prefetch(from + i * p.lane_step + p.ahead, 0, kNear);
    const auto r0 = hn::LoadU(d, from), r1 = hn::LoadU(d, from + p.lane_step);
    const auto r2 = hn::LoadU(d, from + 2 * p.lane_step), r3 = hn::LoadU(d, from + 3 * p.lane_step);
    const auto r4 = hn::LoadU(d, from + 4 * p.lane_step), r5 = hn::LoadU(d, from + 5 * p.lane_step);
    const auto r6 = hn::LoadU(d, from + 6 * p.lane_step), r7 = hn::LoadU(d, from + 7 * p.lane_step);
    const auto pairs = [&](bool upper, auto a, auto b) HWY_ATTR {
      return hn::BitCast(dd, upper ? hn::InterleaveUpper(d, a, b) : hn::InterleaveLower(d, a, b));
    };
    const auto put = [&](int64_t row, auto low, auto high) HWY_ATTR {  // terms `row` and `row + 4`
      const auto a = hn::BitCast(d, low), b = hn::BitCast(d, high);
      some = put_row(d, hn::ConcatLowerLower(d, b, a), to + (k + row) * p.width, some);
      others = put_row(d, hn::ConcatUpperUpper(d, b, a), to + (k + row + 4) * p.width, others);
    };
    const auto four = [&](bool upper, int64_t row) HWY_ATTR {
      const auto a = pairs(upper, r0, r1), b = pairs(upper, r2, r3), c = pairs(upper, r4, r5), e = pairs(upper, r6, r7);
      put(row, hn::InterleaveLower(dd, a, b), hn::InterleaveLower(dd, c, e));
      put(row + 1, hn::InterleaveUpper(dd, a, b), hn::InterleaveUpper(dd, c, e));
    };
    four(false, 0);
    four(true, 2);
  }
  for (; k < p.terms; ++k) {
    HWY_ALIGN float values[8];
    for (int64_t i = 0; i < 8; ++i) values[i] = p.from[(j + i) * p.lane_step + k];
    some = put_row(d, hn::Load(d, values), to + k * p.width, some);
  }
  finish_lanes(d, to, p.width, p.terms, hn::Add(some, others));
}
#endif

// Lanes [j, end), at most eight, whose values lie in columns: turned over into the panel, then packed in place.
void pack_columns(const PairedPanel& p, int64_t j, int64_t end) {
#if SITU_EIGHT_LANES
  if (p.lanes - j >= 8 && end - j == 8) return turn_eight(p, j);
#endif
  const hn::CappedTag<float, kPairedRows> narrow;
  float* const to = p.to + 2 * p.width;
  const int64_t there = std::min(end, p.lanes) - j;
  if (there > 0) turn_function()(p.from + j * p.lane_step, p.lane_step, there, p.terms, to + j, p.width);
  for (int64_t i = j; i < end; i += static_cast<int64_t>(hn::Lanes(narrow))) pack_lanes(narrow, p, to, p.width, i);
}

void pack_panel(const PairedPanel& p) {
  const hn::CappedTag<float, kPairedRows> narrow;
  if (p.lane_step != 1) {
    for (int64_t j = 0; j < p.width; j += kPairedRows) pack_columns(p, j, std::min<int64_t>(j + kPairedRows, p.width));
  } else if (p.width < lanes()) {
    for (int64_t j = 0; j < p.width; j += static_cast<int64_t>(hn::Lanes(narrow)))
      pack_lanes(narrow, p, p.from, p.term_step, j);
  } else {
    for (int64_t j = 0; j < p.width; j += lanes()) pack_lanes(Tag(), p, p.from, p.term_step, j);
  }
}

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(pack_panel);
}  // namespace

PackPaired pack_paired_function() { return &HWY_DYNAMIC_DISPATCH(pack_panel); }

}  // namespace situ::cpu
#endif
