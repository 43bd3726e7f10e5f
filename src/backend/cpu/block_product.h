// block_product.h -- small matrix products inside a task of another kernel, on the register tile:
//
//     y[r_i][0..n) = epilogue((y[r_i] or 0) + sum over k < K: a[i * a_row + k * a_step] * b[k * b_step + 0..n))
//
// for i < m, where r_i = first_row + i * row_step, so that y may be one time step of a sequence; or with b as panels of
// the tile's width, b_panel elements apart. Nothing is allocated.
#pragma once
#include "backend/cpu/matrix.h"
#include "backend/cpu/tile_table.h"

namespace situ::cpu {

struct Block {
  int64_t m = 0, k = 0;
  const float* a = nullptr;
  int64_t a_row = 0, a_step = 1;
  const float* b = nullptr;
  int64_t b_step = 0;
  int64_t b_panel = 0;  // 0: b lies in place
  float* y = nullptr;
  int64_t y_pitch = 0, first_row = 0, row_step = 1;
  bool accumulate = false;
  const TileEpilogue* epilogue = nullptr;
};

// `set` comes from make_panels with the number of columns; b lies in place, and is padded if it was called packed.
inline void multiply(const PanelSet& set, const Block& block) {
  const float* pointers[kMaxTileRows];
  int64_t rows[kMaxTileRows];
  const TileSegment segment{0, block.k};
  for (int64_t panel = 0; panel < set.panels; ++panel) {
    const bool full = (panel + 1) * set.tn <= set.n;
    const TileFunction function = full ? set.tile : set.last_tile;
    for (int64_t i0 = 0; i0 < block.m; i0 += set.mr) {
      const int64_t m = std::min(set.mr, block.m - i0);
      for (int64_t i = 0; i < set.mr; ++i) {
        const int64_t line = i0 + std::min(i, m - 1);
        pointers[i] = block.a + line * block.a_row;
        rows[i] = block.first_row + line * block.row_step;
      }
      function({.a = pointers,
                .segments = &segment,
                .count = 1,
                .b = block.b + panel * (block.b_panel ? block.b_panel : set.tn),
                .a_step = block.a_step,
                .b_step = block.b_step,
                .y = block.y,
                .y_pitch = block.y_pitch,
                .rows = rows,
                .col = panel * set.tn,
                .m = m,
                .n = std::min(set.tn, set.n - panel * set.tn),
                .accumulate = block.accumulate,
                .epilogue = block.epilogue});
    }
  }
}

}  // namespace situ::cpu
