#include "backend/cpu/pieces.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/pieces.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <algorithm>

#include "backend/cpu/pieces-inl.h"
#include "backend/cpu/turn.h"

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

// The three tiles of kPieceTerms terms. Row o of them has the values from[o * step + j] and, beside them, those that
// lie `second` further on; of those `there` and `there_second` exist, if not all.
template <bool WHOLE>
HWY_INLINE void pack_tiles(const float* from, int64_t step, int64_t second, float* to, int64_t there = 16,
                           int64_t there_second = 16) {
  const LineTag d;
  for (int64_t o = 0; o < 16; ++o)
    for (int64_t j = 0; j < 16; j += static_cast<int64_t>(hn::Lanes(d))) {
      const float* p = from + o * step + j;
      float* row = to + o * 16 + j;
      const Line x = load_line<WHOLE>(p, there - j), y = load_line<WHOLE>(p + second, there_second - j);
      Words x1, x2, x3, y1, y2, y3;
      take_apart(x, x1, x2, x3);
      take_apart(y, y1, y2, y3);
      store_words(joined(x1, y1), row);
      store_words(joined(x2, y2), row + kTileWords);
      store_words(joined(x3, cut_off(y3)), row + 2 * kTileWords);
    }
}

void pack_panel(const PiecePanel& p) {
  // Rows of a tile lie in memory as they are needed where lanes of a or terms of b are rows of the operand.
  const bool in_place = p.of_a ? p.term_step == 1 : p.lane_step == 1;
  const int64_t row_step = p.of_a ? p.lane_step : p.term_step;
  const int64_t width = p.of_a ? kPieceTerms : kPieceLanes, second = p.of_a ? 16 : 16 * kPieceLanes;
  float* to = p.to;
  for (int64_t t = 0; t < p.terms; t += kPieceTerms, to += kPieceWords) {
    const float* from = p.from + t * p.term_step;
    const int64_t terms = std::min(kPieceTerms, p.terms - t);
    if (in_place && terms == kPieceTerms && p.lanes >= kPieceLanes) {
      pack_tiles<true>(from, row_step, p.of_a ? 16 : 16 * row_step, to);
      continue;
    }
    if (SITU_MASKED_LOAD && in_place && p.of_a && p.lanes >= kPieceLanes) {
      pack_tiles<false>(from, row_step, 16, to, terms, terms - 16);
      continue;
    }
    HWY_ALIGN float copy[kPieceTerms * kPieceLanes];
    if (terms < kPieceTerms || p.lanes < kPieceLanes) std::fill(copy, copy + kPieceTerms * kPieceLanes, 0.0f);
    const int64_t lanes_there = std::min(kPieceLanes, p.lanes);
    const int64_t rows = p.of_a ? lanes_there : terms, cols = p.of_a ? terms : lanes_there;
    if (in_place)
      for (int64_t r = 0; r < rows; ++r) std::copy_n(from + r * row_step, cols, copy + r * width);
    else
      turn_function()(from, p.of_a ? p.term_step : p.lane_step, cols, rows, copy, width);
    pack_tiles<true>(copy, width, second, to);
  }
}

// sums[i][j] = change(sums[i][j], row and column of y, columns that are left). What is last goes to y.
template <typename Change>
HWY_INLINE void change_sums(const PieceSums& s, bool last, const Change& change) {
  const bool one_vector = s.n == lanes(), two_vectors = s.n == 2 * lanes();  // as nearly always
  for (int64_t i = 0; i < s.m; ++i) {
    const int64_t row = s.first_row + i * s.row_step;
    float* const from = s.sums + i * kSumColumns;
    float* const to = last ? s.y + row * s.y_pitch + s.col : from;
    if (one_vector) {
      hn::StoreU(change(hn::LoadU(Tag(), from), row, s.col, lanes()), Tag(), to);
      continue;
    }
    if (two_vectors) {
      const Floats v0 = change(hn::LoadU(Tag(), from), row, s.col, lanes());
      const Floats v1 = change(hn::LoadU(Tag(), from + lanes()), row, s.col + lanes(), lanes());
      hn::StoreU(v0, Tag(), to);
      hn::StoreU(v1, Tag(), to + lanes());
      continue;
    }
    for (int64_t j = 0; j < s.n; j += lanes())
      store_up_to(change(load_up_to(from + j, s.n - j), row, s.col + j, s.n - j), to + j, s.n - j);
  }
}

// One word after the other, over sums that are near.
void finish(const PieceSums& s) {
  const int words = s.epilogue ? s.epilogue->count : 0;
  if (s.accumulate)
    change_sums(s, s.first_word == words, [&](Floats v, int64_t row, int64_t col, int64_t n) HWY_ATTR {
      return hn::Add(v, load_up_to(s.y + row * s.y_pitch + col, n));
    });
  else if (s.first_word == words)
    change_sums(s, true, [](Floats v, int64_t, int64_t, int64_t) HWY_ATTR { return v; });
  for (int e = s.first_word; e < words; ++e) {
    const TileEpilogue::Word& word = s.epilogue->words[static_cast<size_t>(e)];
    const bool last = e + 1 == words;
    const auto like_y = [&](int64_t row, int64_t col, int64_t n)
                            HWY_ATTR { return load_up_to(word.operand + row * word.pitch + col, n); };
    switch (word.kind) {
      case ops::Epilogue::bias:
        change_sums(s, last, [&](Floats v, int64_t, int64_t col, int64_t n) HWY_ATTR {
          return hn::Add(v, load_up_to(word.operand + col, n));
        });
        break;
      case ops::Epilogue::relu:
        change_sums(s, last, [](Floats v, int64_t, int64_t, int64_t) HWY_ATTR { return relu_of(v); });
        break;
      case ops::Epilogue::relu6:
        change_sums(s, last, [](Floats v, int64_t, int64_t, int64_t) HWY_ATTR { return relu6_of(v); });
        break;
      case ops::Epilogue::residual:
        change_sums(s, last, [&](Floats v, int64_t row, int64_t col, int64_t n) HWY_ATTR {
          return hn::Add(v, like_y(row, col, n));
        });
        break;
      case ops::Epilogue::mask:
        change_sums(s, last, [&](Floats v, int64_t row, int64_t col, int64_t n) HWY_ATTR {
          return hn::IfThenElseZero(hn::Gt(like_y(row, col, n), zeros()), v);
        });
        break;
      case ops::Epilogue::mask6:
        change_sums(s, last, [&](Floats v, int64_t row, int64_t col, int64_t n) HWY_ATTR {
          return inside_six(like_y(row, col, n), v);
        });
        break;
    }
  }
}

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(pack_panel);
HWY_EXPORT(finish);
}  // namespace

PackPieces pack_pieces_function() { return &HWY_DYNAMIC_DISPATCH(pack_panel); }
FinishPieces finish_pieces_function() { return &HWY_DYNAMIC_DISPATCH(finish); }

}  // namespace situ::cpu
#endif
