#include "backend/cpu/twins.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/twins.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <algorithm>

#include "backend/cpu/pieces-inl.h"
#include "backend/cpu/turn.h"
#include "base/error.h"

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

// kTwinTerms terms of a row, of which n exist, or all.
template <bool WHOLE>
HWY_INLINE void pack_terms(const float* from, int64_t n, float* to) {
  for (int64_t j = 0; j < kTwinTerms; j += static_cast<int64_t>(hn::Lanes(LineTag()))) {
    Words first, second, third;
    take_apart(load_line<WHOLE>(from + j, n - j), first, second, third);
    store_words(joined(second, first), to + j);
    store_words(joined(third, first), to + kTwinTerms + j);
  }
}

void pack_rows(const TwinRows& r) {
  const int64_t whole = r.terms / kTwinTerms * kTwinTerms, rest = r.terms - whole, step = twin_row(r.terms);
  for (int64_t i = 0; i < r.rows; ++i) {
    const float* from = r.from + i * r.row_step;
    float* to = r.to + i * step;
    for (int64_t k = 0; k < whole; k += kTwinTerms, to += kTwinWords) pack_terms<true>(from + k, kTwinTerms, to);
    if (rest == 0) continue;
    if (SITU_MASKED_LOAD) {
      pack_terms<false>(from + whole, rest, to);
    } else {
      HWY_ALIGN float copy[kTwinTerms] = {};
      std::copy_n(from + whole, rest, copy);
      pack_terms<true>(copy, kTwinTerms, to);
    }
  }
}

void pack_panel(const PiecePanel& p) {
  float* to = p.to;
  for (int64_t t = 0; t < p.terms; t += kTwinTerms, to += kTwinPanelWords) {
    HWY_ALIGN float copy[kTwinTerms * kPieceLanes] = {};
    const float* from = p.from + t * p.term_step;
    const int64_t terms = std::min(kTwinTerms, p.terms - t), columns = std::min(kPieceLanes, p.lanes);
    if (p.lane_step == 1)
      for (int64_t k = 0; k < terms; ++k) std::copy_n(from + k * p.term_step, columns, copy + k * kPieceLanes);
    else
      turn_function()(from, p.lane_step, columns, terms, copy, kPieceLanes);
    for (int64_t i = 0; i < kTileWords; i += static_cast<int64_t>(hn::Lanes(LineTag()))) {
      Words first, second, third;
      take_apart(hn::LoadU(LineTag(), copy + i), first, second, third);
      store_words(joined(first, cut_off(third)), to + i);
      store_words(joined(first, second), to + kTileWords + i);
      store_words(joined(second, first), to + 2 * kTileWords + i);
    }
  }
}

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(pack_rows);
HWY_EXPORT(pack_panel);

// A place in a block: row `at` of a run and its gap. Walked, not worked out: a division takes as long as a product.
struct Place {
  int64_t run = 0, at = 0;
  int64_t a_row(const TwinBlock& b) const { return run * (b.run + b.gap) + at; }
  int64_t y_row(const TwinBlock& b) const { return b.y_row + run * b.y_run + at * b.y_step; }
};

// How the rows of a block fall into tiles.
struct Cut {
  const TwinBlock& b;
  const bool whole = b.run % kPieceLanes == 0;
  const int64_t rows = whole ? b.runs * b.run : b.runs * (b.run + b.gap) - b.gap;
  int64_t tiles() const { return ceil_div(rows, kPieceLanes); }
  Place behind(Place tile) const {  // where the next one begins
    const int64_t end = whole ? b.run : b.run + b.gap;
    for (tile.at += kPieceLanes; tile.at >= end; ++tile.run) tile.at -= end;
    return tile;
  }
  // Calls part(first, count, place) for each run of rows of y within a tile's first m.
  template <typename Part>
  void for_runs(Place p, int64_t m, const Part& part) const {
    for (int64_t row = 0; row < m; ++p.run, p.at = 0) {
      const int64_t left = b.run + b.gap - p.at, count = std::min(b.run - p.at, m - row);
      if (count > 0) part(row, count, p);
      row += left;
    }
  }
};

// From row to row of what a word of the epilogue reads; 0: it has no rows.
int64_t row_pitch(const TileEpilogue::Word& word) { return word.kind == ops::Epilogue::bias ? 0 : word.pitch; }

// What the epilogue reads, and where the results of a tile go, comes from far memory: it is asked for while the tiles
// before it are multiplied.
void ask_for(const TwinProduct& p, const Cut& cut, Place tile, int64_t m, int64_t col) {
  cut.for_runs(tile, m, [&](int64_t, int64_t count, Place place) {
    const int64_t first = place.y_row(cut.b), step = cut.b.y_step;
    for (int64_t i = 0; i < count; ++i) __builtin_prefetch(p.y + (first + i * step) * p.y_pitch + col, 1);
    for (int e = 0; p.epilogue && e < p.epilogue->count; ++e) {
      const TileEpilogue::Word& word = p.epilogue->words[static_cast<size_t>(e)];
      const int64_t pitch = row_pitch(word);
      for (int64_t i = 0; pitch && i < count; ++i) __builtin_prefetch(word.operand + (first + i * step) * pitch + col);
    }
  });
}

// What sums begin with: the first word of the epilogue where it adds something, and tiles are whole. That depends on
// shapes alone.
const TileEpilogue::Word* begin_of(const TwinProduct& p, const Cut& cut) {
  if (!p.epilogue || p.n % kPieceLanes != 0) return nullptr;
  const TileEpilogue::Word& word = p.epilogue->words[0];
  const bool adds = word.kind == ops::Epilogue::bias || (word.kind == ops::Epilogue::residual && cut.whole);
  return adds ? &word : nullptr;
}

}  // namespace

PackTwinRows pack_twin_rows_function() { return &HWY_DYNAMIC_DISPATCH(pack_rows); }
PackTwinPanel pack_twin_panel_function() { return &HWY_DYNAMIC_DISPATCH(pack_panel); }

TwinProduct::TwinProduct() : multiply(multiply_twins_function()), finish(finish_pieces_function()) {}
TwinProduct::TwinProduct(const Operand& panels_of_b, int64_t terms, int64_t all_taps, int64_t columns,
                         const Operand& result)
    : TwinProduct() {
  b = panels_of_b.f32();
  panel = all_taps * twin_panel(terms);
  groups = ceil_div(terms, kTwinTerms);
  n = columns;
  y = result.f32();
  y_pitch = result.pitch;
  SITU_ASSERT(panels_of_b.pitch == panels_of_b.cols() && panels_of_b.type.count() == panels() * panel);
}

// If nothing is left to be done to sums, whole tiles go to y; else it is done where they rest, near.
void multiply_twins(const TwinProduct& p, const TwinBlock& b) {
  alignas(64) float sums[kTwinSumRows * kSumColumns];
  const Cut cut{b};
  const TileEpilogue::Word* begin = begin_of(p, cut);
  const int words = begin ? 1 : 0;
  const bool done = cut.whole && p.n % kPieceLanes == 0 && (p.epilogue ? p.epilogue->count : 0) == words;
  const int64_t most = p.panels() == 1 ? kMostTwinTiles : kSumRows / kPieceLanes, tiles = cut.tiles();
  TwinTiles t{.a_row = b.a_row, .taps = p.taps, .tap_count = p.tap_count, .groups = p.groups};
  const int64_t begin_row = begin ? row_pitch(*begin) : 0;
  t.begin_pitch = begin_row * b.y_step;
  t.pitch = done ? p.y_pitch * b.y_step : kSumColumns;
  Place places[2 * kMostTwinTiles];  // of the tiles at hand, and of those behind them
  const auto rows_of = [&](int64_t tile) { return std::min(kPieceLanes, cut.rows - tile * kPieceLanes); };
  for (int64_t i = 1; i < most; ++i) places[i] = cut.behind(places[i - 1]);
  for (int64_t tile = 0; tile < tiles; tile += most) {
    t.tiles = std::min(most, tiles - tile);
    for (int64_t i = most; i < 2 * most; ++i) places[i] = cut.behind(places[i - 1]);
    for (int64_t panel = 0; panel < p.panels(); panel += 2) {
      const int64_t col = panel * kPieceLanes;
      t.b = p.b + panel * p.panel;
      t.b_panel = panel + 1 < p.panels() ? p.panel : 0;
      for (int64_t i = 0; i < t.tiles; ++i) {
        const int64_t y_row = places[i].y_row(b);
        t.a[i] = b.a + places[i].a_row(b) * b.a_row;
        if (begin) t.begin[i] = begin->operand + y_row * begin_row + col;
        t.sums[i] = done ? p.y + y_row * p.y_pitch + col : sums + i * kPieceLanes * kSumColumns;
        const int64_t next = tile + most + i;
        if (next < tiles) ask_for(p, cut, places[most + i], rows_of(next), col);
      }
      p.multiply(t);
      for (int64_t i = 0; i < t.tiles && !done; ++i)
        cut.for_runs(places[i], rows_of(tile + i), [&](int64_t first, int64_t count, Place place) {
          p.finish({.sums = t.sums[i] + first * kSumColumns,
                    .y = p.y,
                    .y_pitch = p.y_pitch,
                    .first_row = place.y_row(b),
                    .row_step = b.y_step,
                    .col = col,
                    .m = count,
                    .n = std::min(t.b_panel ? 2 * kPieceLanes : kPieceLanes, p.n - col),
                    .epilogue = p.epilogue,
                    .first_word = words});
        });
    }
    std::copy_n(places + most, most, places);
  }
}

}  // namespace situ::cpu
#endif
