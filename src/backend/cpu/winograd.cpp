// winograd.cpp -- products of points on the register tile.
#include "backend/cpu/winograd.h"

namespace situ::cpu {
namespace {

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
