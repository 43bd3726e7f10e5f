// interleave.cl -- images into sheaves, VW images side by side, for kernels whose lanes are images (conv_images.cl), and
// back.
//
//   interleave_images   sheaf[b, y, x, c, l] = x[b * VW + l, y - top, x - left, c]      dense; zeros around and beyond the
//   spread_images       y[b * VW + l, y, x, c] = sheaf[b, y, x, c, l]                   last image
//
// A work-item takes a line of a sheaf. Where the line of x is contiguous it goes in blocks of VW values x VW images that
// are transposed in registers; the last block starts early.
#include "turn.clh"

#ifndef X_T
#define X_T float  // or half: how x is stored
#endif
#ifndef Y_T
#define Y_T float  // likewise the result
#endif

DEFINE_TURN(turn_images, VW)

// VW neighbouring values of each image of a sheaf, `step` apart; images from `lanes` on are zeros.
static inline void interleave_run(__global const X_T* in, int step, int lanes, __global const X_T* zeros,
                                  __global Y_T* out) {
  fv t[VW];
#pragma unroll
  for (int l = 0; l < VW; ++l) {
    __global const X_T* p = l < lanes ? in + l * step : zeros;
    t[l] = LOAD_AS(X_T, p);
  }
  turn_images(t);
#pragma unroll
  for (int l = 0; l < VW; ++l) STORE_AS(Y_T, t[l], out + l * VW);
}

static inline void interleave_one(__global const X_T* in, int step, int lanes, __global Y_T* out) {
  for (int l = 0; l < VW; ++l) PUT(Y_T, l < lanes ? AT(X_T, in, l * step) : 0.0f, out, l);
}

// Images of h x w x c into sheaves of ph x pw x c.
__kernel GROUP void interleave_images(TENSOR(const X_T, x), TENSOR(Y_T, y), int images, int h, int w, int c, int ph,
                                      int pw, int top, int left) {
  const int line = get_global_id(0), sheaf = get_global_id(1), iy = line - top, lanes = min(VW, images - sheaf * VW);
  if (line >= ph) return;
  const int first = max(left, 0), last = iy >= 0 && iy < h ? max(first, min(pw, left + w)) : first;
  const int step = h * w * x_pitch, count = (last - first) * c;
  __global Y_T* out = START(y) + (sheaf * ph + line) * pw * c * VW;
  __global const X_T* in = START(x) + sheaf * VW * step + (iy * w + first - left) * x_pitch;
  for (int i = 0; i < first * c; ++i) STORE_AS(Y_T, (fv)(0.0f), out + i * VW);
  for (int i = last * c; i < pw * c; ++i) STORE_AS(Y_T, (fv)(0.0f), out + i * VW);
  out += first * c * VW;
  if (x_pitch == c && count >= VW)
    for (int i = 0; i < count; i += VW) {
      const int at = min(i, count - VW);
      interleave_run(in + at, step, lanes, x_slab, out + at * VW);
    }
  else
    for (int i = 0; i < count; ++i) interleave_one(in + i / c * x_pitch + i % c, step, lanes, out + i * VW);
}

// Sheaves of h x w x c into images of that size.
__kernel GROUP void spread_images(TENSOR(const X_T, x), TENSOR(Y_T, y), int images, int h, int w, int c) {
  const int line = get_global_id(0), sheaf = get_global_id(1), lanes = min(VW, images - sheaf * VW);
  if (line >= h) return;
  const int step = h * w * y_pitch, count = w * c;
  __global const X_T* in = START(x) + (sheaf * h + line) * count * VW;
  __global Y_T* out = START(y) + sheaf * VW * step + line * w * y_pitch;
  if (y_pitch == c && count >= VW)
    for (int i = 0; i < count; i += VW) {
      const int at = min(i, count - VW);
      fv t[VW];
#pragma unroll
      for (int l = 0; l < VW; ++l) t[l] = LOAD_AS(X_T, in + (at + l) * VW);
      turn_images(t);
#pragma unroll
      for (int l = 0; l < VW; ++l)
        if (l < lanes) STORE_AS(Y_T, t[l], out + l * step + at);
    }
  else
    for (int i = 0; i < count; ++i)
      for (int l = 0; l < lanes; ++l) PUT(Y_T, AT(X_T, in, i * VW + l), out, l * step + i / c * y_pitch + i % c);
}
