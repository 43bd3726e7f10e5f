#include "backend/cpu/paired.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/paired.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <algorithm>

#include "backend/cpu/simd-inl.h"
#include "backend/cpu/turn.h"
#include "base/error.h"

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
    const auto row = [&](int64_t r) HWY_ATTR { return hn::LoadU(d, from + r * step + j); };
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
// Eight lanes whose values lie in columns: blocks of 8 x 8 are turned over in registers.
HWY_INLINE void turn_eight(const PairedPanel& p) {
  using D = hn::FixedTag<float, 8>;
  const D d;
  const hn::Repartition<double, D> dd;
  float* const to = p.to + 2 * p.width;
  auto some = hn::Zero(d), others = hn::Zero(d);
  int64_t k = 0;
  for (; k + 8 <= p.terms; k += 8) {
    const float* from = p.from + k;
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
    for (int64_t i = 0; i < 8; ++i) values[i] = p.from[i * p.lane_step + k];
    some = put_row(d, hn::Load(d, values), to + k * p.width, some);
  }
  finish_lanes(d, to, p.width, p.terms, hn::Add(some, others));
}
#endif

void pack_panel(const PairedPanel& p) {
  const hn::CappedTag<float, kPairedRows> narrow;
  const float* from = p.from;
  int64_t step = p.term_step;
  if (p.lane_step != 1) {
#if SITU_EIGHT_LANES
    if (p.width == 8 && p.lanes == 8) return turn_eight(p);
#endif
    float* to = p.to + 2 * p.width;
    turn_function()(p.from, p.lane_step, p.lanes, p.terms, to, p.width);
    from = to;
    step = p.width;
  }
  if (p.width < lanes()) {
    for (int64_t j = 0; j < p.width; j += static_cast<int64_t>(hn::Lanes(narrow))) pack_lanes(narrow, p, from, step, j);
  } else {
    for (int64_t j = 0; j < p.width; j += lanes()) pack_lanes(Tag(), p, from, step, j);
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

PairedTerms::PairedTerms(int64_t terms) : k(terms) {
  blocks = std::max<int64_t>(1, ceil_div(terms, kMostPairedTerms));
  block = round_up(ceil_div(terms, blocks), kPairedStep);
  blocks = std::max<int64_t>(1, ceil_div(terms, std::max<int64_t>(block, 1)));
}

PackPaired pack_paired_function() { return &HWY_DYNAMIC_DISPATCH(pack_panel); }

PairedProduct paired_product(const Operand& panels, int64_t k, int64_t n, const Operand& y,
                             const device::Tuning& tuning) {
  PairedProduct p;
  p.terms = PairedTerms(k);
  p.pack = pack_paired_function();
  p.width = paired_width(tuning);
  p.n = n;
  SITU_ASSERT(panels.rows() == p.panels() * p.terms.rows() && panels.pitch == p.width);
  const int64_t lanes = p.width / 2, last = n - (p.panels() - 1) * p.width;
  p.tile = paired_tile_function(2);
  p.last_tile = paired_tile_function(ceil_div(last, lanes));
  p.b = panels.f32();
  p.y = y.f32();
  p.y_pitch = y.pitch;
  return p;
}

namespace {

void pack_rows(const PairedProduct& p, const PairedRows& r, int64_t block) {
  const int64_t term = block * p.terms.block;
  for (int64_t i = 0; i < r.m; i += kPairedRows)
    p.pack({.from = r.a + i * r.a_row + term * r.a_step,
            .term_step = r.a_step,
            .lane_step = r.a_row,
            .terms = p.terms.length(block),
            .lanes = std::min<int64_t>(kPairedRows, r.m - i),
            .width = kPairedRows,
            .to = r.scratch + i * (p.terms.block + 2)});
}

void multiply_panel(const PairedProduct& p, const PairedRows& r, int64_t block, int64_t panel) {
  const bool full = (panel + 1) * p.width <= p.n, last = block + 1 == p.terms.blocks;
  const TileFunction tile = full ? p.tile : p.last_tile;
  const TileSegment segment{p.terms.first_row(block) * p.width, p.terms.padded(block)};
  const float* a = nullptr;
  int64_t rows[kPairedRows];
  Tile t{.a = &a,
         .segments = &segment,
         .count = 1,
         .b = p.b + panel * p.terms.rows() * p.width,
         .b_step = p.width,
         .y = p.y,
         .y_pitch = p.y_pitch,
         .rows = rows,
         .col = panel * p.width,
         .n = std::min(p.width, p.n - panel * p.width),
         .accumulate = block > 0,
         .epilogue = last && p.epilogue.count ? &p.epilogue : nullptr};
  for (int64_t i0 = 0; i0 < r.m; i0 += kPairedRows) {
    t.m = std::min<int64_t>(kPairedRows, r.m - i0);
    a = r.scratch + i0 * (p.terms.block + 2);
    for (int64_t i = 0; i < kPairedRows; ++i) rows[i] = r.first_row + (i0 + std::min(i, t.m - 1)) * r.row_step;
    tile(t);
  }
}

}  // namespace

void multiply_paired(const PairedProduct& p, const PairedRows& r) {
  for (int64_t block = 0; block < p.terms.blocks; ++block) {
    pack_rows(p, r, block);
    for (int64_t panel = r.panel0; panel < r.panel1; ++panel) multiply_panel(p, r, block, panel);
  }
}

}  // namespace situ::cpu
#endif
