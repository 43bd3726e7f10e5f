// conv.h -- the convolution that a conv2d or conv2d_dx node stands for, as its candidates see it.
#pragma once
#include "backend/opencl/kernels/tile.h"

namespace situ::opencl::kernels {

struct Implicit {
  ops::Window window;            // slides over the images read (conv_dx: over those written)
  int64_t images, c, o, groups;  // channels read and written, of a group
  int64_t pixels;                // written, that meet all taps
  bool is_product() const { return groups == 1 && ops::is_pointwise(window); }
  bool has_stride() const { return window.y.stride != 1 || window.x.stride != 1; }
};

inline Implicit forward_of(const ops::OpView& v) {
  const Shape &x = v.in(0).shape, &w = v.in(1).shape;
  const int64_t groups = v.attrs.integer("groups", 1);
  const ops::Window window = ops::window_of(v.attrs, {x[1], x[2]}, {w[0], w[1]});
  return {window, x[0], w[2], w[3] / groups, groups, x[0] * window.y.out * window.x.out};
}

// With stride 1 a window over dy; else the forward window.
inline Implicit gradient_of(const ops::OpView& v) {
  const Shape &dy = v.in(0).shape, &w = v.in(1).shape;
  const ir::Ints& size = v.attrs.ints("size");
  const int64_t groups = v.attrs.integer("groups", 1);
  ops::Window window = ops::window_of(v.attrs, size, {w[0], w[1]});
  const int64_t strides = window.y.stride * window.x.stride;
  if (strides == 1) window = ops::window_over_dy(window);
  return {window, dy[0], w[3] / groups, w[2], groups, ceil_div(dy[0] * size[0] * size[1], strides)};
}

}  // namespace situ::opencl::kernels
