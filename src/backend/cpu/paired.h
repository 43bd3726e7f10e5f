// paired.h -- matrix products that multiply half as often in two thirds of their terms (Winograd, 1968):
//
//     a1 b1 + a2 b2 =  (a1 + b2) (a2 + b1) - a1 a2 - b1 b2
//                   = -(b2 - a1) (b1 - a2) + a1 a2 + b1 b2
//
// Processors whose units for additions are not those for multiply-adds do two additions beside every two multiply-adds:
// of three terms two are a pair (two additions, one multiply-add), the third is multiplied plainly (one), and three
// terms take the time of two. What a and b contribute alone, "own" sums, is summed when they are packed.
//
// A pair rounds at the size of a + b, so both must be of one size: rows of a and columns of b are scaled by powers of
// two to values whose mean size is between 1 and 2, in blocks of terms. So the error is that of a sum whose terms are
// of the row's and the column's usual size, not of their own: a row that is mostly zeros is rounded as if it were not.
// Pairs take turns with either sign: own sums of values that are mostly positive, as activations are, cancel instead of
// growing.
//
// A panel of `width` rows of a or columns of b holds for each block
//     own sums to begin with [width], scales [width], terms [rounded up to kPairedStep, zeros at the end][width]
#pragma once
#include "backend/cpu/matrix.h"
#include "backend/cpu/tile.h"

namespace situ::cpu {

// Whether the processor gains by it (devices/cpu.json).
inline bool pairs_terms(const device::Target& target) { return target.tuning.get("gemm.paired", 0) != 0; }

// Terms of a block: a panel of b stays near the L1 cache, and a block's sums are short enough to be exact.
inline constexpr int64_t kMostPairedTerms = 258;
// Terms of a product that is paired at all. A weight gradient of few samples has sums whose terms are all zero, which
// pairs would make noise of.
inline constexpr int64_t kFewestPaired = 16, kFewestPairedSamples = 128;

// Whether pairs make up for packing where a direct way would pack nothing: in convolutions of 1x1.
inline bool pays_to_pair(int64_t terms, int64_t columns) { return terms >= 24 && columns >= 64; }

// How the terms of a product are cut into blocks, by their number alone.
struct PairedTerms {
  int64_t k = 0, block = 0, blocks = 0;
  explicit PairedTerms(int64_t terms = 0);
  int64_t length(int64_t i) const { return std::min(block, k - i * block); }
  int64_t padded(int64_t i) const { return round_up(length(i), kPairedStep); }
  int64_t first_row(int64_t i) const { return i * (block + 2); }  // of block i in a panel
  int64_t rows() const { return first_row(blocks - 1) + padded(blocks - 1) + 2; }
};

// One block of a panel. Value (term, lane) is from[term * term_step + lane * lane_step]; one of the steps is 1.
struct PairedPanel {
  const float* from = nullptr;
  int64_t term_step = 1, lane_step = 1;
  int64_t terms = 0, lanes = 0;  // that exist
  int64_t width = 0;
  float* to = nullptr;
  int64_t ahead = 0;  // elements to the values that are packed next, which are asked for; 0: nothing is
};
using PackPaired = void (*)(const PairedPanel&);
PackPaired pack_paired_function();

// Columns of b's panels; those of a have kPairedRows.
inline int64_t paired_width(const device::Tuning& tuning) { return 2 * tuning.get("simd.lanes", 8); }

// y = epilogue(a b): what all parts of a product share.
struct PairedProduct {
  PairedTerms terms;
  PackPaired pack = nullptr;
  TileFunction tile = nullptr, last_tile = nullptr;
  int64_t width = 0, n = 0;  // of panels, and columns of the whole product
  const float* b = nullptr;  // panels, if they are made before
  float* y = nullptr;
  int64_t y_pitch = 0;
  TileEpilogue epilogue;

  static int64_t scratch_floats(int64_t rows, const PairedTerms& terms) {
    return ceil_div(rows, kPairedRows) * (terms.block + 2) * kPairedRows;
  }
  int64_t panels() const { return ceil_div(n, width); }
};
PairedProduct paired_product(int64_t k, int64_t n, const Operand& y, const device::Tuning& tuning);  // without b
PairedProduct paired_product(const Operand& panels, int64_t k, int64_t n, const Operand& y,
                             const device::Tuning& tuning);

// Rows r_i = first_row + i * row_step of y, i < m, of a[i * a_row + k * a_step], and panels [panel0, panel1) of b. The
// rows of a are packed into `scratch`, block by block.
struct PairedRows {
  int64_t m = 0;
  const float* a = nullptr;
  int64_t a_row = 0, a_step = 1;
  int64_t first_row = 0, row_step = 1;
  int64_t panel0 = 0, panel1 = 0;
  float* scratch = nullptr;
};
void multiply_paired(const PairedProduct& product, const PairedRows& rows);

// m rows of a single block of terms, which pack_paired_rows has packed to `a`, and panels [panel0, panel1) of b.
struct PackedRows {
  int64_t m = 0;
  const float* a = nullptr;
  int64_t first_row = 0;
  int64_t panel0 = 0, panel1 = 0;
};
void pack_paired_rows(const PairedProduct& product, const PairedRows& rows, int64_t block);
void multiply_paired(const PairedProduct& product, const PackedRows& rows);

// The other way round: m rows of a are panels, and panels [panel0, panel1) of b[k * b_step + j * b_column] are packed
// on the way, each used up while it is near.
struct PairedColumns {
  int64_t m = 0;
  const float* a = nullptr;
  const float* b = nullptr;
  int64_t b_step = 0, b_column = 1;
  int64_t panel0 = 0, panel1 = 0;
  float* scratch = nullptr;
};
void multiply_paired(const PairedProduct& product, const PairedColumns& columns);

}  // namespace situ::cpu
