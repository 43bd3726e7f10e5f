// planar_tile.h -- a register tile whose rows are result channels and whose columns are pixels, or images: it is
// finished on a task's stack and then written with channels last.
#pragma once
#include "backend/cpu/conv_phases.h"
#include "backend/cpu/tile.h"

namespace situ::cpu {

inline constexpr int64_t kPlanarColumns = 64;  // of a tile, at most

struct PlanarTile {
  float* tile = nullptr;  // [m][kPlanarColumns]
  int64_t m = 0, n = 0;
  float* y = nullptr;             // column 0, channel 0 of the tile
  int64_t y_step = 0;             // elements from column to column
  int64_t row = 0, row_step = 0;  // the columns' numbers as pixels of the result, for the epilogue
  int64_t col = 0;
  const TileEpilogue* epilogue = nullptr;  // null: the tile itself has applied it
};
using PlanarStore = void (*)(const PlanarTile&);
PlanarStore planar_store();

// w as the left side of the product: element (tap, channel that is summed, result channel).
struct PlanarWeights {
  const float* w = nullptr;
  int64_t taps_y = 0, taps_x = 0, tap = 0, channel = 0, result = 0;  // the last three: strides
  bool backward = false;
  PlanarWeights(const Operand& weight, bool of_gradient)
      : w(weight.f32()),
        taps_y(weight.shape()[0]),
        taps_x(weight.shape()[1]),
        tap(weight.shape()[2] * weight.pitch),
        channel(of_gradient ? 1 : weight.pitch),
        result(of_gradient ? weight.pitch : 1),
        backward(of_gradient) {}
  const float* at(const Tap& ty, const Tap& tx, int64_t c, int64_t o) const {
    const int64_t r = backward ? taps_y - 1 - ty.index : ty.index, s = backward ? taps_x - 1 - tx.index : tx.index;
    return w + (r * taps_x + s) * tap + c * channel + o * result;
  }
};

inline int64_t planar_rows(int64_t results) { return results <= 4 ? 4 : results <= 6 ? 6 : 8; }
// Columns of a tile with so many rows, whole vectors.
int64_t planar_columns(int64_t rows, const device::Tuning& tuning);

// For each tile of result channels, the part of the epilogue that a tile applies itself: all of it, unless a word takes
// an operand like the result; then empty.
std::vector<TileEpilogue> planar_epilogues(const TileEpilogue& whole, int64_t results, int64_t rows);

}  // namespace situ::cpu
