// winograd.h -- what back ends share about Winograd's tiles F(OUT x OUT, 3 x 3): the points and where they are exact
// enough.
//
//   y tile = A^T [ (G w G^T) . (B^T x B) ] A            "." point by point, summed over channels: a product per point
//   dw     = G^T [ sum over tiles (B^T x B) . (A dy A^T) ] G
//
// OUT = 4 multiplies a quarter as often as the direct sum, OUT = 2 four ninths; both round more than it does.
#pragma once
#include "ops/window.h"

namespace situ::ops::winograd {

// The points are 0, 1, -1 and infinity for OUT = 2; for OUT = 4 they are 0, +-kNear, +-kFar and infinity: exact in
// binary, and a quarter of the error of the usual 1, -1, 2, -2.
inline constexpr int64_t kNearQuarters = 3, kFarQuarters = 6;
inline constexpr float kNear = 0.25f * kNearQuarters, kFar = 0.25f * kFarQuarters;

struct Tiles {
  int64_t out, h, w, count;  // outputs of a tile along an axis; tiles of an image, and of all images
  int64_t points() const { return (out + 2) * (out + 2); }
};
inline Tiles tiles_of(const Window& window, int64_t images, int64_t out) {
  const int64_t h = ceil_div(window.y.out, out), w = ceil_div(window.x.out, out);
  return {out, h, w, images * h * w};
}

// For the window that slides over the images read (a data gradient: window_over_dy).
inline bool fits(const Window& window) {
  for (const WindowAxis* a : {&window.y, &window.x})
    if (a->kernel != 3 || a->stride != 1 || a->dilation != 1 || a->before < 0) return false;
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
// sums of fewer terms are exact enough only when formed directly.
inline bool exact_enough(int64_t terms, int64_t out) { return terms >= (out == 4 ? 256 : 64); }
// A tile's rounding is that of whole windows, even where most taps of a window lie outside: then it takes more
// channels.
inline bool exact_enough(const Window& window, int64_t channels, int64_t out) {
  const int64_t taps = fewest_taps(window);
  return exact_enough(channels * taps, out) && exact_enough(channels * taps * taps / 4, out);
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
inline bool exact_enough_dw(const Window& window, int64_t images, int64_t out) {
  return exact_enough(fewest_pixels(window, images), out);
}

}  // namespace situ::ops::winograd
