// winograd.cpp -- products of points: on the register tile, or, where sixteen terms meet one vector of columns, with
// all of b in registers while the rows pass.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/winograd.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include "backend/cpu/simd-inl.h"
#include "backend/cpu/winograd.h"

#ifndef SITU_BACKEND_CPU_WINOGRAD_POINTS_ONCE_
#define SITU_BACKEND_CPU_WINOGRAD_POINTS_ONCE_
namespace situ::cpu {
namespace {
constexpr int64_t kThinTerms = 16;
struct ThinProduct {
  int64_t m = 0;
  const float* a = nullptr;
  int64_t a_row = 0;
  const float* b = nullptr;
  int64_t b_step = 0;
  float* y = nullptr;
  int64_t y_pitch = 0;
  bool accumulate = false;
};
}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

// One vector of columns, and registers that hold sixteen vectors of b and the sums.
bool is_thin(int64_t columns) { return columns == lanes() && lanes() >= 16; }

#define SITU_TERMS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define SITU_LOAD_B(k) const Floats b##k = hn::LoadU(d, t.b + k * t.b_step);
#define SITU_ADD_TERM(k)                    \
  c0 = hn::MulAdd(fill(a0[k]), b##k, c0);   \
  if constexpr (ROWS > 1) {                 \
    c1 = hn::MulAdd(fill(a1[k]), b##k, c1); \
    c2 = hn::MulAdd(fill(a2[k]), b##k, c2); \
    c3 = hn::MulAdd(fill(a3[k]), b##k, c3); \
  }
void multiply_thin(const ThinProduct& t) {
  const Tag d;
  SITU_TERMS(SITU_LOAD_B)
  const auto finish = [&](Floats c, int64_t row) HWY_ATTR {
    float* y = t.y + row * t.y_pitch;
    hn::StoreU(t.accumulate ? hn::Add(c, hn::LoadU(d, y)) : c, d, y);
  };
  int64_t row = 0;
  for (; row + 4 <= t.m; row += 4) {
    constexpr int ROWS = 4;
    const float *a0 = t.a + row * t.a_row, *a1 = a0 + t.a_row, *a2 = a1 + t.a_row, *a3 = a2 + t.a_row;
    Floats c0 = zeros(), c1 = zeros(), c2 = zeros(), c3 = zeros();
    SITU_TERMS(SITU_ADD_TERM)
    finish(c0, row);
    finish(c1, row + 1);
    finish(c2, row + 2);
    finish(c3, row + 3);
  }
  for (; row < t.m; ++row) {
    constexpr int ROWS = 1;
    const float *a0 = t.a + row * t.a_row, *a1 = a0, *a2 = a0, *a3 = a0;
    Floats c0 = zeros(), c1 = c0, c2 = c0, c3 = c0;
    SITU_TERMS(SITU_ADD_TERM)
    finish(c0, row);
  }
}

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(is_thin);
HWY_EXPORT(multiply_thin);

// Adds terms [k0, k1) of one point and panel.
void multiply_piece(const PanelSet& set, const PointProduct& p, int64_t point, int64_t panel, int64_t k0, int64_t k1) {
  const TileFunction function = (panel + 1) * set.tn <= set.n ? set.tile : set.last_tile;
  const float* const a = p.a.at(point, 0, 0) + k0 * p.a_step;
  const float* pointers[kMaxTileRows];
  int64_t rows[kMaxTileRows];
  const TileSegment segment{0, k1 - k0};
  Tile t{.a = pointers,
         .segments = &segment,
         .count = 1,
         .b = p.b + point * p.b_plane + (panel - p.panel0) * p.b_panel + k0 * p.b_step,
         .a_step = p.a_step,
         .b_step = p.b_step,
         .y = p.y.at(point, 0, 0),
         .y_pitch = p.y.pitch,
         .rows = rows,
         .col = (panel - p.panel0) * set.tn,
         .n = std::min(set.tn, set.n - panel * set.tn),
         .accumulate = p.accumulate || k0 > 0};
  for (int64_t i0 = 0; i0 < p.m; i0 += set.mr) {
    t.m = std::min(set.mr, p.m - i0);
    for (int64_t i = 0; i < set.mr; ++i) {
      rows[i] = i0 + std::min(i, t.m - 1);
      pointers[i] = a + rows[i] * p.a_row;
    }
    function(t);
  }
}

}  // namespace

void multiply_points(const PanelSet& set, const PointProduct& p) {
  if (set.panels == 1 && p.k == kThinTerms && p.a_step == 1 && HWY_DYNAMIC_DISPATCH(is_thin)(set.n)) {
    const auto multiply = HWY_DYNAMIC_DISPATCH(multiply_thin);
    for (int64_t point = 0; point < p.points; ++point)
      multiply({.m = p.m,
                .a = p.a.at(point, 0, 0),
                .a_row = p.a_row,
                .b = p.b + point * p.b_plane,
                .b_step = p.b_step,
                .y = p.y.at(point, 0, 0),
                .y_pitch = p.y.pitch,
                .accumulate = p.accumulate});
    return;
  }
  for (int64_t point = 0; point < p.points; ++point)
    for (int64_t panel = p.panel0; panel < p.panel1; ++panel) {
      const int64_t pieces = std::max<int64_t>(1, p.k / p.terms);
      for (int64_t i = 0; i < pieces; ++i)
        multiply_piece(set, p, point, panel, p.k * i / pieces, p.k * (i + 1) / pieces);
    }
}

WinogradConv conv_of_forward(const ops::OpView& v) {
  const Shape &x = v.in(0).shape, &w = v.in(1).shape;
  const ops::Window window = ops::window_of(v.attrs, {x[1], x[2]}, {w[0], w[1]});
  return {window, x[0], w[2], w[3], v.attrs.integer("groups", 1)};
}
WinogradConv conv_of_dx(const ops::OpView& v) {
  const Shape &dy = v.in(0).shape, &w = v.in(1).shape;
  const ops::Window window = ops::window_of(v.attrs, v.attrs.ints("size"), {w[0], w[1]});
  return {ops::window_over_dy(window), dy[0], w[3], w[2], v.attrs.integer("groups", 1)};
}
WinogradConv conv_of_dw(const ops::OpView& v) {
  const Shape &x = v.in(0).shape, &dy = v.in(1).shape;
  const ops::Window window = ops::window_of(v.attrs, {x[1], x[2]}, v.attrs.ints("kernel"));
  return {window, x[0], x[3], dy[3], v.attrs.integer("groups", 1)};
}

double winograd_rank(const WinogradConv& conv, double cost) {
  const double ratio = cost / static_cast<double>(conv.taps() * conv.pixels() * conv.c * conv.o);
  return ratio < 1 ? 0.4 * ratio - 0.45 : 1 + ratio;
}

}  // namespace situ::cpu
#endif
