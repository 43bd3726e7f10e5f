// pieces.h -- matrix products of floats in three pieces, for processors with units that multiply small matrices of
// bfloat16 (AMX):
//
//     a = a1 + a2 + a3,  each rounded to bfloat16, exactly;  a b = a1 b1 + (a2 b1 + a1 b2) + (a2 b2 + a3 b1 + a1 b3) +
//     what is left out, a2 b3 + a3 b2 + a3 b3: less than 2^-25 of a b, half of what a float's own rounding may take
//
// So six products of bfloat16, added up as floats, are a product of floats. Such units do sixteen multiply-adds of
// bfloat16 in the time of one of floats, so a product may take three eighths of the time. Sums begin with the smallest.
//
// A panel is kPieceLanes rows of a or columns of b. It holds, for every kPieceTerms terms, three tiles of 16 x 16
// words, one for each piece; a word has term t (lower half) and term t + 16 of the same lane. In tiles of a rows are
// lanes, in tiles of b rows are terms. Lanes and terms that are missing are zeros.
#pragma once
#include <cstdint>

#include "backend/cpu/tile.h"

namespace situ::cpu {

inline constexpr int64_t kPieces = 3, kPieceLanes = 16, kPieceTerms = 32;
inline constexpr int64_t kTileWords = 16 * 16, kPieceWords = kPieces * kTileWords;  // of one tile, of kPieceTerms terms

// Value (term, lane) is from[term * term_step + lane * lane_step]; one of the steps is 1.
struct PiecePanel {
  const float* from = nullptr;
  int64_t term_step = 1, lane_step = 1;
  int64_t terms = 0, lanes = 0;  // that exist
  bool of_a = false;
  float* to = nullptr;
};
using PackPieces = void (*)(const PiecePanel&);
PackPieces pack_pieces_function();

// Sums of one or two panels of a by one or two of b, over `count` times kPieceTerms terms, added to what they begin
// with, if anything: begin[row * begin_pitch + column], which may be the sums themselves. They are written to
// sums[row * pitch + column]. Both in whole tiles.
inline constexpr int64_t kSumRows = 2 * kPieceLanes, kSumColumns = 2 * kPieceLanes;
struct PieceTiles {
  const float *a = nullptr, *b = nullptr;
  int64_t a_panel = 0, b_panel = 0;  // floats from the first panel to the second; 0: there is none
  int64_t count = 0;
  const float* begin = nullptr;
  int64_t begin_pitch = 0;
  float* sums = nullptr;
  int64_t pitch = 0;
  // What comes next from far memory: `ahead_lines` of it are asked for with each of the six products of every
  // kPieceTerms terms, never many at a time.
  const float* ahead = nullptr;
  int64_t ahead_lines = 0;
  int64_t products() const { return 6 * count; }
};
using MultiplyPieces = void (*)(const PieceTiles&);

// y = epilogue(sums + (y or 0)) for the first m rows and n columns of `sums`, a matrix of kSumColumns columns; the
// epilogue from word `first_word` on.
struct PieceSums {
  float* sums = nullptr;
  float* y = nullptr;
  int64_t y_pitch = 0;
  int64_t first_row = 0, row_step = 1, col = 0;  // of y; row i is first_row + i * row_step
  int64_t m = 0, n = 0;
  bool accumulate = false;
  const TileEpilogue* epilogue = nullptr;
  int first_word = 0;
};
using FinishPieces = void (*)(const PieceSums&);
FinishPieces finish_pieces_function();

// Whether this processor has units for it, and the system lets this process use them: asked for once.
bool has_piece_units();
// With the processor's units; without them, with loops for tests.
MultiplyPieces multiply_pieces_function();
// The units are ready while one of these lives, for its thread; they may be nested.
class PieceUnits {
 public:
  PieceUnits();
  ~PieceUnits();
  PieceUnits(const PieceUnits&) = delete;
  PieceUnits& operator=(const PieceUnits&) = delete;
};

}  // namespace situ::cpu
