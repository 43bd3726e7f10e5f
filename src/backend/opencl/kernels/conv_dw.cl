// conv_dw.cl -- weight gradient of a convolution over NHWC, as a GEMM over the pixels, in slabs.
//
//   part[split, r, s, c, o] = sum over the split's pixels (n, oy, ox), whole lines of them or any:
//                             x[n, oy*sh - pt + r*dh, ox*sw - pl + s*dw, c] * dy[n, oy, ox, o]
//
// conv_dw         a row of the GEMM is (s, c) of one r (the rows of a tile share r, so a line of x lies inside the image
//                 for all of them or for none), a column an output channel. Along a line the pixels that lie inside for
//                 every row of the tile are walked without a test, the few at the borders one by one.
// conv_dw_inside  for windows that never leave the image: a row is any (r, s, c), and where a pixel of dy meets x is read
//                 from a table: pixel_at[oy * ow + ox] = (oy*sh*w + ox*sw) * pitch. One long loop over an image's pixels.
// Work-item (tile of rows, panel of a group, split). `safe` counts the pixels of dy at which a vector may be read whole:
// with o < VW it reaches into the next pixel.
#include "tile.clh"
#include "window.clh"

typedef struct {
  __global const A_T* base;    // pixel (0, 0) of image 0 as seen by tap s = 0 and the group's first channel
  int offset[TM];              // of row i from base: its tap and channel
  int lo[TM], hi[TM];          // first and last ox whose pixel lies inside the line
  int first, last;             // ox inside for all rows
} Rows;

static inline Rows place_rows(__global const A_T* x, int pitch, int m0, Window g) {
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

// One row of B at pixel `pixel`: whole vectors, or where they would pass the end of dy, its o channels.
static inline void load_pixel(fv bv[NV], B_PARAM b, const int at[NV], int pixel, int safe, int channels) {
#if !B_IMAGE  // then all are whole
  if (pixel >= safe) {
#pragma unroll
    for (int j = 0; j < NV; ++j) bv[j] = j == 0 ? LOAD_LANES(B_T, b, 0, channels) : (fv)(0.0f);
    return;
  }
#endif
  tile_load(bv, B_AT(b), at);
}

// Pixels from..to of a line, each tested: `a` points at the line in x, `b` in dy, pixel is the index of the line's first.
static inline void walk_tested(fv acc[TM][NV], __global const A_T* a, int a_step, B_PARAM b, int b_step,
                               const int at[NV], const Rows* rows, __global const A_T* zeros, int from, int to, int pixel,
                               int safe, int channels) {
#pragma unroll 1
  for (int ox = from; ox <= to; ++ox) {
    fv bv[NV];
    __global const A_T* p[TM];
    load_pixel(bv, B_AT(b + ox * b_step), at, pixel + ox, safe, channels);
#pragma unroll
    for (int i = 0; i < TM; ++i)
      p[i] = ox >= rows->lo[i] && ox <= rows->hi[i] ? a + ox * a_step + rows->offset[i] : zeros;
    tile_step(acc, p, 0, bv);
  }
}

static inline void walk_inside(fv acc[TM][NV], __global const A_T* a, int a_step, B_PARAM b, int b_step,
                               const int at[NV], const Rows* rows, int from, int to) {
  __global const A_T* p[TM];
#pragma unroll
  for (int i = 0; i < TM; ++i) p[i] = a + rows->offset[i];
  b += from * b_step;
  for (int ox = from; ox <= to; ++ox) {
    fv bv[NV];
    tile_load(bv, B_AT(b), at);
    tile_step(acc, p, ox * a_step, bv);
    b += b_step;
  }
}

__kernel GROUP void conv_dw(TENSOR(const A_T, x), B_TENSOR(dy), TENSOR(Y_T, y), WINDOW_PARAMS, int lines,
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
    __global const A_T* a = rows.base + (n * g.h + iy) * g.w * x_pitch;
    const BPlace b = B_START(dy) + pixel * dy_pitch + group * g.o + c0;
    const int to = min(rows.last, safe - pixel - 1), from = min(rows.first, to + 1);
    walk_tested(acc, a, g.sw * x_pitch, B_AT(b), dy_pitch, at, &rows, x_slab, 0, from - 1, pixel, safe, g.o);
    walk_inside(acc, a, g.sw * x_pitch, B_AT(b), dy_pitch, at, &rows, from, to);
    walk_tested(acc, a, g.sw * x_pitch, B_AT(b), dy_pitch, at, &rows, x_slab, max(to + 1, 0), g.ow - 1, pixel, safe, g.o);
  }
  int row[TM];
#pragma unroll
  for (int i = 0; i < TM; ++i) row[i] = m0 + i < g.s * g.c ? ((split * g.r + r) * g.s * g.c) + m0 + i : -1;
  tile_store(acc, START(y), y_pitch, row, group * g.o, c0, g.o, at, extras);
}

// acc += the pixels first..stop-1 of an image; `a` points at it in x, `b` at pixel `first` of it in dy. From `whole` on
// vectors of dy are read lane by lane.
static inline void walk_image(fv acc[TM][NV], __global const A_T* a, const int from[TM], __global const int* pixel_at,
                              int first, int whole, int stop, B_PARAM b, int b_step, const int at[NV],
                              int channels) {
  __global const A_T* p[TM];
#pragma unroll
  for (int i = 0; i < TM; ++i) p[i] = a + from[i];
  for (int q = first; q < whole; ++q) {
    fv bv[NV];
    tile_load(bv, B_AT(b), at);
    tile_step(acc, p, pixel_at[q], bv);
    b += b_step;
  }
#pragma unroll 1
  for (int q = whole; q < stop; ++q) {
    fv bv[NV];
    load_pixel(bv, B_AT(b), at, 0, 0, channels);
    tile_step(acc, p, pixel_at[q], bv);
    b += b_step;
  }
}

__kernel GROUP void conv_dw_inside(TENSOR(const A_T, x), B_TENSOR(dy), TENSOR(Y_T, y), WINDOW_PARAMS,
                                   int pixels, int groups, int panels, int last, int pixels_per_split, int safe,
                                   __global const int* pixel_at) {
  const Window g = WINDOW;
  const Extra extras[4] = {{0, 0}, {0, 0}, {0, 0}, {0, 0}};
  const int m0 = (int)get_global_id(0) * TM, m = g.r * g.s * g.c, split = get_global_id(2), in_image = g.oh * g.ow;
  const int group = (int)get_global_id(1) / panels, c0 = (int)get_global_id(1) % panels * TN;
  if (m0 >= m || group >= groups) return;
  int at[NV], row[TM], from[TM];
  place_vectors(at, c0, last);
#pragma unroll
  for (int i = 0; i < TM; ++i) {
    const int e = min(m0 + i, m - 1), tap = e / g.c, r = tap / g.s, s = tap - r * g.s;
    row[i] = m0 + i < m ? split * m + m0 + i : -1;
    from[i] = (r * g.dh * g.w + s * g.dw) * x_pitch + e - tap * g.c;
  }
  fv acc[TM][NV];
  tile_clear(acc);
  const int end = min(pixels, (split + 1) * pixels_per_split);
  for (int pixel = split * pixels_per_split; pixel < end;) {
    const int n = pixel / in_image, first = pixel - n * in_image, stop = min(in_image, first + end - pixel);
    __global const A_T* a = START(x) + n * g.h * g.w * x_pitch + group * g.c;
    const BPlace b = B_START(dy) + pixel * dy_pitch + group * g.o + c0;
    walk_image(acc, a, from, pixel_at, first, clamp(safe - n * in_image, first, stop), stop, B_AT(b), dy_pitch, at, g.o);
    pixel += stop - first;
  }
  tile_store(acc, START(y), y_pitch, row, group * g.o, c0, g.o, at, extras);
}
