// conv_dw_images.cl -- weight gradient of a convolution with few channels: the lanes of a vector are images.
//
//   part[split, r, s, c, o] = sum over the split's lines (n, oy) of pixels:  x[n, oy*sh + r*dh, ox*sw + s*dw, c] * dy[n, oy, ox, o]
//
// x and dy come as sheaves [N / VW, h, w, c, VW] (interleave.cl), x with its padding, so a window never leaves the image.
// A work-item keeps the products of TM channels of dy and NV rows (r, s, c) of dw, a vector each; lanes are added at the
// end. Work-item (rows, channels, split): those of one split follow each other and find its lines in the cache. With
// `with_sums`, the work-items behind the last rows add up dy: sums[split, o], the parts of a bias's gradient.
#include "tile.clh"
#include "window.clh"

// Channels o0 .. of `pixels` pixels, one after the other in sheaves.
static inline void sum_pixels(__global const A_T* dy, int pixels, int o, int o0, __global float* to) {
  fv sum[TM];
#pragma unroll
  for (int i = 0; i < TM; ++i) sum[i] = (fv)(0.0f);
  for (int p = 0; p < pixels; ++p, dy += o * VW)
#pragma unroll
    for (int i = 0; i < TM; ++i) sum[i] += LOAD_AS(A_T, dy + min(o0 + i, o - 1) * VW);
#pragma unroll
  for (int i = 0; i < TM; ++i)
    if (o0 + i < o) to[o0 + i] = sum_of_lanes(sum[i]);
}

__kernel GROUP void conv_dw_images(TENSOR(const B_T, x), TENSOR(const A_T, dy), TENSOR(float, y), TENSOR(float, sums),
                                   WINDOW_PARAMS, int lines, int lines_per_split, int with_sums) {
  const Window g = WINDOW;
  const int k0 = (int)get_global_id(0) * NV, o0 = (int)get_global_id(1) * TM, rows = g.r * g.s * g.c;
  const int split = get_global_id(2), first = split * lines_per_split, end = min(lines, first + lines_per_split);
  if (o0 >= g.o) return;
  if (k0 >= rows) {
    if (with_sums && k0 < rows + NV)
      sum_pixels(START(dy) + first * g.ow * g.o * VW, (end - first) * g.ow, g.o, o0, START(sums) + split * sums_pitch);
    return;
  }
  int from[NV], channel[TM];
#pragma unroll
  for (int j = 0; j < NV; ++j) {
    const int row = min(k0 + j, rows - 1), tap = row / g.c, r = tap / g.s, s = tap - r * g.s;
    from[j] = ((r * g.dh * g.w + s * g.dw) * g.c + row - tap * g.c) * VW;
  }
#pragma unroll
  for (int i = 0; i < TM; ++i) channel[i] = min(o0 + i, g.o - 1) * VW;
  fv acc[TM][NV];
  tile_clear(acc);
  for (int line = first; line < end; ++line) {
    const int sheaf = line / g.oh, oy = line - sheaf * g.oh;
    __global const A_T* a = START(dy) + line * g.ow * g.o * VW;
    __global const B_T* b = START(x) + (sheaf * g.h + oy * g.sh) * g.w * g.c * VW;
    for (int ox = 0; ox < g.ow; ++ox, a += g.o * VW, b += g.sw * g.c * VW) {
      fv bv[NV];
      tile_load(bv, b, from);
#pragma unroll
      for (int i = 0; i < TM; ++i) {
        const fv av = LOAD_AS(A_T, a + channel[i]);
#pragma unroll
        for (int j = 0; j < NV; ++j) acc[i][j] = MAC(av, bv[j], acc[i][j]);
      }
    }
  }
#pragma unroll
  for (int j = 0; j < NV; ++j) {
    if (k0 + j >= rows) return;
    __global float* to = START(y) + (split * rows + k0 + j) * y_pitch + o0;
#pragma unroll
    for (int i = 0; i < TM; ++i)
      if (o0 + i < g.o) to[i] = sum_of_lanes(acc[i][j]);
  }
}
