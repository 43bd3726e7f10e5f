// sheaves.h -- images side by side in vectors (interleave.cl), and the tiles of kernels that work on them.
#pragma once
#include "backend/opencl/kernels/tile.h"

namespace situ::opencl::kernels {

inline int64_t sheaves_of(const Target& target, int64_t images) { return ceil_div(images, tuned(target, "gemm.VW")); }

// Images [N, H, W, C] as sheaves of h x w pixels, with zeros before and after them; the last axis is (channel, image).
inline ir::Value interleave(Expansion& e, ir::Value x, int64_t h, int64_t w, const ir::Ints& before) {
  const Shape& shape = e.type(x).shape;
  const int64_t vw = tuned(e.target(), "gemm.VW");
  return e.launch("interleave_images", {x}, f32({sheaves_of(e.target(), shape[0]), h, w, shape[3] * vw}),
                  {{"before", before}});
}

inline double interleave_seconds(double elements) { return 8 * elements / kNominalBytes + kNominalLaunch; }

// Rows of a tile for so many channels: as tuned, or fewer where they divide the channels more evenly.
inline int64_t even_rows(int64_t channels, int64_t most) { return ceil_div(channels, ceil_div(channels, most)); }

}  // namespace situ::opencl::kernels
