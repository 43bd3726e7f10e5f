// operand.h -- whether an operand of the GEMM family is read through an image (operand.clh), and through which.
//
// An image wants places that are whole texels: offset, pitch and every step from vector to vector a multiple of four
// elements. What does not fit, is longer than the device's images, or stored as half, is read from the slab, in the
// same kernel text.
#pragma once
#include "backend/opencl/features.h"
#include "backend/opencl/kernels/tile.h"

namespace situ::opencl::kernels {

enum : int64_t { kFromSlab, kFromLine, kFromPlane };  // B_IMAGE

inline bool in_whole_texels(const TensorArg& t, std::initializer_list<int64_t> steps) {
  if (t.type.dtype != DType::f32 || t.offset % (kTexel * bytes_of(t.type.dtype)) != 0) return false;
  return std::all_of(steps.begin(), steps.end(), [](int64_t step) { return step % kTexel == 0; });
}

// The window over it starts at an address that buffers may have, so it may begin a little before the operand.
inline bool line_holds(const Target& target, const TensorArg& t) {
  const int64_t before = t.offset % target.alignment / bytes_of(t.type.dtype);
  return ceil_div(before + (t.rows() - 1) * t.pitch + t.cols(), kTexel) <= image_limits(target).line;
}

// Rows and columns of a place share an int: 16 bits of column.
inline bool plane_holds(const Target& target, const TensorArg& t) {
  const ImageLimits most = image_limits(target);
  const int64_t bytes = bytes_of(t.type.dtype);
  return most.pitch > 0 && t.offset % (most.base * kTexel * bytes) == 0 && t.offset % target.alignment == 0 &&
         t.pitch % (most.pitch * kTexel) == 0 && t.cols() < kPlaneRow && t.cols() / kTexel <= most.width &&
         t.rows() <= std::min<int64_t>(most.height, std::numeric_limits<int32_t>::max() / kPlaneRow);
}

// B_IMAGE for the right operand b; steps: all distances between vectors that a tile reads. `in_place`: its rows are
// rows of a matrix, as a plane wants it.
inline int64_t right_image(const Target& target, const Tile& tile, const TensorArg& b, bool in_place,
                           std::initializer_list<int64_t> steps) {
  const int64_t wanted = tuned(target, "gemm.IMAGE");
  if (wanted == kFromSlab || tile.vw < kTexel || !in_whole_texels(b, steps)) return kFromSlab;
  if (wanted == kFromPlane && in_place && plane_holds(target, b)) return kFromPlane;
  return line_holds(target, b) ? kFromLine : kFromSlab;
}

// A_IMAGE for the left operand; steps: the distances between runs of k.
inline int64_t left_image(const Target& target, const TensorArg& a, std::initializer_list<int64_t> steps) {
  const bool fits = tuned(target, "gemm.IMAGE_A") != 0 && in_whole_texels(a, steps) && line_holds(target, a);
  return fits ? kFromLine : kFromSlab;
}

// Adds an operand as `image` says and defines the macro, which is left out where there is no image.
inline void add_operand(Call& call, const TensorArg& tensor, std::string_view macro, int64_t image) {
  if (image == kFromSlab) return add_tensor(call, tensor);
  call.define(macro, image);
  int_of(tensor.rows() * tensor.pitch);
  call.arg(ImageArg{tensor, image == kFromPlane});
}

// From row to row of the right operand, as places count.
inline int64_t row_step(int64_t image, int64_t pitch) { return image == kFromPlane ? kPlaneRow : pitch; }

}  // namespace situ::opencl::kernels
