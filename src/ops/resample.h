// resample.h -- which elements of an axis make up each element of the enlarged axis, and the other way round.
//
//   nearest   y[o] = x[o / factor]
//   bilinear  y[o] = (1 - w) x[i] + w x[i + 1], i + w = max(0, (o + 1/2) / factor - 1/2); x stays at its last element
#pragma once
#include <algorithm>
#include <vector>

#include "base/types.h"
#include "ir/attrs.h"

namespace situ::ops {

// y[o] = sum of weights[k] x[first + k]
struct WeightedTaps {
  int64_t first = 0;
  std::vector<double> weights;
};

inline WeightedTaps taps_at(int64_t o, int64_t size, int64_t factor, bool bilinear) {
  if (!bilinear) return {o / factor, {1}};
  const int64_t at = std::max<int64_t>(0, 2 * o + 1 - factor), i = at / (2 * factor);
  if (i + 1 >= size) return {size - 1, {1}};
  const double w = static_cast<double>(at % (2 * factor)) / static_cast<double>(2 * factor);
  return {i, {1 - w, w}};
}

// For each element of an axis of `size * factor`: its taps in the axis of `size`.
inline std::vector<WeightedTaps> upsample_taps(int64_t size, int64_t factor, bool bilinear) {
  std::vector<WeightedTaps> taps;
  for (int64_t o = 0; o < size * factor; ++o) taps.push_back(taps_at(o, size, factor, bilinear));
  return taps;
}

// The transpose: for each element of the axis of `size`, its taps in the axis of `size * factor`.
inline std::vector<WeightedTaps> downsample_taps(int64_t size, int64_t factor, bool bilinear) {
  std::vector<WeightedTaps> taps(static_cast<size_t>(size));
  for (int64_t o = 0; o < size * factor; ++o) {
    const WeightedTaps from = taps_at(o, size, factor, bilinear);
    for (size_t k = 0; k < from.weights.size(); ++k) {
      WeightedTaps& to = taps[static_cast<size_t>(from.first) + k];
      if (from.weights[k] == 0) continue;
      if (to.weights.empty()) to.first = o;
      to.weights.resize(static_cast<size_t>(o - to.first) + 1);
      to.weights.back() = from.weights[k];
    }
  }
  return taps;
}

// The taps of axis 1 or 2 of the images y that a node makes of x, either enlarging or gathering gradients.
inline std::vector<WeightedTaps> resample_taps(const ir::Attrs& attrs, const Shape& x, const Shape& y, int axis) {
  const int64_t factor = attrs.ints("factor")[static_cast<size_t>(axis - 1)];
  const bool bilinear = attrs.text("mode") == "bilinear";
  return y[axis] >= x[axis] && y[axis] == x[axis] * factor ? upsample_taps(x[axis], factor, bilinear)
                                                           : downsample_taps(y[axis], factor, bilinear);
}

}  // namespace situ::ops
