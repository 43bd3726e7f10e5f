#include "backend/cpu/tile_table.h"

namespace situ::cpu {
namespace {

// Rows per tile, at most `preferred`: the height that computes fewest rows too many. A tile takes at least eight
// multiply-adds a step, or their latency shows, and half of one for each vector of b that it reads.
int64_t best_height(int64_t rows, int64_t nv, int64_t preferred) {
  const auto cost = [&](int64_t mr) { return ceil_div(rows, mr) * (2 * std::max<int64_t>(mr * nv, 8) + nv); };
  int64_t best = preferred;
  for (int64_t mr : {6, 4})
    if (mr < preferred && cost(mr) <= cost(best)) best = mr;
  return best;
}

}  // namespace

PanelSet make_panels(int64_t n, bool packed, int64_t rows, const device::Tuning& tuning, int64_t width) {
  PanelSet set;
  set.tn = width ? width : panel_width(tuning);
  set.n = n;
  set.panels = ceil_div(n, set.tn);
  const int64_t lanes = tuning.get("simd.lanes", 8), last = n - (set.panels - 1) * set.tn;
  const TileShape shape = tile_shape(set.panels == 1 ? n : set.tn, tuning);
  set.mr = best_height(rows, shape.nv, shape.mr);
  set.last_tile = tile_function(set.mr, ceil_div(last, lanes), !packed && last % lanes != 0);
  if (n == kHalvesColumns && set.panels == 1 && tuning.get("gemm.halves", 0) && halves_tile_function()) {
    set.mr = kHalvesRows;
    set.last_tile = halves_tile_function();
  }
  set.tile = set.panels == 1 ? set.last_tile : tile_function(set.mr, shape.nv, false);
  return set;
}

}  // namespace situ::cpu
