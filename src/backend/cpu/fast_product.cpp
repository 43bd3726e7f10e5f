#include "backend/cpu/fast_product.h"

#include <algorithm>

#include "base/error.h"

namespace situ::cpu {

bool has_form(const device::Target& target, Form form) {
  constexpr const char* kTuning[kForms] = {"", "gemm.paired", "gemm.pieces"};
  return form == Form::plain || target.tuning.get(kTuning[static_cast<int>(form)], 0) != 0;
}
Form best_form(const device::Target& target) {
  if (has_form(target, Form::pieces)) return Form::pieces;
  return has_form(target, Form::paired) ? Form::paired : Form::plain;
}
std::string_view pack_kernel(Form form) {
  constexpr std::string_view kPack[kForms] = {"pack_b", "pack_paired", "pack_pieces"};
  return kPack[static_cast<int>(form)];
}

namespace {

// A panel of b stays near, and a block's sums are short enough to be exact.
constexpr int64_t kMostPairedTerms = 258, kMostPieceTerms = 512;
static_assert(kMostPairedTerms + 2 <= kMostBlockRows && kMostPieceTerms / 2 * kPieces <= kMostBlockRows);
constexpr int64_t kLine = 16, kNear = 2;  // floats of a line; into the second-level cache

}  // namespace

FastTerms::FastTerms(Form its_form, int64_t terms) : form(its_form), k(terms) {
  const bool paired = form == Form::paired;
  blocks = std::max<int64_t>(1, ceil_div(terms, paired ? kMostPairedTerms : kMostPieceTerms));
  block = round_up(ceil_div(terms, blocks), paired ? kPairedStep : kPieceTerms);
  blocks = std::max<int64_t>(1, ceil_div(terms, std::max<int64_t>(block, 1)));
}

FastProduct fast_product(const FastTerms& terms, int64_t n, const Operand& y, const device::Tuning& tuning) {
  FastProduct p;
  p.terms = terms;
  p.width = fast_width(terms.form, tuning);
  p.n = n;
  p.y = y.f32();
  p.y_pitch = y.pitch;
  if (terms.form == Form::paired) {
    const int64_t lanes = p.width / 2, last = n - (p.panels() - 1) * p.width;
    p.pack_paired = pack_paired_function();
    p.tile = paired_tile_function(2);
    p.paired_rows = paired_rows_function();
    p.last_tile = paired_tile_function(ceil_div(last, lanes));
  } else {
    p.pack_pieces = pack_pieces_function();
    p.multiply = multiply_pieces_function();
    p.finish = finish_pieces_function();
  }
  return p;
}
FastProduct fast_product(const Operand& panels, const FastTerms& terms, int64_t n, const Operand& y,
                         const device::Tuning& tuning) {
  FastProduct p = fast_product(terms, n, y, tuning);
  SITU_ASSERT(panels.rows() == p.panels() * terms.rows() && panels.pitch == p.width);
  p.b = panels.f32();
  return p;
}

void pack_block(const FastProduct& p, const FastPanel& panel, int64_t block) {
  const float* from = panel.from + block * p.terms.block * panel.term_step;
  const int64_t terms = p.terms.length(block);
  if (p.terms.form == Form::paired)
    return p.pack_paired({.from = from,
                          .term_step = panel.term_step,
                          .lane_step = panel.lane_step,
                          .terms = terms,
                          .lanes = panel.lanes,
                          .width = panel.width,
                          .to = panel.to,
                          .ahead = panel.ahead});
  for (int64_t lane = 0; lane < panel.lanes; lane += kPieceLanes)
    p.pack_pieces({.from = from + lane * panel.lane_step,
                   .term_step = panel.term_step,
                   .lane_step = panel.lane_step,
                   .terms = terms,
                   .lanes = std::min(kPieceLanes, panel.lanes - lane),
                   .of_a = panel.of_a,
                   .to = panel.to + lane * p.terms.rows_of(p.terms.padded(block))});
}

void pack_rows(const FastProduct& p, const FastRows& r, int64_t block) {
  const int64_t rows = panel_rows(p.terms.form);
  for (int64_t i = 0; i < r.m; i += rows)
    pack_block(p,
               {.from = r.a + i * r.a_row,
                .term_step = r.a_step,
                .lane_step = r.a_row,
                .lanes = std::min(rows, r.m - i),
                .width = rows,
                .of_a = true,
                .to = r.scratch + i * p.terms.rows_of(p.terms.block)},
               block);
}

namespace {

// Panels come from far memory, and the first rows that meet one would wait for it: while rows meet this one, a share of
// the next is asked for with each of their tiles, or of the products in them. For panels of pieces that are near,
// asking costs more than it saves.
struct AskFor {
  const float* next = nullptr;
  int64_t floats = 0, share = 0;
  void panel(const float* from, int64_t count, int64_t times) {
    next = from;
    floats = count;
    share = round_up(ceil_div(count, times), kLine);
  }
  void ask() {
    for (int64_t i = 0; i < std::min(share, floats); i += kLine) __builtin_prefetch(next + i, 0, kNear);
    next += share;
    floats -= share;
  }
};

// Rows of y that meet a panel of b: those of panels of a that lie `stride` apart.
struct Rows {
  const float* a = nullptr;
  int64_t stride = 0, m = 0, first_row = 0, row_step = 1;
};
// A panel of b, or a block of it.
struct Columns {
  int64_t block = 0, col = 0;
  const float* b = nullptr;
  const float* next = nullptr;  // the panel after it, if there is one
};

// As many whole tiles as there are; returns their rows.
int64_t run_paired_rows(const FastProduct& p, const Rows& r, const Columns& c) {
  if (!p.paired_rows || c.col + p.width > p.n) return 0;
  const bool last = c.block + 1 == p.terms.blocks;
  const int64_t lines = p.terms.rows_of(p.terms.padded(c.block)) * p.width / kLine;
  PairedRows rows{.a = r.a,
                  .a_stride = r.stride,
                  .tiles = r.m / kPairedRows,
                  .b = c.b,
                  .terms = p.terms.padded(c.block),
                  .y = p.y + r.first_row * p.y_pitch + c.col,
                  .y_row = r.row_step * p.y_pitch,
                  .accumulate = c.block > 0};
  if (rows.tiles == 0 || !take_epilogue(last ? p.epilogue : TileEpilogue{}, &rows)) return 0;
  if (rows.bias) rows.bias += c.col;
  if (rows.residual) rows.residual += r.first_row * rows.residual_row + c.col;
  rows.residual_row *= r.row_step;
  if (c.next) {
    rows.ahead = c.next;
    rows.ahead_lines = ceil_div(lines, ceil_div(r.m, kPairedRows) * rows.terms / kPairedStep);
  }
  p.paired_rows(rows);
  return rows.tiles * kPairedRows;
}

void run_paired(const FastProduct& p, const Rows& r, const Columns& c) {
  const TileSegment segment{0, p.terms.padded(c.block)};
  const int64_t done = run_paired_rows(p, r, c);
  const float* a = r.a + done / kPairedRows * r.stride;
  int64_t rows[kPairedRows];
  Tile t{.a = &a,
         .segments = &segment,
         .count = 1,
         .b = c.b,
         .b_step = p.width,
         .y = p.y,
         .y_pitch = p.y_pitch,
         .rows = rows,
         .col = c.col,
         .n = std::min(p.width, p.n - c.col),
         .accumulate = c.block > 0,
         .epilogue = c.block + 1 == p.terms.blocks && p.epilogue.count ? &p.epilogue : nullptr};
  const TileFunction tile = c.col + p.width <= p.n ? p.tile : p.last_tile;
  AskFor ahead;
  if (c.next && !done) ahead.panel(c.next, p.terms.rows_of(segment.length) * p.width, ceil_div(r.m, kPairedRows));
  for (int64_t j = 0; j < kPairedRows; ++j) rows[j] = r.first_row + (done + j) * r.row_step;
  for (int64_t i = done; i < r.m; i += kPairedRows, a += r.stride) {
    ahead.ask();
    t.m = std::min<int64_t>(kPairedRows, r.m - i);
    for (int64_t j = t.m; j < kPairedRows; ++j) rows[j] = rows[t.m - 1];
    tile(t);
    for (int64_t& row : rows) row += kPairedRows * r.row_step;
  }
}

// What the sums of a single block begin with: the first word of the epilogue where it adds something. However the work
// is cut, sums begin so, and come out the same. Sums of earlier blocks are added at the end, not begun with: a long sum
// is one of sums, whose rounding errors grow with their number and length, not with the number of terms.
struct Begin {
  const float* at = nullptr;  // of the first row and column; null: nothing
  int64_t row = 0;            // floats from row to row
  int words = 0;              // of the epilogue that are done by it
};
Begin begin_of(const Rows& r, const Columns& c, const TileEpilogue* epilogue) {
  if (!epilogue || c.block > 0) return {};
  const TileEpilogue::Word& word = epilogue->words[0];
  if (word.kind == ops::Epilogue::bias) return {word.operand + c.col, 0, 1};
  if (word.kind != ops::Epilogue::residual) return {};
  return {word.operand + r.first_row * word.pitch + c.col, word.pitch * r.row_step, 1};
}

void run_pieces(const FastProduct& p, const Rows& r, const Columns& c) {
  alignas(64) float sums[kSumRows * kSumColumns];
  const int64_t padded = p.terms.padded(c.block), n = std::min(p.width, p.n - c.col);
  const TileEpilogue* epilogue = c.block + 1 == p.terms.blocks && p.epilogue.count ? &p.epilogue : nullptr;
  const Begin begin = begin_of(r, c, epilogue);
  const int words = epilogue ? epilogue->count : 0;
  PieceTiles tiles{.a = r.a,
                   .b = c.b,
                   .b_panel = n > kPieceLanes ? kPieceLanes * p.terms.rows_of(padded) : 0,
                   .count = padded / kPieceTerms};
  if (c.next) {
    const int64_t lines = p.terms.rows_of(padded) * p.width / kLine;
    tiles.ahead = c.next;
    tiles.ahead_lines = ceil_div(lines, ceil_div(r.m, kSumRows) * tiles.products());
  }
  for (int64_t i = 0; i < r.m; i += kSumRows, tiles.a += 2 * r.stride) {
    const int64_t m = std::min(kSumRows, r.m - i), row = r.first_row + i * r.row_step;
    const bool whole = m % kPieceLanes == 0 && n % kPieceLanes == 0,
               done = whole && c.block == 0 && begin.words == words;
    tiles.a_panel = m > kPieceLanes ? r.stride : 0;
    tiles.begin = begin.at ? begin.at + i * begin.row : nullptr;
    tiles.begin_pitch = begin.row;
    if (begin.at && !whole) {  // tiles would read beyond the last row or column
      std::fill(sums, sums + kSumRows * kSumColumns, 0.0f);
      for (int64_t j = 0; j < m; ++j) std::copy_n(tiles.begin + j * begin.row, n, sums + j * kSumColumns);
      tiles.begin = sums;
      tiles.begin_pitch = kSumColumns;
    }
    tiles.sums = done ? p.y + row * p.y_pitch + c.col : sums;
    tiles.pitch = done ? p.y_pitch * r.row_step : kSumColumns;
    p.multiply(tiles);
    tiles.ahead += tiles.ahead_lines * tiles.products() * kLine;
    if (done) continue;
    p.finish({.sums = sums,
              .y = p.y,
              .y_pitch = p.y_pitch,
              .first_row = row,
              .row_step = r.row_step,
              .col = c.col,
              .m = m,
              .n = n,
              .accumulate = c.block > 0,
              .epilogue = epilogue,
              .first_word = begin.words});
  }
}

void run_panel(const FastProduct& p, const Rows& r, const Columns& c) {
  p.terms.form == Form::paired ? run_paired(p, r, c) : run_pieces(p, r, c);
}

}  // namespace

void multiply_fast(const FastProduct& p, const FastRows& r) {
  const ReadyForm ready(p.terms.form);
  const int64_t rows = panel_rows(p.terms.form), stride = p.terms.rows_of(p.terms.block) * rows,
                panel_floats = p.terms.rows() * p.width, last = p.terms.form == Form::pieces && r.near ? 0 : r.panel1;
  for (int64_t block = 0; block < p.terms.blocks; ++block) {
    pack_rows(p, r, block);
    for (int64_t panel = r.panel0; panel < r.panel1; ++panel) {
      const float* b = p.b + panel * panel_floats + p.terms.first_row(block) * p.width;
      const int64_t skipped = panel < r.first_from ? rows : 0;
      const int64_t m = (panel < r.last_until ? r.m : round_up(r.m, rows) - rows) - skipped;
      if (m <= 0) continue;
      run_panel(p, {r.scratch + skipped / rows * stride, stride, m, r.first_row + skipped * r.row_step, r.row_step},
                {block, panel * p.width, b, panel + 1 < last ? b + panel_floats : nullptr});
    }
  }
}

void multiply_fast(const FastProduct& p, const PackedRows& r) {
  SITU_ASSERT(p.terms.blocks == 1);
  const int64_t stride = p.terms.rows_of(p.terms.block) * panel_rows(p.terms.form),
                panel_floats = p.terms.rows() * p.width;
  const int64_t last = p.terms.form == Form::pieces ? 0 : p.panels();
  for (int64_t panel = r.panel0; panel < r.panel1; ++panel) {
    const float* b = p.b + panel * panel_floats;
    run_panel(p, {r.a, stride, r.m, r.first_row, 1},
              {0, panel * p.width, b, panel + 1 < last ? b + panel_floats : nullptr});
  }
}

void multiply_fast(const FastProduct& p, const FastColumns& c) {
  const ReadyForm ready(p.terms.form);
  const int64_t rows = panel_rows(p.terms.form);
  for (int64_t panel = c.panel0; panel < c.panel1; ++panel)
    for (int64_t block = 0; block < p.terms.blocks; ++block) {
      const int64_t col = panel * p.width;
      pack_block(p,
                 {.from = c.b + col * c.b_column,
                  .term_step = c.b_step,
                  .lane_step = c.b_column,
                  .lanes = std::min(p.width, p.n - col),
                  .width = p.width,
                  .to = c.scratch,
                  .ahead = panel + 1 < c.panel1 ? p.width * c.b_column : 0},
                 block);
      run_panel(p, {c.a + p.terms.first_row(block) * rows, p.terms.rows() * rows, c.m, 0, 1}, {block, col, c.scratch});
    }
}

}  // namespace situ::cpu
