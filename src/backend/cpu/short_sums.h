// short_sums.h -- products of so few terms that all weights of a vector of results stay in registers:
//
//     y[i][j] = cut(bias[j] + sum over lines l and terms k:  line[l][i * step + k] * b[(l * length + k) * b_step + j])
//
// A register tile of sixteen terms ends as soon as it has begun: it loses a tenth around its loop. Here rows of a pass
// by weights that stay, nothing begins or ends, and each row's store goes on beside the sums of the next. The
// expanding convolutions of a network's first layers, and its first convolution itself.
#pragma once
#include <cstdint>

#include "backend/cpu/tile_table.h"

namespace situ::cpu {

inline constexpr int64_t kMostShortLines = 3;

struct ShortSums {
  const float* line[kMostShortLines] = {};
  int64_t step = 0;  // from row to row
  int64_t m = 0;     // rows
  const float* b = nullptr;
  int64_t b_step = 0, columns = 0;  // whole vectors
  SumRange range{};                 // its bias that of the first column
  float* y = nullptr;
  int64_t y_pitch = 0;
};
using ShortSumsFunction = void (*)(const ShortSums&);
// For so many lines of so many terms; null where there is none. Results are a register tile's, bit by bit.
ShortSumsFunction short_sums_function(int64_t lines, int64_t length);

// Whether a product is one of these, with all that it takes.
struct ShortProduct {
  ShortSumsFunction run = nullptr;  // null: it is not
  SumRange range;
};
ShortProduct short_product(int64_t lines, int64_t length, int64_t columns, const TileEpilogue& epilogue,
                           const device::Tuning& tuning);
// Rows of a, of which `sums` has lines, step and number, by panels [panel0, panel1); y of the first of the rows.
void multiply_short(const ShortProduct& product, const PanelSet& panels, int64_t panel0, int64_t panel1, ShortSums sums,
                    float* y, int64_t y_pitch);

}  // namespace situ::cpu
