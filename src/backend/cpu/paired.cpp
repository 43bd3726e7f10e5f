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

PairedTerms::PairedTerms(int64_t terms) : k(terms) {
  blocks = std::max<int64_t>(1, ceil_div(terms, kMostPairedTerms));
  block = round_up(ceil_div(terms, blocks), kPairedStep);
  blocks = std::max<int64_t>(1, ceil_div(terms, std::max<int64_t>(block, 1)));
}

PackPaired pack_paired_function() { return &HWY_DYNAMIC_DISPATCH(pack_panel); }

PairedProduct paired_product(int64_t k, int64_t n, const Operand& y, const device::Tuning& tuning) {
  PairedProduct p;
  p.terms = PairedTerms(k);
  p.pack = pack_paired_function();
  p.width = paired_width(tuning);
  p.n = n;
  const int64_t lanes = p.width / 2, last = n - (p.panels() - 1) * p.width;
  p.tile = paired_tile_function(2);
  p.last_tile = paired_tile_function(ceil_div(last, lanes));
  p.y = y.f32();
  p.y_pitch = y.pitch;
  return p;
}
PairedProduct paired_product(const Operand& panels, int64_t k, int64_t n, const Operand& y,
                             const device::Tuning& tuning) {
  PairedProduct p = paired_product(k, n, y, tuning);
  SITU_ASSERT(panels.rows() == p.panels() * p.terms.rows() && panels.pitch == p.width);
  p.b = panels.f32();
  return p;
}

void pack_paired_rows(const PairedProduct& p, const PairedRows& r, int64_t block) {
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

namespace {

constexpr int64_t kLine = 16, kNear = 2;  // floats of a line; into the second-level cache

// A tile's operands that stay the same while the rows of a panel pass: block `block` of columns from `col` on.
struct PanelBlock {
  TileSegment segment;
  const float* a = nullptr;
  int64_t rows[kPairedRows];
  Tile t;
  TileFunction tile;
  PanelBlock(const PairedProduct& p, int64_t block, int64_t col, const float* b)
      : segment{0, p.terms.padded(block)}, tile(col + p.width <= p.n ? p.tile : p.last_tile) {
    t = {.a = &a,
         .segments = &segment,
         .count = 1,
         .b = b,
         .b_step = p.width,
         .y = p.y,
         .y_pitch = p.y_pitch,
         .rows = rows,
         .col = col,
         .n = std::min(p.width, p.n - col),
         .accumulate = block > 0,
         .epilogue = block + 1 == p.terms.blocks && p.epilogue.count ? &p.epilogue : nullptr};
  }
  // Panels come from far memory, and the first rows that meet one would wait for it: while rows meet this one, a share
  // of the next, at `next`, is asked for with each of their tiles.
  const float* next = nullptr;
  int64_t next_floats = 0, share = 0;
  void ask_for(const float* panel, int64_t floats, int64_t m) {
    next = panel;
    next_floats = floats;
    share = round_up(ceil_div(floats, ceil_div(m, kPairedRows)), kLine);
  }
  PanelBlock(const PanelBlock&) = delete;
  PanelBlock& operator=(const PanelBlock&) = delete;
  // The rows whose panel lies at `panel`; m of them exist.
  void run(const float* panel, int64_t first_row, int64_t row_step, int64_t m) {
    for (int64_t i = 0; i < std::min(share, next_floats); i += kLine) __builtin_prefetch(next + i, 0, kNear);
    next += share;
    next_floats -= share;
    a = panel;
    t.m = m;
    for (int64_t i = 0; i < kPairedRows; ++i) rows[i] = first_row + std::min(i, m - 1) * row_step;
    tile(t);
  }
};

}  // namespace

void multiply_paired(const PairedProduct& p, const PairedRows& r) {
  for (int64_t block = 0; block < p.terms.blocks; ++block) {
    pack_paired_rows(p, r, block);
    for (int64_t panel = r.panel0; panel < r.panel1; ++panel) {
      const float* b = p.b + (panel * p.terms.rows() + p.terms.first_row(block)) * p.width;
      PanelBlock run(p, block, panel * p.width, b);
      if (panel + 1 < r.panel1) run.ask_for(b + p.terms.rows() * p.width, (p.terms.padded(block) + 2) * p.width, r.m);
      for (int64_t i = 0; i < r.m; i += kPairedRows)
        run.run(r.scratch + i * (p.terms.block + 2), r.first_row + i * r.row_step, r.row_step,
                std::min<int64_t>(kPairedRows, r.m - i));
    }
  }
}

void multiply_paired(const PairedProduct& p, const PackedRows& r) {
  SITU_ASSERT(p.terms.blocks == 1);
  for (int64_t panel = r.panel0; panel < r.panel1; ++panel) {
    const float* b = p.b + panel * p.terms.rows() * p.width;
    PanelBlock run(p, 0, panel * p.width, b);
    if (panel + 1 < p.panels()) run.ask_for(b + p.terms.rows() * p.width, p.terms.rows() * p.width, r.m);
    for (int64_t i = 0; i < r.m; i += kPairedRows)
      run.run(r.a + i * (p.terms.block + 2), r.first_row + i, 1, std::min<int64_t>(kPairedRows, r.m - i));
  }
}

void multiply_paired(const PairedProduct& p, const PairedColumns& c) {
  for (int64_t panel = c.panel0; panel < c.panel1; ++panel)
    for (int64_t block = 0; block < p.terms.blocks; ++block) {
      const int64_t col = panel * p.width;
      p.pack({.from = c.b + block * p.terms.block * c.b_step + col * c.b_column,
              .term_step = c.b_step,
              .lane_step = c.b_column,
              .terms = p.terms.length(block),
              .lanes = std::min(p.width, p.n - col),
              .width = p.width,
              .to = c.scratch,
              .ahead = panel + 1 < c.panel1 ? p.width * c.b_column : 0});
      PanelBlock run(p, block, col, c.scratch);
      for (int64_t i = 0; i < c.m; i += kPairedRows)
        run.run(c.a + (i / kPairedRows * p.terms.rows() + p.terms.first_row(block)) * kPairedRows, i, 1,
                std::min<int64_t>(kPairedRows, c.m - i));
    }
}

}  // namespace situ::cpu
#endif
