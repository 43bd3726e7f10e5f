// tile_table.h -- collects register tiles with their segments, then runs them panel by panel.
//
// A convolution's tile needs a pointer per pixel and kernel row. They are worked out once for a handful of tiles, and
// used for every panel of output channels, so that a panel stays in the L1 cache while the tiles pass over it. Lives on
// a task's stack: nothing is allocated. A tile whose segments do not fit is run in parts, its sums resting in y.
#pragma once
#include <algorithm>

#include "backend/cpu/tile.h"

namespace situ::cpu {

// The columns of one group: panels of b, and the tile functions for a whole panel and the last one.
struct PanelSet {
  const float* b = nullptr;
  int64_t b_step = 0, panel_stride = 0, tn = 0, n = 0, panels = 0;
  int64_t mr = 6;
  TileFunction tile = nullptr, last_tile = nullptr;
  float* y = nullptr;  // of all groups
  int64_t y_pitch = 0;
  int64_t a_step = 1;
  int64_t col = 0;  // of the group's first column, for the epilogue's operands
  const TileEpilogue* epilogue = nullptr;
};
// Tile functions and panel count for n columns; `packed` panels are padded. `rows`: how many rows there are to tile.
// `width`: of the panels, else as the tuning says.
PanelSet make_panels(int64_t n, bool packed, int64_t rows, const device::Tuning& tuning, int64_t width = 0);

class TileTable {
 public:
  TileTable(const PanelSet& panels, int64_t panel0, int64_t panel1) : set_(panels), panel0_(panel0), panel1_(panel1) {}

  // Starts a tile with these mr rows of y, of which the first m exist. `fresh`: the sums start at zero.
  void begin(const int64_t* rows, int64_t m, bool fresh) {
    if (tiles_ == kTiles) flush();
    TileEntry& tile = entries_[tiles_++];
    std::copy_n(rows, set_.mr, tile.rows);
    tile.m = m;
    tile.accumulate = !fresh;
    tile.first = segments_;
    tile.count = 0;
    tile.last = false;
  }
  // Room for one more segment of the present tile: its mr row pointers are to be filled in.
  const float** add(int64_t row, int64_t length) {
    if (segments_ == kSegments) make_room();
    ++entries_[tiles_ - 1].count;
    list_[segments_] = {row * set_.b_step, length};
    return pointers_ + segments_++ * set_.mr;
  }
  // Room for `count` floats that last as long as the next segment.
  float* scratch(int64_t count) {
    if (segments_ == kSegments || used_ + count > kScratch) make_room();
    used_ += count;
    return scratch_ + used_ - count;
  }
  // Ends the tile; `last`: its sums are complete, so the epilogue is due.
  void end(bool last) { entries_[tiles_ - 1].last = last; }
  void flush() {
    for (int64_t panel = panel0_; panel < panel1_; ++panel) run(panel);
    tiles_ = segments_ = used_ = 0;
  }

  static constexpr int64_t kScratch = 4096;

 private:
  static constexpr int64_t kTiles = 24, kSegments = 192;
  struct TileEntry {
    int64_t rows[kMaxTileRows];
    int64_t m, first, count;
    bool accumulate, last;
  };

  void make_room() {  // runs everything so far, the open tile in part, and opens it again
    const TileEntry open = entries_[tiles_ - 1];
    flush();
    begin(open.rows, open.m, false);
  }
  void run(int64_t panel) const {
    const bool full = (panel + 1) * set_.tn <= set_.n;
    const TileFunction function = full ? set_.tile : set_.last_tile;
    Tile t{.b = set_.b + panel * set_.panel_stride,
           .a_step = set_.a_step,
           .b_step = set_.b_step,
           .y = set_.y,
           .y_pitch = set_.y_pitch,
           .col = set_.col + panel * set_.tn,
           .n = std::min(set_.tn, set_.n - panel * set_.tn)};
    for (int64_t i = 0; i < tiles_; ++i) {
      const TileEntry& tile = entries_[i];
      t.a = pointers_ + tile.first * set_.mr;
      t.segments = list_ + tile.first;
      t.count = tile.count;
      t.rows = tile.rows;
      t.m = tile.m;
      t.accumulate = tile.accumulate;
      t.epilogue = tile.last ? set_.epilogue : nullptr;
      function(t);
    }
  }

  const PanelSet& set_;
  int64_t panel0_, panel1_;
  int64_t tiles_ = 0, segments_ = 0, used_ = 0;
  TileEntry entries_[kTiles];
  TileSegment list_[kSegments];
  const float* pointers_[kSegments * kMaxTileRows];
  float scratch_[kScratch];
};

}  // namespace situ::cpu
