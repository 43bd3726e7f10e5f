// sheaves.h -- images side by side (kernels/interleave.cpp), for candidates whose lanes are images.
#pragma once
#include "backend/cpu/kernel.h"
#include "base/error.h"

namespace situ::cpu {

// Images of a sheaf: few, so that a batch has several and their launches find in a core's cache what the launch before
// has left there. A batch that no whole vectors make up is one sheaf.
inline int64_t images_of_sheaf(int64_t images, const device::Tuning& tuning) {
  const int64_t lanes = tuning.get("simd.lanes", 8);
  for (const int64_t vectors : {2, 1})
    if (images % (vectors * lanes) == 0) return vectors * lanes;
  return images;
}

// Images [N, H, W, C] as sheaves of h x w pixels, with `before` lines and columns of zeros; the last axis is
// (channel, image).
inline ir::Value interleave(device::Expansion& e, ir::Value x, int64_t h, int64_t w, const ir::Ints& before) {
  const Shape& shape = e.type(x).shape;
  const int64_t images = images_of_sheaf(shape[0], e.target().tuning);
  return e.launch("interleave_images", {x}, f32({shape[0] / images, h, w, shape[3] * images}), {{"before", before}});
}

// What a kernel sees of them: [sheaf, h, w, channel, image].
struct Sheaves {
  float* data = nullptr;
  int64_t count = 1, h = 0, w = 0, channels = 0, images = 0;  // images of one
  int64_t all_images() const { return count * images; }
  int64_t pixel() const { return channels * images; }
  int64_t line() const { return w * pixel(); }
  int64_t size() const { return h * line(); }
  // Of image n of the batch.
  float* at(int64_t y, int64_t x, int64_t c, int64_t n) const {
    return data + n / images * size() + y * line() + x * pixel() + c * images + n % images;
  }
};
inline Sheaves sheaves_of(const Operand& o, int64_t images) {
  SITU_ASSERT(o.pitch == o.cols(), "sheaves are dense");
  const Shape& s = o.shape();
  return {o.f32(), s[0], s[1], s[2], s[3] / images, images};
}

}  // namespace situ::cpu
