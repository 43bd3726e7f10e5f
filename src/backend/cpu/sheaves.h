// sheaves.h -- images side by side (kernels/interleave.cpp), for candidates whose lanes are images.
#pragma once
#include "backend/cpu/kernel.h"
#include "base/error.h"

namespace situ::cpu {

// Images [N, H, W, C] as one sheaf of h x w pixels, with `before` lines and columns of zeros; the last axis is
// (channel, image).
inline ir::Value interleave(device::Expansion& e, ir::Value x, int64_t h, int64_t w, const ir::Ints& before) {
  const Shape& shape = e.type(x).shape;
  return e.launch("interleave_images", {x}, f32({1, h, w, shape[3] * shape[0]}), {{"before", before}});
}

// What a kernel sees of them: [h, w, channels, images].
struct Sheaf {
  float* data = nullptr;
  int64_t h = 0, w = 0, channels = 0, images = 0;
  float* at(int64_t y, int64_t x, int64_t c) const { return data + ((y * w + x) * channels + c) * images; }
};
inline Sheaf sheaf_of(const Operand& o, int64_t images) {
  SITU_ASSERT(o.pitch == o.cols() && o.shape()[0] == 1, "all images make one dense sheaf");
  return {o.f32(), o.shape()[1], o.shape()[2], o.cols() / images, images};
}

}  // namespace situ::cpu
