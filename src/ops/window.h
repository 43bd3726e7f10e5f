// window.h -- the geometry of a sliding window, shared by convolutions, pooling and their kernels.
//
// Along one axis, tap k of output o reads input   o * stride - before + k * dilation.
// Positions outside 0 .. in-1 are padding: zeros for a convolution, nothing at all for pooling.
#pragma once
#include <algorithm>
#include <utility>

#include "ops/op.h"

namespace situ::ops {

struct Taps {
  int64_t begin = 0, end = 0;
};

struct WindowAxis {
  int64_t in = 1, out = 1, kernel = 1, stride = 1, dilation = 1, before = 0, after = 0;

  int64_t position(int64_t o, int64_t k) const { return o * stride - before + k * dilation; }
  Taps taps_inside(int64_t o) const;              // the taps of output o that read real input
  int64_t output_at(int64_t i, int64_t k) const;  // the output whose tap k reads input i; -1: none
};

struct Window {
  WindowAxis y, x;
};

// Whether it meets every pixel once and alone: a convolution is a matrix product then.
inline bool is_pointwise(const Window& w) {
  const auto is = [](const WindowAxis& a) { return a.kernel == 1 && a.stride == 1 && a.before == 0 && a.in == a.out; };
  return is(w.y) && is(w.x);
}

// From the attributes stride=[1,1], dilation=[1,1], pad=[top,left,bottom,right]; fails with a sentence if the window
// does not fit. `size` is the input's [H,W].
Window window_of(const Attrs& attrs, const Ints& size, const Ints& kernel);

// With stride 1 a data gradient is a convolution too: its window slides over dy, and its padding is what the kernel
// exceeds the forward one by.
inline Window window_over_dy(Window forward) {
  for (WindowAxis* a : {&forward.y, &forward.x}) {
    std::swap(a->in, a->out);
    a->before = (a->kernel - 1) * a->dilation - a->before;
    a->after = (a->kernel - 1) * a->dilation - a->after;
  }
  return forward;
}

// The window over images that hold its padding as zeros, so that it never leaves them.
inline Window padded_window(Window w) {
  for (WindowAxis* a : {&w.y, &w.x}) {
    a->in = (a->out - 1) * a->stride + (a->kernel - 1) * a->dilation + 1;
    a->before = a->after = 0;
  }
  return w;
}

inline Taps WindowAxis::taps_inside(int64_t o) const {
  const int64_t start = position(o, 0);
  const int64_t begin = start < 0 ? ceil_div(-start, dilation) : 0;
  const int64_t end = start < in ? std::min(kernel, (in - 1 - start) / dilation + 1) : 0;
  return {std::min(begin, end), end};
}

inline int64_t WindowAxis::output_at(int64_t i, int64_t k) const {
  const int64_t reached = i + before - k * dilation;
  return reached < 0 || reached % stride != 0 || reached / stride >= out ? -1 : reached / stride;
}

}  // namespace situ::ops
