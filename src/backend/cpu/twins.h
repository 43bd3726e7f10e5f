// twins.h -- products of floats in three pieces (pieces.h) in which the halves of a word are pieces of one value:
//
//     a: (a1,a2), (a1,a3);  b: (b3,b1), (b2,b1), (b1,b2)
//     (a1,a3) . (b3,b1) = a1 b3 + a3 b1,  (a1,a2) . (b2,b1) = a1 b2 + a2 b1,  (a1,a2) . (b1,b2) = a1 b1 + a2 b2
//
// Three products of sixteen terms do what six of thirty-two halves do in pieces.h. Sixteen terms are enough, and a row
// of a is packed without looking at another: two lines of words for every sixteen terms. So a tile of a is any sixteen
// rows at one distance, of a matrix or of the pixels of an image that a tap of a convolution meets. b takes twice the
// memory.
#pragma once
#include <cstdint>

#include "backend/cpu/pieces.h"

namespace situ::cpu {

inline constexpr int64_t kTwinTerms = 16;
inline constexpr int64_t kTwinWords = 2 * kTwinTerms;  // of a row of a, for kTwinTerms terms: first (a1,a2)
inline constexpr int64_t kTwinTiles = 3, kTwinPanelWords = kTwinTiles * kTileWords;  // of b
inline int64_t twin_row(int64_t terms) { return ceil_div(terms, kTwinTerms) * kTwinWords; }
inline int64_t twin_panel(int64_t terms) { return ceil_div(terms, kTwinTerms) * kTwinPanelWords; }

// Row i of a, from[i * row_step + term], becomes to[i * twin_row(terms) ..]. Terms that are missing are zeros.
struct TwinRows {
  const float* from = nullptr;
  int64_t row_step = 0, rows = 0, terms = 0;
  float* to = nullptr;
};
using PackTwinRows = void (*)(const TwinRows&);
PackTwinRows pack_twin_rows_function();

// kPieceLanes columns of b or fewer, value (term, lane) as in PiecePanel: twin_panel(terms) words.
using PackTwinPanel = void (*)(const PiecePanel&);
PackTwinPanel pack_twin_panel_function();

// Where a tap's rows of a begin, from where those of a tile do, and its part of a panel of b.
struct TwinTap {
  int64_t a = 0, b = 0;
};
// Sums of one to three tiles of a by a panel of b, or of one or two by two panels, over all taps and `groups` times
// kTwinTerms terms of each. They begin with what `begin` has, if anything, and are written in whole tiles.
inline constexpr int64_t kMostTwinTiles = 3, kTwinSumRows = kMostTwinTiles * kPieceLanes;
struct TwinTiles {
  int64_t tiles = 0;
  const float* a[kMostTwinTiles] = {};
  int64_t a_row = 0;  // words from row to row
  const TwinTap* taps = nullptr;
  int64_t tap_count = 0, groups = 0;
  const float* b = nullptr;
  int64_t b_panel = 0;  // words from the first panel to the second; 0: there is none
  const float* begin[kMostTwinTiles] = {};
  int64_t begin_pitch = 0;  // 0: a row for all
  float* sums[kMostTwinTiles] = {};
  int64_t pitch = 0;
};
using MultiplyTwins = void (*)(const TwinTiles&);
// With the processor's units; without them, with loops for tests. Within the life of a PieceUnits.
MultiplyTwins multiply_twins_function();

// What all parts of a product share: y = epilogue(a b), b as panels of kPieceLanes columns.
struct TwinProduct {
  const float* b = nullptr;
  int64_t panel = 0;  // words of a panel
  int64_t groups = 0, n = 0;
  const TwinTap* taps = nullptr;
  int64_t tap_count = 0;
  float* y = nullptr;
  int64_t y_pitch = 0;
  const TileEpilogue* epilogue = nullptr;
  MultiplyTwins multiply = nullptr;
  FinishPieces finish = nullptr;

  TwinProduct();
  // `panels` as pack_twins leaves them, of `all_taps` times `terms` rows.
  TwinProduct(const Operand& panels, int64_t terms, int64_t all_taps, int64_t columns, const Operand& y);
  int64_t panels() const { return ceil_div(n, kPieceLanes); }
};
// `runs` times `run` rows of a, `a_row` words apart; after each run come `gap` rows that are in a but not in y. Tiles
// begin with a run where it is a number of whole ones, else they go on over the gaps, and the last reads up to
// kPieceLanes - 1 rows beyond.
struct TwinBlock {
  const float* a = nullptr;
  int64_t a_row = 0;
  int64_t runs = 1, run = 0, gap = 0;
  int64_t y_row = 0, y_step = 1, y_run = 0;  // the first row in y, from row to row, from run to run
};
void multiply_twins(const TwinProduct& product, const TwinBlock& block);

}  // namespace situ::cpu
