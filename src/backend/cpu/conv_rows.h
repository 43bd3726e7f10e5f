// conv_rows.h -- convolutions of images with few channels, as a network's first, a row of results at a time.
//
// The rows of x that a row of results reads are copied with the zeros around them, so that every pixel's window is a
// run of floats that begins at the same distance from its neighbour's: nothing is worked out pixel by pixel, and no
// window sticks out. Used by launches of their own (kernels/conv_rows.cpp) and in chains (kernels/conv_chain.cpp).
#pragma once
#include "backend/cpu/short_sums.h"
#include "backend/cpu/tile_table.h"
#include "ops/window.h"

namespace situ::cpu {

// The image's side of it.
struct ConvRows {
  ops::Window window;
  const float* x = nullptr;
  int64_t x_pitch = 0, channels = 0;
  // Floats of a copied row, and of as many as the kernel has.
  int64_t line() const { return ((window.x.out - 1) * window.x.stride + window.x.kernel) * channels; }
  int64_t copies() const { return window.y.kernel * line(); }
};

inline constexpr int64_t kMostKernelRows = 8;

// The copies behind a row of results. A row that the next results read as well is copied once: the copies are a ring of
// as many rows as the kernel has.
class PaddedRows {
 public:
  PaddedRows(const ConvRows& conv, float* copies) : conv_(conv), copies_(copies) {}
  // For result row `row`, counted over all images: where the kernel's rows meet it. To be asked for in ascending order.
  const float* const* lines(int64_t row);

 private:
  void copy_row(int64_t image, int64_t row, float* to) const;
  const ConvRows& conv_;
  float* copies_;
  int64_t image_ = -1, copied_ = 0;  // rows of this image up to here, counted from its top padding
  const float* lines_[kMostKernelRows] = {};
};

// The product's side: `short_sums` where it is one of so few terms.
struct ConvColumns {
  PanelSet panels;
  TileEpilogue epilogue;
  ShortProduct short_sums;
};

// Results y[first_row + q] of one row, q < window.x.out, for panels [panel0, panel1); y of the whole result.
void conv_row(const ConvRows& conv, const ConvColumns& columns, int64_t panel0, int64_t panel1,
              const float* const* lines, float* y, int64_t y_pitch, int64_t first_row);

}  // namespace situ::cpu
