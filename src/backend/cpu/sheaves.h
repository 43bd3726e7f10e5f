// sheaves.h -- images side by side (kernels/interleave.cpp), for candidates whose lanes are images.
#pragma once
#include "device/candidate.h"

namespace situ::cpu {

// Images [N, H, W, C] as one sheaf of h x w pixels, with `before` lines and columns of zeros; the last axis is
// (channel, image).
inline ir::Value interleave(device::Expansion& e, ir::Value x, int64_t h, int64_t w, const ir::Ints& before) {
  const Shape& shape = e.type(x).shape;
  return e.launch("interleave_images", {x}, f32({1, h, w, shape[3] * shape[0]}), {{"before", before}});
}

}  // namespace situ::cpu
