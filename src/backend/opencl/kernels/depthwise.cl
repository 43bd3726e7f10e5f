// depthwise.cl -- depthwise convolution over NHWC (one filter per channel) and its gradients.
//
//   depthwise     y[n, oy, ox, c]  = epilogue(sum_{r,s} x[n, oy*sh - pt + r*dh, ox*sw - pl + s*dw, c] * w[r, s, c])
//   depthwise_dx  dx[n, iy, ix, c] = epilogue(sum_{r,s} dy[n, (iy + pt - r*dh) / sh, (ix + pl - s*dw) / sw, c] * w[r, s, c])
//   depthwise_dw  part[split, r, s, c] = sum over the split's lines of x[under the tap, c] * dy[n, oy, ox, c]
//
// A work-item owns TM pixels (depthwise_dw: TM taps of one r) and walks `chunk` vectors of VW channels of them: where they
// lie is worked out once. VW <= C: the last vector starts early (common.clh). Taps outside the image read zeros. With
// stride 1 the data gradient is `depthwise` with `flip` set; with a larger one, pixels of one phase (conv.cl) share their
// taps, and axis 2 of the grid counts phases.
#define NV 1
#include "tile.clh"
#include "window.clh"

// Bit k: position at + k * step lies within 0 .. extent - 1.
static inline uint bits_inside(int at, int step, int taps, int extent) {
  uint bits = 0;
  for (int k = 0; k < taps; ++k) bits |= (uint)((uint)(at + k * step) < (uint)extent) << k;
  return bits;
}

__kernel GROUP void depthwise(TENSOR(const float, x), TENSOR(const float, w), TENSOR(float, y) EPILOGUE_PARAMS,
                              WINDOW_PARAMS, int pixels, int flip, int chunk) {
  const Window g = WINDOW;
  const Extra extras[4] = EPILOGUE_EXTRAS;
  const int v0 = (int)get_global_id(0) * chunk, v1 = min(v0 + chunk, VECTORS(g.c)), m0 = (int)get_global_id(1) * TM;
  if (v0 >= v1 || m0 >= pixels) return;
  int row[TM], from[TM];  // the pixel written; the element under the first tap, which may lie outside
  uint rows[TM], columns[TM];
  int inside = 1;
  Pixel q = pixel_at(m0, g.oh, g.ow);
#pragma unroll
  for (int i = 0; i < TM; ++i) {
    const int py = q.y * g.sh - g.pt, px = q.x * g.sw - g.pl;
    row[i] = m0 + i < pixels ? m0 + i : -1;
    from[i] = ((q.n * g.h + py) * g.w + px) * x_pitch;
    rows[i] = bits_inside(py, g.dh, g.r, g.h);
    columns[i] = bits_inside(px, g.dw, g.s, g.w);
    inside &= py >= 0 && py + (g.r - 1) * g.dh < g.h && px >= 0 && px + (g.s - 1) * g.dw < g.w;
    if (m0 + i + 1 < pixels) q = next_pixel(q, g.oh, g.ow);
  }
  for (int v = v0; v < v1; ++v) {
    const int c0 = v * VW, c = min(c0, g.c - VW), at[NV] = {c - c0};
    __global const float *x_start = START(x) + c, *w_start = START(w) + c;
    fv acc[TM][NV];
    tile_clear(acc);
    for (int r = 0; r < g.r; ++r) {
      for (int s = 0; s < g.s; ++s) {
        const int t = r * g.s + s, step = (r * g.dh * g.w + s * g.dw) * x_pitch;
        const fv wv = LOAD(w_start + (flip ? g.r * g.s - 1 - t : t) * w_pitch);
        if (inside)
#pragma unroll
          for (int i = 0; i < TM; ++i) acc[i][0] = MAC(LOAD(x_start + from[i] + step), wv, acc[i][0]);
        else
#pragma unroll
          for (int i = 0; i < TM; ++i) {
            const int there = (rows[i] >> r) & (columns[i] >> s) & 1;
            acc[i][0] = MAC(LOAD(there ? x_start + from[i] + step : x_slab), wv, acc[i][0]);
          }
      }
    }
    tile_store(acc, START(y), y_pitch, row, 0, c0, g.c, at, extras);
  }
}

__kernel GROUP void depthwise_dx(TENSOR(const float, x), TENSOR(const float, w), TENSOR(float, y) EPILOGUE_PARAMS,
                                 WINDOW_PARAMS, int pixels, int chunk) {
  const Window g = WINDOW;
  const Extra extras[4] = EPILOGUE_EXTRAS;
  const int v0 = (int)get_global_id(0) * chunk, v1 = min(v0 + chunk, VECTORS(g.c)), m0 = (int)get_global_id(1) * TM;
  if (v0 >= v1 || m0 >= pixels) return;
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
  for (int v = v0; v < v1; ++v) {
    const int c0 = v * VW, c = min(c0, g.c - VW), at[NV] = {c - c0};
    fv acc[TM][NV];
    tile_clear(acc);
    for (int r = 0; r < g.r; ++r) {
      const int dy = phase_y + g.pt - r * g.dh;
      if (dy % g.sh != 0) continue;
      for (int s = 0; s < g.s; ++s) {
        const int dx = phase_x + g.pl - s * g.dw;
        if (dx % g.sw != 0) continue;
        const fv wv = LOAD(START(w) + (r * g.s + s) * w_pitch + c);
#pragma unroll
        for (int i = 0; i < TM; ++i) {
          const int iy = qy[i] + dy / g.sh, ix = qx[i] + dx / g.sw;
          const int there = ((uint)iy < (uint)g.h) & ((uint)ix < (uint)g.w);
          acc[i][0] = MAC(LOAD(there ? START(x) + c + (pixel0[i] + iy * g.w + ix) * x_pitch : x_slab), wv, acc[i][0]);
        }
      }
    }
    tile_store(acc, START(y), y_pitch, row, 0, c0, g.c, at, extras);
  }
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
