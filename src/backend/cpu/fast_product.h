// fast_product.h -- matrix products that take less time than their multiply-adds would, on processors that have the
// units for it: y = epilogue(a b) with both operands as panels, in one of two forms.
//
//   paired  terms in pairs, half of whose multiplications become additions (paired.h): cores that add in units of their
//           own (AMD with AVX-512)
//   pieces  floats as three bfloat16 each (pieces.h): cores that multiply matrices of those (AMX)
//
// A panel has all terms of some rows of a (panel_rows) or columns of b (width), in blocks of terms that stay near; each
// block's sums are added to what y holds.
#pragma once
#include <limits>
#include <optional>
#include <string_view>

#include "backend/cpu/matrix.h"
#include "backend/cpu/paired.h"
#include "backend/cpu/paired_rows.h"
#include "backend/cpu/pieces.h"
#include "backend/cpu/tile.h"

namespace situ::cpu {

enum class Form { plain, paired, pieces };  // plain: the panels of pack_b, multiplied by other means
constexpr int kForms = 3;
// Whether this processor gains by it (gemm.paired, gemm.pieces), and the one by which it gains most.
bool has_form(const device::Target& target, Form form);
Form best_form(const device::Target& target);
std::string_view pack_kernel(Form form);  // the launch that makes panels of a matrix [K,N], or [N,K] with tb

// Most rows of a panel's memory for one block of terms.
inline constexpr int64_t kMostBlockRows = 768;

// Whether packing pays where a direct way would pack nothing: in convolutions of 1x1.
inline bool pays_to_pack(Form form, int64_t terms, int64_t columns) {
  return form == Form::pieces ? terms >= 96 && columns >= 96 : terms >= 24 && columns >= 64;
}

inline int64_t panel_rows(Form form) { return form == Form::paired ? kPairedRows : kPieceLanes; }
inline int64_t fast_width(Form form, const device::Tuning& tuning) {
  return form == Form::paired ? 2 * tuning.get("simd.lanes", 8) : 2 * kPieceLanes;
}
// Terms of a product that is worth it at all. A weight gradient of few samples (`turned`) has sums whose terms are all
// zero, which pairs would make noise of.
inline int64_t fewest_terms(Form form, bool turned) { return form == Form::paired && turned ? 128 : 16; }

// How the terms of a product are cut into blocks, by their number alone.
struct FastTerms {
  Form form = Form::paired;
  int64_t k = 0, block = 0, blocks = 0;
  FastTerms() = default;
  FastTerms(Form form, int64_t terms);
  int64_t length(int64_t i) const { return std::min(block, k - i * block); }
  int64_t padded(int64_t i) const { return round_up(length(i), form == Form::paired ? kPairedStep : kPieceTerms); }
  // Rows of a panel's memory, each as wide as the panel.
  int64_t rows_of(int64_t terms) const { return form == Form::paired ? terms + 2 : terms / 2 * kPieces; }
  int64_t first_row(int64_t i) const { return i * rows_of(block); }  // of block i
  int64_t rows() const { return first_row(blocks - 1) + rows_of(padded(blocks - 1)); }
};

// What all parts of a product share.
struct FastProduct {
  FastTerms terms;
  int64_t width = 0, n = 0;  // of panels, and columns of the whole product
  const float* b = nullptr;  // panels, if they are made before
  float* y = nullptr;
  int64_t y_pitch = 0;
  TileEpilogue epilogue;
  PackPaired pack_paired = nullptr;
  TileFunction tile = nullptr, last_tile = nullptr;
  PairedRowsFunction paired_rows = nullptr;  // for whole tiles, if there is one
  PackPieces pack_pieces = nullptr;
  MultiplyPieces multiply = nullptr;
  FinishPieces finish = nullptr;

  int64_t panels() const { return ceil_div(n, width); }
  // One block of rows of a.
  static int64_t scratch_floats(int64_t rows, const FastTerms& terms) {
    return round_up(rows, panel_rows(terms.form)) * terms.rows_of(terms.block);
  }
};
FastProduct fast_product(const FastTerms& terms, int64_t n, const Operand& y, const device::Tuning& tuning);
FastProduct fast_product(const Operand& panels, const FastTerms& terms, int64_t n, const Operand& y,
                         const device::Tuning& tuning);

// Block `block` of panels of b, or of one of a: value (term, lane) as in PairedPanel. `ahead` as there.
struct FastPanel {
  const float* from = nullptr;
  int64_t term_step = 1, lane_step = 1;
  int64_t lanes = 0, width = 0;
  bool of_a = false;
  float* to = nullptr;
  int64_t ahead = 0;
};
void pack_block(const FastProduct& product, const FastPanel& panel, int64_t block);

// Rows r_i = first_row + i * row_step of y, i < m, of a[i * a_row + k * a_step], and panels [panel0, panel1) of b. The
// rows of a are packed into `scratch`, block by block. Of the first panel of rows only the part from panel `first_from`
// of b on is wanted, of the last one the part before `last_until`.
struct FastRows {
  int64_t m = 0;
  const float* a = nullptr;
  int64_t a_row = 0, a_step = 1;
  int64_t first_row = 0, row_step = 1;
  int64_t panel0 = 0, panel1 = 0;
  int64_t first_from = 0, last_until = std::numeric_limits<int64_t>::max();
  float* scratch = nullptr;
  bool near = false;  // the panels are read again and again
};
void multiply_fast(const FastProduct& product, const FastRows& rows);

// What the form needs while products of packed rows run, on one thread.
class ReadyForm {
 public:
  explicit ReadyForm(Form form) {
    if (form == Form::pieces) units_.emplace();
  }

 private:
  std::optional<PieceUnits> units_;
};

// m rows of a single block of terms, which pack_rows has packed to `a`, and panels [panel0, panel1) of b; within the
// life of a ReadyForm.
struct PackedRows {
  int64_t m = 0;
  const float* a = nullptr;
  int64_t first_row = 0;
  int64_t panel0 = 0, panel1 = 0;
};
void pack_rows(const FastProduct& product, const FastRows& rows, int64_t block);
void multiply_fast(const FastProduct& product, const PackedRows& rows);

// The other way round: m rows of a are panels, and panels [panel0, panel1) of b[k * b_step + j * b_column] are packed
// on the way, each used up while it is near.
struct FastColumns {
  int64_t m = 0;
  const float* a = nullptr;
  const float* b = nullptr;
  int64_t b_step = 0, b_column = 1;
  int64_t panel0 = 0, panel1 = 0;
  float* scratch = nullptr;
};
void multiply_fast(const FastProduct& product, const FastColumns& columns);

}  // namespace situ::cpu
