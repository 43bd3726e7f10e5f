// winograd.h -- what back ends share about Winograd's tiles F(OUT x OUT, KERNEL x KERNEL): the points and where they
// are exact enough.
//
//   y tile = A^T [ (G w G^T) . (B^T x B) ] A            "." point by point, summed over channels: a product per point
//   dw     = G^T [ sum over tiles (B^T x B) . (A dy A^T) ] G
//
// F(4x4, 3x3) multiplies a quarter as often as the direct sum, F(2x2, 5x5) nine times for its twenty-five and
// F(2x2, 3x3) four for its nine; all round more than it does.
#pragma once
#include "ops/window.h"

namespace situ::ops::winograd {

// The four points of F(2, 3) are 0, 1, -1 and infinity; the six of F(4, 3) and F(2, 5) are 0, +-kNear, +-kFar and
// infinity: exact in binary, and a quarter of the error of the usual 1, -1, 2, -2.
inline constexpr int64_t kNearQuarters = 3, kFarQuarters = 6;
inline constexpr float kNear = 0.25f * kNearQuarters, kFar = 0.25f * kFarQuarters;

struct Tiles {
  int64_t out, side;    // pixels of a tile along an axis: written, read
  int64_t h, w, count;  // tiles of an image, and of all images
  int64_t points() const { return side * side; }
};
inline Tiles tiles_of(const Window& window, int64_t images, int64_t out) {
  const int64_t h = ceil_div(window.y.out, out), w = ceil_div(window.x.out, out);
  return {out, out + window.y.kernel - 1, h, w, images * h * w};
}

// For the window that slides over the images read (a data gradient: window_over_dy).
inline bool fits(const Window& window, int64_t kernel = 3) {
  for (const WindowAxis* a : {&window.y, &window.x})
    if (a->kernel != kernel || a->stride != 1 || a->dilation != 1 || a->before < 0) return false;
  return true;
}

// Of the sums that one channel contributes to, the shortest: at a corner of the image.
inline int64_t fewest_taps(const Window& w) {
  int64_t fewest = 1;
  for (const WindowAxis* a : {&w.y, &w.x}) {
    int64_t least = a->kernel;
    for (int64_t i : {int64_t{0}, a->out - 1}) least = std::min(least, a->taps_inside(i).end - a->taps_inside(i).begin);
    fewest *= least;
  }
  return fewest;
}

// The transforms' rounding grows with the root of the number of terms, what a sum may be off with the number itself:
// sums of fewer terms are exact enough only when formed directly. Fewer results of a tile are fewer powers of the
// points: F(2, 5) with half the terms is closer than F(4, 3).
inline bool exact_enough(int64_t terms, int64_t out, int64_t kernel) {
  return terms >= (out == 4 ? 256 : kernel == 5 ? 128 : 64);
}
// A tile's rounding is that of whole windows, even where most taps of a window lie outside: then it takes more
// channels.
inline bool exact_enough(const Window& window, int64_t channels, int64_t out) {
  const int64_t taps = fewest_taps(window), kernel = window.y.kernel;
  return exact_enough(channels * taps, out, kernel) &&
         exact_enough(channels * taps * taps * 9 / (4 * kernel * kernel), out, kernel);
}
// A weight's sum runs over the pixels written whose tap lies inside: at the kernel's corners the fewest.
inline int64_t fewest_pixels(const Window& w, int64_t images) {
  int64_t fewest = images;
  for (const WindowAxis* a : {&w.y, &w.x}) {
    int64_t least = a->out;
    for (int64_t tap : {int64_t{0}, a->kernel - 1})
      least = std::min(least, std::min(a->out, a->in + a->before - tap) - std::max<int64_t>(0, a->before - tap));
    fewest *= std::max<int64_t>(0, least);
  }
  return fewest;
}
// Its results are the kernel's taps: six points for five of them need no fewer terms than for four pixels.
inline bool exact_enough_dw(const Window& window, int64_t images, int64_t out) {
  return fewest_pixels(window, images) >= (out == 4 || window.y.kernel == 5 ? 256 : 64);
}

}  // namespace situ::ops::winograd
