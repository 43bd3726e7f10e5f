// depthwise3.h -- one row of a depthwise convolution of 3 x 3 taps, for its own launches (kernels/depthwise3.cpp) and
// for chains of convolutions that keep the rows it reads and writes near (kernels/conv_chain.cpp).
#pragma once
#include <cstdint>

#include "backend/cpu/tile.h"

namespace situ::cpu {

// Three rows of the source: where they begin, and the elements from pixel to pixel. A row outside the image is one of
// zeros that goes nowhere.
struct DepthwiseLines {
  const float* first[3];
  int64_t step[3];
  const float* next = nullptr;  // the row after the last of them, which is read next
  int64_t pitch = 0;
  int64_t line = 0;  // from row to row
};
// The weights of kernel rows 0 to 2 of these lines, tap s at [r] + s * along.
struct DepthwiseWeights {
  const float* row[3];
  int64_t along = 0;
};

// Where a row's results go. Without an epilogue the range is applied, else only that.
struct DepthwiseResult {
  int64_t channels = 0;
  float* y = nullptr;  // of pixel 0
  int64_t y_pitch = 0;
  SumRange range;
  const TileEpilogue* epilogue = nullptr;
  int64_t below = 0;            // pixels to those that are written next
  const float* like = nullptr;  // the epilogue's last operand that is like the result
  int64_t like_pitch = 0;
};

// What one row's results are made of: `columns` of the source, beginning `before` columns inside the first result's.
struct DepthwiseRow {
  DepthwiseLines lines;
  DepthwiseWeights weights;
  int64_t before = 0, columns = 0, pixel0 = 0, results = 0;
};

// For rows that are near, with a range and no epilogue; stride 1 or 2.
using DepthwiseForward = void (*)(const DepthwiseResult&, const DepthwiseRow&);
DepthwiseForward depthwise3_near_function(int64_t stride);

// Two rows of results, `below` pixels apart, from four lines: with
//   t0 = x0 - x2, t1 = x1 + x2, t2 = x2 - x1, t3 = x1 - x3   and   g0 = u, g1 = (u + v + w) / 2, g2 = (u - v + w) / 2,
//   g3 = w
// the sums of a column are t0 g0 + t1 g1 + t2 g2 and t1 g1 - t2 g2 - t3 g3 (Winograd's F(2,3), down the columns): four
// products where there were six, for cores that add beside multiplying. Stride 1.
struct DepthwiseRows {
  const float* first[4] = {};
  int64_t step[4] = {};
  DepthwiseWeights weights;
  int64_t before = 0, columns = 0, results = 0;
};
using DepthwisePair = void (*)(const DepthwiseResult&, const DepthwiseRows&);
DepthwisePair depthwise3_near_pair_function();

// A small image that lies near as a whole, every pixel of which has a result of its own: its rows follow each other
// `line` elements apart, pixels `step`. Taps meet the pixel `above` and `before` their result's first.
struct DepthwiseImage {
  const float* first = nullptr;
  int64_t step = 0, line = 0;
  int64_t in_h = 0, in_w = 0, out_h = 0, out_w = 0, above = 0, before = 0;
  DepthwiseWeights weights;
  const float* zeros = nullptr;  // one pixel
};
using DepthwiseWhole = void (*)(const DepthwiseResult&, const DepthwiseImage&);
DepthwiseWhole depthwise3_near_image_function();

}  // namespace situ::cpu
