// image_tiles-inl.h -- Winograd's tiles F(2x2, 5x5) of images side by side (sheaves.h), a vector of images at a time.
#if defined(SITU_BACKEND_CPU_IMAGE_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SITU_BACKEND_CPU_IMAGE_TILES_INL_H_
#undef SITU_BACKEND_CPU_IMAGE_TILES_INL_H_
#else
#define SITU_BACKEND_CPU_IMAGE_TILES_INL_H_
#endif

#include "backend/cpu/image_tiles.h"
#include "backend/cpu/winograd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {

// The points of channel c of one tile of x, images from n on: `to` takes the first; rows and points of a row are so far
// apart.
template <bool WHOLE>
HWY_INLINE void transform_tile(const Sheaves& x, int64_t ty, int64_t tx, int64_t c, int64_t n, float* to, int64_t row,
                               int64_t point) {
  const int64_t rest = x.all_images() - n, pixel = x.pixel(), line = x.line();
  const float* first = x.at(ty * kOut, tx * kOut, c, n);
  transform<InputLine<Tiles25>>(
      [&](int i, int j) HWY_ATTR { return load_up_to<WHOLE>(first + i * line + j * pixel, rest); },
      [&](int i, int j, Floats v) HWY_ATTR { hn::Store(v, Tag(), to + i * row + j * point); });
}

}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SITU_BACKEND_CPU_IMAGE_TILES_INL_H_
