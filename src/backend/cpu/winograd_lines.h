// winograd_lines.h -- F(2x2, 3x3) for few channels, where transforms would cost as much as products:
//
//     y tile = A^T [ sum over channels: (G w G^T) . (B^T x B) ] A, epilogue
//
// A few tiles in a line at a time, from pixels to results within the L1 cache. Columns of pixels that two tiles share
// are transformed down once; the points of a tile lie beside each other, so that nothing is worked out to find them;
// the sixteen terms of a product stay in registers while the tiles pass. What an epilogue reads is asked for before the
// products begin.
#pragma once
#include "backend/cpu/winograd.h"

namespace situ::cpu {

struct TileLines {
  TiledImages x, y;
  TileEpilogue epilogue;
  const float* u = nullptr;                   // [panel, point, channel, columns] as winograd_weights leaves them
  int64_t panel = 0, plane = 0, columns = 0;  // from panel to panel, from point to point; of a panel
};

inline constexpr int64_t kLineTiles = 8;  // at a time
// Makes tiles [first, last); `scratch` holds the points of kLineTiles of both.
using TileLinesFunction = void (*)(const TileLines&, int64_t first, int64_t last, float* scratch);
// For up to four whole vectors of 16 channels and of 16 results; null where there is none.
TileLinesFunction tile_lines_function(int64_t channels, int64_t results, const ops::winograd::Tiles& tiles,
                                      const device::Tuning& tuning);

// The weight gradient of F(2x2, 3x3) and F(4x4, 3x3), for any number of whole vectors: points lie likewise, and the
// sums of sixteen channels by sixteen results stay in registers while a block of tiles passes.
struct TileGradient {
  TiledImages x, dy;  // the channels and results at hand, whole vectors of sixteen
  int64_t block = 0;  // tiles at a time
  float* dw = nullptr;
  int64_t dw_pitch = 0, tap = 0;  // from channel to channel, from tap to tap
};
// `scratch` holds the points of a block of both, and those of the sums.
using TileGradientFunction = void (*)(const TileGradient&, int64_t first, int64_t last, float* scratch);
TileGradientFunction tile_gradient_function(int64_t channels, int64_t results, const ops::winograd::Tiles& tiles,
                                            const device::Tuning& tuning);

}  // namespace situ::cpu
