// tile.h -- the register tile under matmul and all convolutions: MR x NV vectors of the result, from segments.
//
//     y[rows[i]][col + j] = epilogue(sum over segments s and k:  a[s][i][k * a_step] * b[s.offset + k * b_step + j])
//
// A row of a is a pointer per segment, so the same tile serves a matrix (one segment), its transpose (a_step = pitch),
// and a convolution (a segment per kernel row or tap; a pixel outside the image points at zeros). b is a packed panel
// (b_step = its width) or a matrix in place (b_step = its pitch).
#pragma once
#include <array>
#include <cstdint>
#include <limits>

#include "backend/cpu/kernel.h"
#include "ops/epilogue.h"

namespace situ::cpu {

inline constexpr int kMaxTileRows = 8;
inline constexpr int kMaxTileVectors = 4;
inline constexpr int kMaxEpilogue = 8;
// Tiles of paired terms (paired.h): their rows, and the terms that make a pattern.
inline constexpr int kPairedRows = 8;
inline constexpr int64_t kPairedStep = 6;

struct TileEpilogue {
  struct Word {
    ops::Epilogue kind;
    const float* operand = nullptr;  // bias: [N]; residual and mask: like y
    int64_t pitch = 0;
  };
  int count = 0;
  std::array<Word, kMaxEpilogue> words;
};
// The epilogue of a launch whose operands start at call.in[first].
TileEpilogue bind_epilogue(const Call& call, int first);

// What sums begin with and where they are cut off.
struct SumRange {
  const float* bias = nullptr;  // by column; null: zeros
  float low = -std::numeric_limits<float>::infinity(), high = std::numeric_limits<float>::infinity();
};
// Whether a range is all that an epilogue does.
bool is_range(const TileEpilogue& epilogue, SumRange* range);

struct TileSegment {
  int64_t offset = 0;  // into b, elements
  int64_t length = 0;
};

struct Tile {
  const float* const* a = nullptr;  // [segments][MR]; rows beyond m repeat a valid pointer
  const TileSegment* segments = nullptr;
  int64_t count = 0;  // of segments
  const float* b = nullptr;
  int64_t a_step = 1, b_step = 0;
  float* y = nullptr;  // of the whole result
  int64_t y_pitch = 0;
  const int64_t* rows = nullptr;  // MR row numbers of y and of epilogue operands
  int64_t col = 0;
  int64_t m = 0, n = 0;      // rows and columns that exist; lanes * (NV - 1) < n <= lanes * NV
  bool accumulate = false;   // add what y holds
  bool bias_by_row = false;  // the bias belongs to rows, not columns
  const TileEpilogue* epilogue = nullptr;
};
using TileFunction = void (*)(const Tile&);

// edge: columns beyond n must not be read from b (b in place); panels are padded and need none.
TileFunction tile_function(int64_t mr, int64_t nv, bool edge);
// For eight rows of 24 columns where vectors have sixteen lanes: kHalvesColumns, in panels or in place, bias by column;
// for processors that compute half a vector in half the time (gemm.halves).
// Null where there is none.
inline constexpr int64_t kHalvesRows = 8, kHalvesColumns = 24;
TileFunction halves_tile_function();
// One segment of whole patterns; a[0] is a panel of kPairedRows columns, one or two vectors of b are b_step apart.
TileFunction paired_tile_function(int64_t nv);

// The tile for n columns: a single vector takes more rows, or the latency of its few sums would show.
struct TileShape {
  int64_t mr = 6, nv = 1;
};
TileShape tile_shape(int64_t n, const device::Tuning& tuning);
int64_t panel_width(const device::Tuning& tuning);  // TN: floats, a multiple of the vector length, at most four vectors

}  // namespace situ::cpu
