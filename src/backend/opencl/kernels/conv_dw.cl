// conv_dw.cl -- weight gradient of a convolution over NHWC, as a GEMM over the pixels, in slabs.
//
//   part[split, r, s, c, o] = sum over pixels (n, oy, ox) of the split's lines (n, oy):
//                             x[n, oy*sh - pt + r*dh, ox*sw - pl + s*dw, c] * dy[n, oy, ox, o]
//
// A row of the GEMM is (s, c) of one r (the rows of a tile share r, so a line of x lies inside the image for all of them
// or for none), a column an output channel. Along a line the pixels that lie inside for every row of the tile are
// walked without a test; the few at the borders one by one. Work-item (tile of r, panel of a group, split).
// `safe` counts the pixels of dy at which a vector may be read whole: with o < VW it reaches into the next pixel.
#include "tile.clh"
#include "window.clh"

typedef struct {
  __global const float* base;  // pixel (0, 0) of image 0 as seen by tap s = 0 and the group's first channel
  int offset[TM];              // of row i from base: its tap and channel
  int lo[TM], hi[TM];          // first and last ox whose pixel lies inside the line
  int first, last;             // ox inside for all rows
} Rows;

static inline Rows place_rows(__global const float* x, int pitch, int m0, Window g) {
  Rows rows;
  rows.base = x;
  rows.first = 0;
  rows.last = g.ow - 1;
#pragma unroll
  for (int i = 0; i < TM; ++i) {
    const int m = min(m0 + i, g.s * g.c - 1), s = m / g.c, shift = s * g.dw - g.pl;
    rows.offset[i] = shift * pitch + m - s * g.c;
    rows.lo[i] = shift >= 0 ? 0 : (-shift + g.sw - 1) / g.sw;
    rows.hi[i] = g.w - 1 - shift < 0 ? -1 : min(g.ow - 1, (g.w - 1 - shift) / g.sw);
    rows.first = max(rows.first, rows.lo[i]);
    rows.last = min(rows.last, rows.hi[i]);
  }
  return rows;
}

// Pixels from..to of a line, each tested: `a` points at the line in x, `b` in dy, pixel is the index of the line's first.
static inline void walk_tested(fv acc[TM][NV], __global const float* a, int a_step, __global const float* b, int b_step,
                               const int at[NV], const Rows* rows, int from, int to, int pixel, int safe, int lanes) {
#pragma unroll 1
  for (int ox = from; ox <= to; ++ox) {
    fv bv[NV];
    float av[TM];
    if (pixel + ox < safe)
      tile_load(bv, b + ox * b_step, at);
    else
#pragma unroll
      for (int j = 0; j < NV; ++j) bv[j] = j == 0 ? load_lanes(b + ox * b_step, 0, lanes) : (fv)(0.0f);
#pragma unroll
    for (int i = 0; i < TM; ++i) av[i] = ox >= rows->lo[i] && ox <= rows->hi[i] ? a[ox * a_step + rows->offset[i]] : 0.0f;
    tile_step(acc, av, bv);
  }
}

static inline void walk_inside(fv acc[TM][NV], __global const float* a, int a_step, __global const float* b, int b_step,
                               const int at[NV], const Rows* rows, int from, int to) {
  a += from * a_step;
  b += from * b_step;
  for (int ox = from; ox <= to; ++ox) {
    fv bv[NV];
    float av[TM];
    tile_load(bv, b, at);
#pragma unroll
    for (int i = 0; i < TM; ++i) av[i] = a[rows->offset[i]];
    tile_step(acc, av, bv);
    a += a_step;
    b += b_step;
  }
}

__kernel GROUP void conv_dw(TENSOR(const float, x), TENSOR(const float, dy), TENSOR(float, y), WINDOW_PARAMS, int lines,
                            int groups, int panels, int last, int lines_per_split, int safe) {
  const Window g = WINDOW;
  const Extra extras[4] = {{0, 0}, {0, 0}, {0, 0}, {0, 0}};
  const int tiles = (g.s * g.c + TM - 1) / TM, split = get_global_id(2);
  const int r = (int)get_global_id(0) / tiles, m0 = (int)get_global_id(0) % tiles * TM;
  const int group = (int)get_global_id(1) / panels, c0 = (int)get_global_id(1) % panels * TN;
  if (r >= g.r || group >= groups) return;
  int at[NV];
  place_vectors(at, c0, last);
  const Rows rows = place_rows(START(x) + group * g.c, x_pitch, m0, g);
  fv acc[TM][NV];
  tile_clear(acc);
  const int end = min(lines, (split + 1) * lines_per_split);
  for (int line = split * lines_per_split; line < end; ++line) {
    const int n = line / g.oh, iy = (line - n * g.oh) * g.sh - g.pt + r * g.dh, pixel = line * g.ow;
    if (iy < 0 || iy >= g.h) continue;
    __global const float* a = rows.base + (n * g.h + iy) * g.w * x_pitch;
    __global const float* b = START(dy) + pixel * dy_pitch + group * g.o + c0;
    const int to = min(rows.last, safe - pixel - 1), from = min(rows.first, to + 1);
    walk_tested(acc, a, g.sw * x_pitch, b, dy_pitch, at, &rows, 0, from - 1, pixel, safe, g.o);
    walk_inside(acc, a, g.sw * x_pitch, b, dy_pitch, at, &rows, from, to);
    walk_tested(acc, a, g.sw * x_pitch, b, dy_pitch, at, &rows, max(to + 1, 0), g.ow - 1, pixel, safe, g.o);
  }
  int row[TM];
#pragma unroll
  for (int i = 0; i < TM; ++i) row[i] = m0 + i < g.s * g.c ? ((split * g.r + r) * g.s * g.c) + m0 + i : -1;
  tile_store(acc, START(y), y_pitch, row, group * g.o, c0, g.o, at, extras);
}
