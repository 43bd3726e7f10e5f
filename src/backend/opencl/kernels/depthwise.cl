// depthwise.cl -- depthwise convolution over NHWC (one filter per channel) and its gradients.
//
//   depthwise     y[n, oy, ox, c]  = epilogue(sum_{r,s} x[n, oy*sh - pt + r*dh, ox*sw - pl + s*dw, c] * w[r, s, c])
//   depthwise_dx  dx[n, iy, ix, c] = epilogue(sum_{r,s} dy[n, (iy + pt - r*dh) / sh, (ix + pl - s*dw) / sw, c] * w[r, s, c])
//   depthwise_dw  part[split, r, s, c] = sum over the split's lines of x[under the tap, c] * dy[n, oy, ox, c]
//
// A work-item owns a vector of VW channels and TM pixels (depthwise_dw: TM taps of one r). VW <= C: the last vector
// starts early (common.clh). Taps outside the image read zeros. With stride 1 the data gradient is `depthwise` with
// `flip` set; with a larger one, pixels of one phase (conv.cl) share their taps, and axis 2 of the grid counts phases.
#define NV 1
#include "tile.clh"
#include "window.clh"

// acc[i] += x under tap (dy, dx) of pixel i * w, where the pixel lies inside.
static inline void tap(fv acc[TM][NV], __global const float* x, __global const float* zeros, int pitch,
                       const int pixel0[TM], const int py[TM], const int px[TM], int dy, int dx, Window g, fv w) {
#pragma unroll
  for (int i = 0; i < TM; ++i) {
    const int iy = py[i] + dy, ix = px[i] + dx;
    const int inside = ((uint)iy < (uint)g.h) & ((uint)ix < (uint)g.w);
    __global const float* p = inside ? x + (pixel0[i] + iy * g.w + ix) * pitch : zeros;
    acc[i][0] = MAC(LOAD(p), w, acc[i][0]);
  }
}

__kernel GROUP void depthwise(TENSOR(const float, x), TENSOR(const float, w), TENSOR(float, y) EPILOGUE_PARAMS,
                              WINDOW_PARAMS, int pixels, int flip) {
  const Window g = WINDOW;
  const Extra extras[4] = EPILOGUE_EXTRAS;
  const int c0 = (int)get_global_id(0) * VW, m0 = (int)get_global_id(1) * TM;
  if (c0 >= g.c || m0 >= pixels) return;
  const int c = min(c0, g.c - VW), at[NV] = {c - c0};
  int pixel0[TM], py[TM], px[TM], row[TM];
  int inside = 1;
  Pixel q = pixel_at(m0, g.oh, g.ow);
#pragma unroll
  for (int i = 0; i < TM; ++i) {
    row[i] = m0 + i < pixels ? m0 + i : -1;
    pixel0[i] = q.n * g.h * g.w;
    py[i] = q.y * g.sh - g.pt;
    px[i] = q.x * g.sw - g.pl;
    if (m0 + i + 1 < pixels) q = next_pixel(q, g.oh, g.ow);
    inside &= py[i] >= 0 && py[i] + (g.r - 1) * g.dh < g.h && px[i] >= 0 && px[i] + (g.s - 1) * g.dw < g.w;
  }
  fv acc[TM][NV];
  tile_clear(acc);
  __global const float *p[TM], *x_start = START(x) + c;
#pragma unroll
  for (int i = 0; i < TM; ++i) p[i] = x_start + (inside ? pixel0[i] + py[i] * g.w + px[i] : 0) * x_pitch;
  for (int r = 0; r < g.r; ++r) {
    for (int s = 0; s < g.s; ++s) {
      const int t = r * g.s + s, step = (r * g.dh * g.w + s * g.dw) * x_pitch;
      const fv wv = LOAD(START(w) + (flip ? g.r * g.s - 1 - t : t) * w_pitch + c);
      if (inside)
#pragma unroll
        for (int i = 0; i < TM; ++i) acc[i][0] = MAC(LOAD(p[i] + step), wv, acc[i][0]);
      else
        tap(acc, x_start, x_slab, x_pitch, pixel0, py, px, r * g.dh, s * g.dw, g, wv);
    }
  }
  tile_store(acc, START(y), y_pitch, row, 0, c0, g.c, at, extras);
}

__kernel GROUP void depthwise_dx(TENSOR(const float, x), TENSOR(const float, w), TENSOR(float, y) EPILOGUE_PARAMS,
                                 WINDOW_PARAMS, int pixels) {
  const Window g = WINDOW;
  const Extra extras[4] = EPILOGUE_EXTRAS;
  const int c0 = (int)get_global_id(0) * VW, m0 = (int)get_global_id(1) * TM;
  if (c0 >= g.c || m0 >= pixels) return;
  const int c = min(c0, g.c - VW), at[NV] = {c - c0};
  const int phase_y = (int)get_global_id(2) / g.sw, phase_x = (int)get_global_id(2) % g.sw;
  const int qh = (g.oh + g.sh - 1) / g.sh, qw = (g.ow + g.sw - 1) / g.sw;  // a phase's pixels; `pixels`: of all images
  int pixel0[TM], qy[TM], qx[TM], row[TM];
  Pixel q = pixel_at(m0, qh, qw);
#pragma unroll
  for (int i = 0; i < TM; ++i) {
    const int iy = phase_y + g.sh * q.y, ix = phase_x + g.sw * q.x;
    row[i] = m0 + i < pixels && iy < g.oh && ix < g.ow ? (q.n * g.oh + iy) * g.ow + ix : -1;
    pixel0[i] = q.n * g.h * g.w;
    qy[i] = q.y;
    qx[i] = q.x;
    if (m0 + i + 1 < pixels) q = next_pixel(q, qh, qw);
  }
  fv acc[TM][NV];
  tile_clear(acc);
  for (int r = 0; r < g.r; ++r) {
    for (int s = 0; s < g.s; ++s) {
      const int dy = phase_y + g.pt - r * g.dh, dx = phase_x + g.pl - s * g.dw;
      if (dy % g.sh != 0 || dx % g.sw != 0) continue;
      const fv wv = LOAD(START(w) + (r * g.s + s) * w_pitch + c);
      tap(acc, START(x) + c, x_slab, x_pitch, pixel0, qy, qx, dy / g.sh, dx / g.sw, g, wv);
    }
  }
  tile_store(acc, START(y), y_pitch, row, 0, c0, g.c, at, extras);
}

__kernel GROUP void depthwise_dw(TENSOR(const float, x), TENSOR(const float, dy), TENSOR(float, y), WINDOW_PARAMS,
                                 int lines, int lines_per_split) {
  const Window g = WINDOW;
  const Extra extras[4] = {{0, 0}, {0, 0}, {0, 0}, {0, 0}};
  const int tiles = (g.s + TM - 1) / TM, split = get_global_id(2);
  const int c0 = (int)get_global_id(0) * VW, r = (int)get_global_id(1) / tiles, s0 = (int)get_global_id(1) % tiles * TM;
  if (c0 >= g.c || r >= g.r) return;
  const int c = min(c0, g.c - VW), at[NV] = {c - c0};
  fv acc[TM][NV];
  tile_clear(acc);
  const int end = min(lines, (split + 1) * lines_per_split);
  for (int line = split * lines_per_split; line < end; ++line) {
    const int n = line / g.oh, iy = (line - n * g.oh) * g.sh - g.pt + r * g.dh;
    if (iy < 0 || iy >= g.h) continue;
    __global const float* a = START(x) + (n * g.h + iy) * g.w * x_pitch + c;
    __global const float* b = START(dy) + line * g.ow * dy_pitch + c;
    for (int ox = 0; ox < g.ow; ++ox) {
      const fv bv = LOAD(b + ox * dy_pitch);
#pragma unroll
      for (int i = 0; i < TM; ++i) {
        const int ix = ox * g.sw - g.pl + (s0 + i) * g.dw, inside = ix >= 0 && ix < g.w;
        acc[i][0] = MAC(LOAD(inside ? a + ix * x_pitch : x_slab), bv, acc[i][0]);
      }
    }
  }
  int row[TM];
#pragma unroll
  for (int i = 0; i < TM; ++i) row[i] = s0 + i < g.s ? (split * g.r + r) * g.s + s0 + i : -1;
  tile_store(acc, START(y), y_pitch, row, 0, c0, g.c, at, extras);
}
