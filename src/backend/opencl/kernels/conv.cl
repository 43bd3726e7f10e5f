// conv.cl -- convolution over NHWC as an implicit GEMM, and its data gradient.
//
//   conv     y[n, oy, ox, o]  = epilogue(sum_{r,s,c} x[n, oy*sh - pt + r*dh, ox*sw - pl + s*dw, c] * w[r, s, c, o])
//   conv_dx  dx[n, iy, ix, c] = epilogue(sum_{r,s,o} dy[n, (iy + pt - r*dh) / sh, (ix + pl - s*dw) / sw, o] * w[r, s, c, o])
//            over the taps where both quotients are whole. With stride 1 it is `conv` on reversed taps.
//
// A row of the GEMM is a pixel of y (pixels of all images in one list), a column an output channel, and k = (r, s, c).
// The weights are panels (pack.cl: conv_dx takes reversed taps with C and O exchanged) or, for conv, w itself.
// Nothing is gathered. Where the window lies inside the image for all TM pixels of a tile, element k of each window is
// offsets[k] away from its corner: one loop over k. Elsewhere, for each tap, the tile holds TM pointers to pixels of x,
// and a tap outside the image points at the zeros at the start of the slab.
// conv_dx with a stride: pixels of dx with the same (iy mod sh, ix mod sw), a phase, see the same taps; a tile stays in
// one phase, and axis 2 of the grid counts phases.
#include "tile.clh"
#include "window.clh"

// What taps outside the image read: the zeros at the start of the slab, or with an image nothing.
#if A_IMAGE
#define NO_PIXEL 0
#else
#define NO_PIXEL x_slab
#endif

// One tap for pixels that may lie outside x: pixel i under the tap is (py[i] + dy, px[i] + dx), its values start at
// x + from[i] + step.
static inline BPlace tap(fv acc[TM][NV], A_PARAM x, __global const A_T* zeros, const int from[TM], const int py[TM],
                         const int px[TM], int step, int dy, int dx, Window g, B_PARAM b, int b_step, const int at[NV]) {
#if A_IMAGE
  int met[TM], some = 0;
#pragma unroll
  for (int i = 0; i < TM; ++i)
    some |= met[i] = ((uint)(py[i] + dy) < (uint)g.h) & ((uint)(px[i] + dx) < (uint)g.w);
  for (int c = 0; some && c < g.c; c += 4) {
    float4 four[TM];
#pragma unroll
    for (int i = 0; i < TM; ++i) four[i] = met[i] ? A_TEXEL(x + (from[i] + step + c)) : (float4)(0.0f);
    tile_four(acc, four, B_AT(b + c * b_step), b_step, at);
  }
  return b + g.c * b_step;
#else
  __global const A_T* p[TM];
  int any = 0;
#pragma unroll
  for (int i = 0; i < TM; ++i) {
    const int inside = ((uint)(py[i] + dy) < (uint)g.h) & ((uint)(px[i] + dx) < (uint)g.w);
    any |= inside;
    p[i] = inside ? x + (from[i] + step) : zeros;
  }
  if (!any) return b + g.c * b_step;
  for (int c = 0;;) {
    const int count = min(ZERO_RUN, g.c - c);
    for (int k = 0; k < count; ++k) {
      fv bv[NV];
      tile_load(bv, B_AT(b), at);
      tile_step(acc, p, k, bv);
      b += b_step;
    }
    c += ZERO_RUN;
    if (c >= g.c) return b;
#pragma unroll
    for (int i = 0; i < TM; ++i) p[i] = p[i] == zeros ? zeros : p[i] + ZERO_RUN;
  }
#endif
}

// All taps for pixels whose window lies inside x and starts at x + from[i].
static inline void walk_inside(fv acc[TM][NV], A_PARAM x, const int from[TM], __global const int* offsets, int k,
                               B_PARAM b, int b_step, const int at[NV]) {
  APlace p[TM];
#pragma unroll
  for (int i = 0; i < TM; ++i) p[i] = x + from[i];
#if A_IMAGE
  for (int j = 0; j < k; j += 4) {
    float4 four[TM];
#pragma unroll
    for (int i = 0; i < TM; ++i) four[i] = A_TEXEL(p[i] + offsets[j]);
    tile_four(acc, four, B_AT(b), b_step, at);
    b += 4 * b_step;
  }
#else
  for (int j = 0; j < k; ++j) {
    fv bv[NV];
    tile_load(bv, B_AT(b), at);
    tile_step(acc, p, offsets[j], bv);
    b += b_step;
  }
#endif
}

__kernel GROUP void conv(A_TENSOR(x), B_TENSOR(b), TENSOR(Y_T, y) EPILOGUE_PARAMS, WINDOW_PARAMS,
                         int pixels, int groups, int panels, int b_step, int b_group, int b_panel, int last,
                         __global const int* offsets, int tiles) {
  const Window g = WINDOW;
  const Extra extras[4] = EPILOGUE_EXTRAS;
  const int group = (int)get_global_id(1) / panels, panel = (int)get_global_id(1) % panels, c0 = panel * TN;
  if (group >= groups) return;
  const BPlace b_start = B_START(b) + group * b_group + panel * b_panel;
  const APlace x_start = A_START(x) + group * g.c;
  int at[NV];
  place_vectors(at, c0, last);
  for (int t = 0; t < tiles; ++t) {
    const int m0 = ((int)get_global_id(0) * tiles + t) * TM;
    if (m0 >= pixels) return;
    int from[TM], py[TM], px[TM], row[TM];
    int inside = 1;
    Pixel q = pixel_at(m0, g.oh, g.ow);
#pragma unroll
    for (int i = 0; i < TM; ++i) {
      row[i] = m0 + i < pixels ? m0 + i : -1;
      py[i] = q.y * g.sh - g.pt;
      px[i] = q.x * g.sw - g.pl;
      from[i] = ((q.n * g.h + py[i]) * g.w + px[i]) * x_pitch;
      if (m0 + i + 1 < pixels) q = next_pixel(q, g.oh, g.ow);
      inside &= (py[i] >= 0) & (py[i] + (g.r - 1) * g.dh < g.h) & (px[i] >= 0) & (px[i] + (g.s - 1) * g.dw < g.w);
    }
    fv acc[TM][NV];
    tile_clear(acc);
    if (inside) {
      walk_inside(acc, A_AT(x_start), from, offsets, g.r * g.s * g.c, B_AT(b_start), b_step, at);
    } else {
      BPlace p = b_start;
      for (int r = 0; r < g.r; ++r)
        for (int s = 0; s < g.s; ++s)
          p = tap(acc, A_AT(x_start), NO_PIXEL, from, py, px, (r * g.dh * g.w + s * g.dw) * x_pitch, r * g.dh, s * g.dw,
                  g, B_AT(p), b_step, at);
    }
    tile_store(acc, START(y), y_pitch, row, group * g.o, c0, g.o, at, extras);
  }
}

__kernel GROUP void conv_dx(A_TENSOR(x), B_TENSOR(b), TENSOR(Y_T, y) EPILOGUE_PARAMS,
                            WINDOW_PARAMS, int pixels, int groups, int panels, int tiles) {
  const Window g = WINDOW;
  const Extra extras[4] = EPILOGUE_EXTRAS;
  const int group = (int)get_global_id(1) / panels, panel = (int)get_global_id(1) % panels, c0 = panel * TN;
  if (group >= groups) return;
  const int phase_y = (int)get_global_id(2) / g.sw, phase_x = (int)get_global_id(2) % g.sw;
  const int qh = (g.oh + g.sh - 1) / g.sh, qw = (g.ow + g.sw - 1) / g.sw;  // a phase's pixels; `pixels`: of all images
  const BPlace b_start = B_START(b) + (group * panels + panel) * (g.r * g.s * g.c * TN);
  const APlace x_start = A_START(x) + group * g.c;
  int at[NV];
  place_vectors(at, c0, c0 + TN);
  for (int t = 0; t < tiles; ++t) {
    const int m0 = ((int)get_global_id(0) * tiles + t) * TM;
    if (m0 >= pixels) return;
    int from[TM], qy[TM], qx[TM], row[TM];
    Pixel q = pixel_at(m0, qh, qw);
#pragma unroll
    for (int i = 0; i < TM; ++i) {
      const int iy = phase_y + g.sh * q.y, ix = phase_x + g.sw * q.x;
      row[i] = m0 + i < pixels && iy < g.oh && ix < g.ow ? (q.n * g.oh + iy) * g.ow + ix : -1;
      from[i] = ((q.n * g.h + q.y) * g.w + q.x) * x_pitch;
      qy[i] = q.y;
      qx[i] = q.x;
      if (m0 + i + 1 < pixels) q = next_pixel(q, qh, qw);
    }
    fv acc[TM][NV];
    tile_clear(acc);
    BPlace p = b_start;
    for (int r = g.r - 1; r >= 0; --r) {
      for (int s = g.s - 1; s >= 0; --s) {
        const int dy = phase_y + g.pt - r * g.dh, dx = phase_x + g.pl - s * g.dw;
        if (dy % g.sh != 0 || dx % g.sw != 0)
          p += g.c * TN;
        else
          p = tap(acc, A_AT(x_start), NO_PIXEL, from, qy, qx, (dy / g.sh * g.w + dx / g.sw) * x_pitch, dy / g.sh,
                  dx / g.sw, g, B_AT(p), TN, at);
      }
    }
    tile_store(acc, START(y), y_pitch, row, group * g.o, c0, g.o, at, extras);
  }
}
