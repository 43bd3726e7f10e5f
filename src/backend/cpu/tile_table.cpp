#include "backend/cpu/tile_table.h"

namespace situ::cpu {
namespace {

// Rows per tile when only one vector of columns is there: the height that wastes least; eight sums hide the latency.
int64_t best_height(int64_t rows, int64_t preferred) {
  const auto cost = [&](int64_t mr) { return ceil_div(rows, mr) * 8; };
  return preferred == 8 && cost(8) < cost(6) ? 8 : 6;
}

}  // namespace

PanelSet make_panels(int64_t n, bool packed, int64_t rows, const device::Tuning& tuning) {
  PanelSet set;
  set.tn = panel_width(tuning);
  set.n = n;
  set.panels = ceil_div(n, set.tn);
  const int64_t lanes = tuning.get("simd.lanes", 8), last = n - (set.panels - 1) * set.tn;
  const TileShape shape = tile_shape(set.panels == 1 ? n : set.tn, tuning);
  set.mr = shape.nv == 1 ? best_height(rows, shape.mr) : shape.mr;
  set.last_tile = tile_function(set.mr, ceil_div(last, lanes), !packed && last % lanes != 0);
  set.tile = set.panels == 1 ? set.last_tile : tile_function(set.mr, shape.nv, false);
  return set;
}

}  // namespace situ::cpu
