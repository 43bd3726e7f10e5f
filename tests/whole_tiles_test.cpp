// whole_tiles_test.cpp -- products that need not begin and end with every register tile (backend/cpu/short_sums.h,
// backend/cpu/paired_rows.h) give what tiles give, bit by bit: where work is cut decides which of them computes a row.
#include <gtest/gtest.h>

#include <random>

#include "backend/cpu/paired_rows.h"
#include "backend/cpu/short_sums.h"
#include "backend/cpu/simd_info.h"
#include "harness.h"

namespace situ::test {
namespace {

using Floats = std::vector<float>;
using ops::Epilogue;

Floats drawn(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  Floats list(static_cast<size_t>(count));
  for (float& v : list) v = static_cast<float>(static_cast<double>(random()) * 0x1p-30 - 2);
  return list;
}
cpu::TileEpilogue epilogue_of(const std::vector<Epilogue>& kinds, const float* bias, const float* residual,
                              int64_t pitch) {
  cpu::TileEpilogue epilogue;
  for (const Epilogue kind : kinds) {
    cpu::TileEpilogue::Word& word = epilogue.words[static_cast<size_t>(epilogue.count++)];
    word = {kind, kind == Epilogue::bias ? bias : kind == Epilogue::residual ? residual : nullptr, pitch};
  }
  return epilogue;
}
const std::vector<Epilogue> kEpilogues[] = {{}, {Epilogue::bias}, {Epilogue::relu}, {Epilogue::bias, Epilogue::relu6}};
const std::vector<Epilogue> kResiduals[] = {{Epilogue::residual},
                                            {Epilogue::bias, Epilogue::residual},
                                            {Epilogue::bias, Epilogue::residual, Epilogue::relu6},
                                            {Epilogue::residual, Epilogue::relu}};

// Some more rows than tiles have, fewer, and whole ones; rows of a further apart than they are long.
TEST(ShortSums, AreThoseOfRegisterTiles) {
  const int64_t lanes = cpu::simd_info().lanes, columns = 3 * lanes, pitch = columns + 5;
  bool any = false;
  for (const auto& [lines, length] : {std::pair(1, 8), {1, 16}, {1, 24}, {3, 3}, {3, 9}})
    for (const int64_t m : {1, 7, 8, 21})
      for (const auto& kinds : kEpilogues) {
        SCOPED_TRACE(fmt::format("{} lines of {} terms, {} rows, {} words", lines, length, m, kinds.size()));
        const int64_t step = length + 3, line = (m - 1) * step + length, terms = lines * length;
        const Floats a = drawn(lines * line, 1), b = drawn(terms * columns, 2), bias = drawn(columns, 3);
        const cpu::TileEpilogue epilogue = epilogue_of(kinds, bias.data(), nullptr, 0);
        device::Tuning tuning;
        tuning.set("simd.lanes", lanes);
        const cpu::ShortProduct product = cpu::short_product(lines, length, columns, epilogue, tuning);
        if (!product.run) continue;
        any = true;
        // A panel of two vectors and one of the third.
        cpu::PanelSet panels;
        Floats packed(static_cast<size_t>(2 * terms * 2 * lanes));
        panels.tn = panels.b_step = 2 * lanes;
        panels.n = columns;
        panels.panel_stride = terms * panels.tn;
        for (int64_t j = 0; j < columns; ++j)
          for (int64_t k = 0; k < terms; ++k)
            packed[static_cast<size_t>(j / panels.tn * panels.panel_stride + k * panels.tn + j % panels.tn)] =
                b[static_cast<size_t>(k * columns + j)];
        panels.b = packed.data();
        Floats y(static_cast<size_t>(m * pitch), 77.0f), wanted = y;
        cpu::ShortSums sums;
        for (int64_t l = 0; l < lines; ++l) sums.line[l] = a.data() + l * line;
        sums.step = step;
        sums.m = m;
        multiply_short(product, panels, 0, 2, sums, y.data(), pitch);
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < columns; j += lanes) {
            const float* rows[3 * 4];
            cpu::TileSegment segments[3];
            int64_t numbers[4] = {i, i, i, i};
            for (int64_t l = 0; l < lines; ++l) {
              segments[l] = {l * length * columns, length};
              std::fill_n(rows + 4 * l, 4, a.data() + l * line + i * step);
            }
            cpu::Tile tile{.a = rows, .segments = segments, .count = lines, .b = b.data() + j};
            tile.b_step = columns;
            tile.y = wanted.data();
            tile.y_pitch = pitch;
            tile.rows = numbers;
            tile.col = j;
            tile.m = 1;
            tile.n = lanes;
            tile.epilogue = &epilogue;
            cpu::tile_function(4, 1, false)(tile);
          }
        EXPECT_EQ(y, wanted);
      }
  if (!any) GTEST_SKIP() << "no short sums with these vectors";
}

TEST(ShortSums, AreNotForOtherEpiloguesAndParts) {
  const int64_t lanes = cpu::simd_info().lanes;
  device::Tuning tuning;
  tuning.set("simd.lanes", lanes);
  const Floats like(1);
  EXPECT_FALSE(cpu::short_product(1, 16, 2 * lanes, epilogue_of(kResiduals[0], nullptr, like.data(), 1), tuning).run);
  if (lanes > 1) {
    EXPECT_FALSE(cpu::short_product(1, 16, 2 * lanes - 1, {}, tuning).run);
  }
  EXPECT_FALSE(cpu::short_product(1, 17, 2 * lanes, {}, tuning).run);
}

TEST(PairedRows, AreThoseOfRegisterTiles) {
  const int64_t lanes = cpu::simd_info().lanes, width = 2 * lanes, rows = cpu::kPairedRows, tiles = 3;
  const auto function = cpu::paired_rows_function();
  if (!function) GTEST_SKIP() << "no paired rows with these vectors";
  std::vector<std::vector<Epilogue>> all(std::begin(kEpilogues), std::end(kEpilogues));
  all.insert(all.end(), std::begin(kResiduals), std::end(kResiduals));
  for (const int64_t terms : {6, 24, 66})
    for (const int64_t row_step : {1, 3})
      for (const bool accumulate : {false, true})
        for (const auto& kinds : all) {
          SCOPED_TRACE(fmt::format("{} terms, {} words, every row {}, accumulate {}", terms, kinds.size(), row_step,
                                   accumulate));
          const int64_t a_stride = (terms + 2) * rows + 8, pitch = width + 3, last = tiles * rows * row_step;
          const Floats a = drawn(tiles * a_stride, 1), b = drawn((terms + 2) * width, 2), bias = drawn(width, 3),
                       residual = drawn(last * pitch, 4);
          const cpu::TileEpilogue epilogue = epilogue_of(kinds, bias.data(), residual.data(), pitch);
          Floats y = drawn(last * pitch, 5), wanted = y;
          cpu::PairedRows p{.a = a.data(), .a_stride = a_stride, .tiles = tiles, .b = b.data(), .terms = terms};
          p.y = y.data();
          p.y_row = row_step * pitch;
          p.accumulate = accumulate;
          ASSERT_TRUE(take_epilogue(epilogue, &p));
          p.residual_row *= row_step;
          p.ahead = b.data();
          p.ahead_lines = 1;
          function(p);
          for (int64_t t = 0; t < tiles; ++t) {
            const float* panel = a.data() + t * a_stride;
            const cpu::TileSegment segment{0, terms};
            int64_t numbers[cpu::kPairedRows];
            for (int64_t i = 0; i < rows; ++i) numbers[i] = (t * rows + i) * row_step;
            cpu::Tile tile{.a = &panel, .segments = &segment, .count = 1, .b = b.data()};
            tile.b_step = width;
            tile.y = wanted.data();
            tile.y_pitch = pitch;
            tile.rows = numbers;
            tile.m = rows;
            tile.n = width;
            tile.accumulate = accumulate;
            tile.epilogue = epilogue.count ? &epilogue : nullptr;
            cpu::paired_tile_function(2)(tile);
          }
          EXPECT_EQ(y, wanted);
        }
}

TEST(PairedRows, LeaveOtherEpiloguesToTiles) {
  const Floats like(1);
  const auto takes = [&](const std::vector<Epilogue>& kinds) {
    cpu::PairedRows rows;
    return take_epilogue(epilogue_of(kinds, like.data(), like.data(), 1), &rows);
  };
  EXPECT_TRUE(takes({Epilogue::bias, Epilogue::residual, Epilogue::relu}));
  EXPECT_FALSE(takes({Epilogue::mask}));
  EXPECT_FALSE(takes({Epilogue::relu, Epilogue::residual}));
  EXPECT_FALSE(takes({Epilogue::residual, Epilogue::bias}));
  EXPECT_FALSE(takes({Epilogue::residual, Epilogue::residual}));
  EXPECT_FALSE(takes({Epilogue::bias, Epilogue::relu, Epilogue::residual}));
}

}  // namespace
}  // namespace situ::test
