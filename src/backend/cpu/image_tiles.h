// image_tiles.h -- what the kernels of tiles F(2x2, 5x5) with images in the lanes share (winograd_images.cpp,
// winograd_dw_images.cpp).
#pragma once
#include <algorithm>

#include "backend/cpu/sheaves.h"
#include "backend/cpu/winograd.h"

namespace situ::cpu {

inline constexpr int64_t kSide = 6, kOut = 2;  // pixels of a tile along an axis: read, written
inline constexpr int64_t kMostChannels = 16;   // transformed tiles of more would not stay in the L1 cache

inline bool fits_image_tiles(const WinogradConv& conv) {
  return conv.fits(5) && std::max(conv.c, conv.o) <= kMostChannels;
}

// x as sheaves that hold whole tiles of the window, with zeros around.
inline ir::Value interleave_tiles(device::Expansion& e, ir::Value x, const ops::Window& window) {
  const auto size = [](const ops::WindowAxis& a) { return round_up(a.out, kOut) + kSide - kOut; };
  return interleave(e, x, size(window.y), size(window.x), {window.y.before, window.x.before});
}

}  // namespace situ::cpu
