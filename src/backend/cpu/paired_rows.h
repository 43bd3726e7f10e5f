// paired_rows.h -- whole tiles of paired terms (paired.h), one below the other, in one call.
//
// What a register tile does at its beginning and end is a tenth of the time of a short product: here a tile's results
// are finished while the next one's sums begin, rows of y lie at one distance, and the panel that is needed next is
// asked for line by line between the terms. Results are the register tile's (tile.h), bit by bit.
#pragma once
#include <cstdint>

#include "backend/cpu/tile.h"

namespace situ::cpu {

struct PairedRows {
  const float* a = nullptr;  // panels of kPairedRows rows, `a_stride` apart
  int64_t a_stride = 0, tiles = 0;
  const float* b = nullptr;  // a panel of two vectors
  int64_t terms = 0;         // whole patterns
  float* y = nullptr;        // of the first row and column
  int64_t y_row = 0;         // from row to row
  bool accumulate = false;   // add what y holds
  const float* bias = nullptr;
  const float* residual = nullptr;  // of the first row and column
  int64_t residual_row = 0;
  float low = 0, high = 0;
  const float* ahead = nullptr;  // what is read next
  int64_t ahead_lines = 0;       // of it to be asked for with each pattern
};
using PairedRowsFunction = void (*)(const PairedRows&);
PairedRowsFunction paired_rows_function();  // null where there is none

// The epilogue's part of it, for column 0 and row 0; false: it does something else.
bool take_epilogue(const TileEpilogue& epilogue, PairedRows* rows);

}  // namespace situ::cpu
