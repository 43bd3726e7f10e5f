// depthwise.cl -- depthwise convolution over NHWC (one filter per channel) and its gradients.
//
//   depthwise     y[n, oy, ox, c]  = epilogue(sum_{r,s} x[n, oy*sh - pt + r*dh, ox*sw - pl + s*dw, c] * w[r, s, c])
//   depthwise_dx  dx[n, iy, ix, c] = epilogue(sum_{r,s} dy[n, (iy + pt - r*dh) / sh, (ix + pl - s*dw) / sw, c] * w[r, s, c])
//   depthwise_dw  part[split, r, s, c] = sum over the split's lines of x[under the tap, c] * dy[n, oy, ox, c]
//
// A work-item of depthwise owns TM neighbouring pixels of a line, `tiles` times one after the other, and walks `chunk`
// vectors of VW channels of them; one of depthwise_dx TM pixels of a phase (conv.cl: with a larger stride those that share
// their taps; the phases of the same pixels of dy follow each other); one of depthwise_dw KR x KS taps of a vector. VW <= C: the last vector
// starts early (common.clh). Taps outside the image read zeros. With stride 1 the data gradient is `depthwise` with `flip`.
#define NV 1
#include "tile.clh"
#include "window.clh"

#ifndef KR
#define KR 3  // rows of taps that a work-item of depthwise_dw sums side by side
#endif
#ifndef KS
#define KS 0  // taps of a row: depthwise loads a column of x once for all of them, 0: once for each; depthwise_dw: side by side
#endif
#ifndef KSW
#define KSW 1  // depthwise with KS, depthwise_dw: the stride along a line; depthwise_dw: 0 if taps are dilated
#endif

// acc[i] += one row of taps at TM pixels; `line` points at the column of x under the first tap of the first pixel, which
// is column `first` of the image and may lie outside.
static inline void add_taps(fv acc[TM][NV], __global const A_T* line, __global const A_T* zeros, int pitch, int first,
                            Window g, __global const float* w, int w_step) {
#if KS
  fv columns[(TM - 1) * KSW + KS];
#pragma unroll
  for (int j = 0; j < (TM - 1) * KSW + KS; ++j)
    columns[j] = LOAD_AS(A_T, (uint)(first + j) < (uint)g.w ? line + j * pitch : zeros);
#pragma unroll
  for (int s = 0; s < KS; ++s) {
    const fv wv = LOAD(w + s * w_step);
#pragma unroll
    for (int i = 0; i < TM; ++i) acc[i][0] = MAC(columns[i * KSW + s], wv, acc[i][0]);
  }
#else
  for (int s = 0; s < g.s; ++s) {
    const fv wv = LOAD(w + s * w_step);
#pragma unroll
    for (int i = 0; i < TM; ++i) {
      const int j = i * g.sw + s * g.dw;
      acc[i][0] = MAC(LOAD_AS(A_T, (uint)(first + j) < (uint)g.w ? line + j * pitch : zeros), wv, acc[i][0]);
    }
  }
#endif
}

__kernel GROUP void depthwise(TENSOR(const A_T, x), TENSOR(const float, w), TENSOR(Y_T, y) EPILOGUE_PARAMS,
                              WINDOW_PARAMS, int lines, int flip, int chunk, int tiles) {
  const Window g = WINDOW;
  const Extra extras[4] = EPILOGUE_EXTRAS;
  const int v0 = (int)get_global_id(0) * chunk, v1 = min(v0 + chunk, VECTORS(g.c)), line = get_global_id(1);
  if (v0 >= v1 || line >= lines) return;
  const int n = line / g.oh, iy0 = (line - n * g.oh) * g.sh - g.pt, w_step = flip ? -w_pitch : w_pitch;
  for (int t = 0; t < tiles; ++t) {
    const int ox = ((int)get_global_id(2) * tiles + t) * TM, ix = ox * g.sw - g.pl;
    if (ox >= g.ow) return;
    int row[TM];
#pragma unroll
    for (int i = 0; i < TM; ++i) row[i] = ox + i < g.ow ? line * g.ow + ox + i : -1;
    for (int v = v0; v < v1; ++v) {
      const int c0 = v * VW, c = min(c0, g.c - VW), at[NV] = {c - c0};
      __global const float* w_start = START(w) + (flip ? g.r * g.s - 1 : 0) * w_pitch + c;
      fv acc[TM][NV];
      tile_clear(acc);
      for (int r = 0; r < g.r; ++r) {
        const int iy = iy0 + r * g.dh;
        if ((uint)iy >= (uint)g.h) continue;
        add_taps(acc, START(x) + ((n * g.h + iy) * g.w + ix) * x_pitch + c, x_slab, x_pitch, ix, g,
                 w_start + r * g.s * w_step, w_step);
      }
      tile_store(acc, START(y), y_pitch, row, 0, c0, g.c, at, extras);
    }
  }
}

__kernel GROUP void depthwise_dx(TENSOR(const A_T, x), TENSOR(const float, w), TENSOR(Y_T, y) EPILOGUE_PARAMS,
                                 WINDOW_PARAMS, int pixels, int chunk) {
  const Window g = WINDOW;
  const Extra extras[4] = EPILOGUE_EXTRAS;
  const int v0 = (int)get_global_id(0) * chunk, v1 = min(v0 + chunk, VECTORS(g.c)), phases = g.sh * g.sw;
  const int m0 = (int)get_global_id(1) / phases * TM, phase = (int)get_global_id(1) % phases;
  if (v0 >= v1 || m0 >= pixels) return;
  const int phase_y = phase / g.sw, phase_x = phase % g.sw;
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
          acc[i][0] = MAC(LOAD_AS(A_T, there ? START(x) + c + (pixel0[i] + iy * g.w + ix) * x_pitch : x_slab), wv, acc[i][0]);
        }
      }
    }
    tile_store(acc, START(y), y_pitch, row, 0, c0, g.c, at, extras);
  }
}

// acc += the pixels of a line of dy (at b) times what lies under KR rows of taps: a[r] is the column of x under row r's
// first tap of pixel 0, column `first` of the image, or zeros, one `step` from the next.
static inline void add_line(fv acc[KR][KS + !KS], __global const A_T* const a[KR], const int step[KR],
                            __global const A_T* zeros, __global const B_T* b, int b_step, Window g, int first) {
#if KSW  // columns that the next pixel meets too stay in registers
#define KEPT (KS > KSW ? KS - KSW : 0)
  fv under[KR][KS + !KS];
#pragma unroll
  for (int s = 0; s < KEPT; ++s)
#pragma unroll
    for (int r = 0; r < KR; ++r)
      under[r][KSW + s] = LOAD_AS(A_T, (uint)(first + s) < (uint)g.w ? a[r] + s * step[r] : zeros);
  for (int ox = 0; ox < g.ow; ++ox) {
    const fv bv = LOAD_AS(B_T, b + ox * b_step);
#pragma unroll
    for (int s = 0; s < KS; ++s) {
      const int j = ox * KSW + s, there = (uint)(first + j) < (uint)g.w;
#pragma unroll
      for (int r = 0; r < KR; ++r) {
        under[r][s] = s < KEPT ? under[r][min(s + KSW, KS - 1)] : LOAD_AS(A_T, there ? a[r] + j * step[r] : zeros);
        acc[r][s] = MAC(under[r][s], bv, acc[r][s]);
      }
    }
  }
#else
  for (int ox = 0; ox < g.ow; ++ox) {
    const fv bv = LOAD_AS(B_T, b + ox * b_step);
#pragma unroll
    for (int s = 0; s < KS; ++s) {
      const int j = ox * g.sw + s * g.dw, there = (uint)(first + j) < (uint)g.w;
#pragma unroll
      for (int r = 0; r < KR; ++r)
        acc[r][s] = MAC(LOAD_AS(A_T, there ? a[r] + j * step[r] : zeros), bv, acc[r][s]);
    }
  }
#endif
}

__kernel GROUP void depthwise_dw(TENSOR(const A_T, x), TENSOR(const B_T, dy), TENSOR(float, y), WINDOW_PARAMS,
                                 int lines, int lines_per_split) {
  const Window g = WINDOW;
  const int groups = (g.s + KS - 1) / max(KS, 1), split = get_global_id(2);
  const int v = get_global_id(0), r0 = (int)get_global_id(1) / groups * KR, s0 = (int)get_global_id(1) % groups * KS;
  if (v >= VECTORS(g.c) || r0 >= g.r) return;
  const int c = vector_start(v, g.c), end = min(lines, (split + 1) * lines_per_split);
  fv acc[KR][KS + !KS];
#pragma unroll
  for (int r = 0; r < KR; ++r)
#pragma unroll
    for (int s = 0; s < KS; ++s) acc[r][s] = (fv)(0.0f);
  for (int line = split * lines_per_split; line < end; ++line) {
    const int n = line / g.oh, iy0 = (line - n * g.oh) * g.sh - g.pt + r0 * g.dh, ix = s0 * g.dw - g.pl;
    __global const A_T* a[KR];
    int step[KR];
#pragma unroll
    for (int r = 0; r < KR; ++r) {
      const int iy = iy0 + r * g.dh, there = (uint)iy < (uint)g.h;
      a[r] = there ? START(x) + ((n * g.h + iy) * g.w + ix) * x_pitch + c : x_slab;
      step[r] = there ? x_pitch : 0;
    }
    add_line(acc, a, step, x_slab, START(dy) + line * g.ow * dy_pitch + c, dy_pitch, g, ix);
  }
#pragma unroll
  for (int r = 0; r < KR; ++r)
#pragma unroll
    for (int s = 0; s < KS; ++s)
      if (r0 + r < g.r && s0 + s < g.s)
        store_vector(acc[r][s], START(y) + ((split * g.r + r0 + r) * g.s + s0 + s) * y_pitch, v, g.c, 0);
}
