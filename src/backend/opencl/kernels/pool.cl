// pool.cl -- max and average pooling over NHWC, and their gradients.
//
//   max_pool       y[n, oy, ox, c]  = max over the window's taps inside x
//   max_pool_grad  dx[n, iy, ix, c] = epilogue(sum of dy over the windows whose first maximum (row-major) is this pixel)
//   avg_pool       y[n, oy, ox, c]  = sum over the taps inside x / divisor      divisor: taps inside, or all (count_pad)
//   avg_pool_grad  dx[n, iy, ix, c] = sum over the windows that hold this pixel of dy / divisor
//
// No two work-items write one element: max_pool_grad and avg_pool_grad gather, each pixel of dx looks at the windows that
// hold it; max_pool_grad_cells, for windows that do not overlap, fills the cell of sh x sw pixels around a window;
// max_pool_grad_pairs, for windows of at most two cells each way, finds the winners of the four that reach into a cell.
// A unit is one vector of VW <= C channels of one pixel (or cell); a work-item does `chunk` units. The last vector starts
// early (common.clh); `whole`: a work-item does all vectors of its pixels. Channels that fit one vector are its LANES live
// ones, loaded and stored in a few pieces of constant size. In the gradients g.h, g.w are the sizes of the pooled image
// (dy) and g.oh, g.ow those of dx.
#include "tile.clh"
#include "window.clh"

#ifndef LANES
#define LANES 0  // channels of a pixel if one vector holds them all, else 0
#endif
#ifndef KR
#define KR 0  // lines of the window, or 0: an argument. Constants let the common small windows unroll
#endif
#ifndef KS
#define KS 0  // pixels in a line of the window, or 0
#endif
#ifndef KSH
#define KSH 0  // stride along y, or 0
#endif
#ifndef KSW
#define KSW 0  // stride along x, or 0
#endif

#ifndef X_T
#define X_T float  // or half: how x is stored
#endif
#ifndef D_T
#define D_T float  // likewise dy
#endif

#if KR
#define TAPS _Pragma("unroll")  // before a loop over a window's lines or pixels
#else
#define TAPS _Pragma("unroll 1")
#endif

static inline Window constants(Window g) {
  if (KR) g.r = KR;
  if (KS) g.s = KS;
  if (KSH) g.sh = KSH;
  if (KSW) g.sw = KSW;
  return g;
}

// --- live lanes -----------------------------------------------------------------------------------------------------
#if LANES == 0
#define LOAD_LIVE(T, p) LOAD_AS(T, p)
#define LIVE_VECTORS(cols) VECTORS(cols)
#define LIVE_START(vector, cols) vector_start(vector, cols)
#define STORE_LIVE(v, row, vector, cols, whole) STORE_VECTOR(Y_T, v, row, vector, cols, whole)
#else
#define LOAD_LIVE(T, p) TYPED(load_live_, T)(p)
#define LIVE_VECTORS(cols) 1
#define LIVE_START(vector, cols) 0
#define STORE_LIVE(v, row, vector, cols, whole) TYPED(store_live_, Y_T)(v, row)

// LANES in binary says which pieces there are; dead lanes are 0.
static inline fv load_live_float(__global const float* p) {
#if LANES == VW
  return LOAD(p);
#else
  float t[VW];
  STORE((fv)(0.0f), t);
#if LANES & 8
  vstore8(vload8(0, p), 0, t);
#endif
#if LANES & 4
  vstore4(vload4(0, p + (LANES & 8)), 0, t + (LANES & 8));
#endif
#if LANES & 2
  vstore2(vload2(0, p + (LANES & 12)), 0, t + (LANES & 12));
#endif
#if LANES & 1
  t[LANES - 1] = p[LANES - 1];
#endif
  return LOAD(t);
#endif
}

static inline void store_live_float(fv v, __global float* p) {
#if LANES == VW
  STORE(v, p);
#else
  float t[VW];
  STORE(v, t);
#if LANES & 8
  vstore8(vload8(0, t), 0, p);
#endif
#if LANES & 4
  vstore4(vload4(0, t + (LANES & 8)), 0, p + (LANES & 8));
#endif
#if LANES & 2
  vstore2(vload2(0, t + (LANES & 12)), 0, p + (LANES & 12));
#endif
#if LANES & 1
  p[LANES - 1] = t[LANES - 1];
#endif
#endif
}

#if HALVES
static inline fv load_live_half(__global const half* p) { return LANES == VW ? LOAD_half(p) : load_lanes_half(p, 0, LANES); }
static inline void store_live_half(fv v, __global half* p) {
  if (LANES == VW)
    STORE_half(v, p);
  else
    store_lanes_half(v, p, 0, LANES);
}
#endif
#endif

// The epilogue (tile.clh) of a pixel's vector at column `col`; a bias has pitch 0.
#define LIVE_OPERAND(N) \
  (E##N < BIAS ? (fv)(0.0f) : LOAD_LIVE(E##N##_T, (__global const E##N##_T*)e[N].x + row * e[N].pitch + col))
static inline fv live_epilogue(fv v, const Extra* e, int row, int col) {
  v = epilogue_step(E0, v, LIVE_OPERAND(0));
  v = epilogue_step(E1, v, LIVE_OPERAND(1));
  v = epilogue_step(E2, v, LIVE_OPERAND(2));
  return epilogue_step(E3, v, LIVE_OPERAND(3));
}

#define IS_INSIDE(i, extent) ((uint)(i) < (uint)(extent))

// Neighbouring pixels of one line, and vectors v0 .. v1 - 1 of each: several pixels only if a work-item does whole ones.
typedef struct {
  Pixel from;
  int to;  // x after the last pixel
  int v0, v1;
  int next;  // the unit after the run
} Run;

static inline Run run_at(int unit, int end, int vectors, int whole, int h, int w) {
  Run run;
  const int index = unit / vectors;
  run.from = pixel_at(index, h, w);
  run.v0 = unit - index * vectors;
  run.v1 = min(vectors, run.v0 + end - unit);
  run.to = run.from.x + (whole ? min(w - run.from.x, (end - unit) / vectors) : 1);
  run.next = unit + (run.to - run.from.x) * (run.v1 - run.v0);
  return run;
}

// for (each pixel p of images of h x w that this work-item has units of) for its vectors v. The inner loop runs along a
// line, so what belongs to the line is worked out once.
#define EACH_PIXEL(h, w)                                                                                              \
  const int vectors = LIVE_VECTORS(g.c), end = min(units, ((int)get_global_id(0) + 1) * chunk);                       \
  Run run;                                                                                                            \
  for (int unit = (int)get_global_id(0) * chunk; unit < end && (run = run_at(unit, end, vectors, whole, h, w), 1); \
       unit = run.next)                                                                                               \
    for (Pixel p = run.from; p.x < run.to; ++p.x)
#define EACH_VECTOR for (int v = run.v0; v < run.v1; ++v)
#define PIXEL_INDEX(h, w) ((p.n * (h) + p.y) * (w) + p.x)

// The maximum of the window whose first pixel, (y0, x0) of its image, lies at `corner`. `inside` is a constant: windows that
// do not touch the border need no tests.
static inline fv max_of_window(__global const X_T* corner, int pitch, Window g, int y0, int x0, const int inside) {
  fv best = (fv)(-INFINITY);
  TAPS for (int r = 0; r < g.r; ++r)
    TAPS for (int s = 0; s < g.s; ++s)
      if (inside || (IS_INSIDE(y0 + r, g.h) && IS_INSIDE(x0 + s, g.w)))
        best = max_of(best, LOAD_LIVE(X_T, corner + (r * g.w + s) * pitch));
  return best;
}

__kernel GROUP void max_pool(TENSOR(const X_T, x), TENSOR(Y_T, y), WINDOW_PARAMS, int units, int chunk, int whole) {
  const Window given = WINDOW, g = constants(given);
  EACH_PIXEL(g.oh, g.ow) {
    const int y0 = p.y * g.sh - g.pt, x0 = p.x * g.sw - g.pl;
    const int inside = (y0 >= 0) & (y0 + g.r <= g.h) & (x0 >= 0) & (x0 + g.s <= g.w);
    __global const X_T* corner = START(x) + ((p.n * g.h + y0) * g.w + x0) * x_pitch;
    EACH_VECTOR {
      __global const X_T* from = corner + LIVE_START(v, g.c);
      const fv best =
          inside ? max_of_window(from, x_pitch, g, y0, x0, 1) : max_of_window(from, x_pitch, g, y0, x0, 0);
      STORE_LIVE(best, START(y) + PIXEL_INDEX(g.oh, g.ow) * y_pitch, v, g.c, whole);
    }
  }
}

// Lanes where pixel (iy, ix) of value v is the first maximum of the window whose first pixel is (y0, x0).
static inline iv is_first_max(__global const X_T* image, int pitch, Window g, int y0, int x0, int iy, int ix, fv v) {
  iv first = (iv)(-1);
  for (int y = max(y0, 0); y < min(y0 + g.r, g.oh); ++y) {
    for (int x = max(x0, 0); x < min(x0 + g.s, g.ow); ++x) {
      const fv other = LOAD_LIVE(X_T, image + (y * g.ow + x) * pitch);
      const iv loses = y < iy || (y == iy && x < ix) ? other < v : other <= v;
      first = loses ? first : (iv)(0);
    }
  }
  return first;
}

__kernel GROUP void max_pool_grad(TENSOR(const X_T, x), TENSOR(const D_T, dy), TENSOR(Y_T, y) EPILOGUE_PARAMS,
                                  WINDOW_PARAMS, int units, int chunk, int whole) {
  const Window given = WINDOW, g = constants(given);
  const Extra extras[4] = EPILOGUE_EXTRAS;
  EACH_PIXEL(g.oh, g.ow) {
    const int y0 = max(0, (p.y + g.pt - g.r + g.sh) / g.sh), y1 = min(g.h - 1, (p.y + g.pt) / g.sh);
    const int x0 = max(0, (p.x + g.pl - g.s + g.sw) / g.sw), x1 = min(g.w - 1, (p.x + g.pl) / g.sw);
    EACH_VECTOR {
      const int c = LIVE_START(v, g.c);
      __global const X_T* image = START(x) + p.n * g.oh * g.ow * x_pitch + c;
      const fv here = LOAD_LIVE(X_T, image + (p.y * g.ow + p.x) * x_pitch);
      fv sum = (fv)(0.0f);
      for (int oy = y0; oy <= y1; ++oy) {
        for (int ox = x0; ox <= x1; ++ox) {
          const iv first = is_first_max(image, x_pitch, g, oy * g.sh - g.pt, ox * g.sw - g.pl, p.y, p.x, here);
          sum += first ? LOAD_LIVE(D_T, START(dy) + ((p.n * g.h + oy) * g.w + ox) * dy_pitch + c) : (fv)(0.0f);
        }
      }
      const int row = PIXEL_INDEX(g.oh, g.ow);
      STORE_LIVE(live_epilogue(sum, extras, row, c), START(y) + row * y_pitch, v, g.c, whole);
    }
  }
}

// A cell whose first pixel is (y0, x0) of its image and pixel `corner` of dx: d where the window in it has its first maximum,
// else 0. x and y point at pixel 0, at the vector's channels and at channel 0. `inside` is a constant, as above.
static inline void fill_cell(__global const X_T* x, int x_pitch, __global Y_T* y, int y_pitch, const Extra* e, Window g,
                             int y0, int x0, int corner, fv d, int v, int whole, const int inside) {
  fv best = (fv)(-INFINITY);
  iv winner = (iv)(max(-y0, 0) * g.sw + max(-x0, 0));  // a pixel of the cell; the first inside unless one is larger
  TAPS for (int r = 0; r < g.r; ++r)
    TAPS for (int s = 0; s < g.s; ++s)
      if (inside || (IS_INSIDE(y0 + r, g.oh) && IS_INSIDE(x0 + s, g.ow))) {
        const fv value = LOAD_LIVE(X_T, x + (corner + r * g.ow + s) * x_pitch);
        winner = value > best ? (iv)(r * g.sw + s) : winner;
        best = max_of(best, value);
      }
  TAPS for (int r = 0; r < g.sh; ++r)
    TAPS for (int s = 0; s < g.sw; ++s)
      if (inside || (IS_INSIDE(y0 + r, g.oh) && IS_INSIDE(x0 + s, g.ow))) {
        const int row = corner + r * g.ow + s;
        const fv here = winner == (iv)(r * g.sw + s) ? d : (fv)(0.0f);
        STORE_LIVE(live_epilogue(here, e, row, LIVE_START(v, g.c)), y + row * y_pitch, v, g.c, whole);
      }
}

// Cells beyond the last window are pixels that no window holds: they get a gradient of 0.
__kernel GROUP void max_pool_grad_cells(TENSOR(const X_T, x), TENSOR(const D_T, dy), TENSOR(Y_T, y) EPILOGUE_PARAMS,
                                        WINDOW_PARAMS, int units, int chunk, int whole) {
  const Window given = WINDOW, g = constants(given);
  const Extra extras[4] = EPILOGUE_EXTRAS;
  const int cells_h = (g.oh + g.pt + g.sh - 1) / g.sh, cells_w = (g.ow + g.pl + g.sw - 1) / g.sw;
  EACH_PIXEL(cells_h, cells_w) {
    const int y0 = p.y * g.sh - g.pt, x0 = p.x * g.sw - g.pl, corner = (p.n * g.oh + y0) * g.ow + x0;
    const int inside = (y0 >= 0) & (y0 + g.sh <= g.oh) & (x0 >= 0) & (x0 + g.sw <= g.ow);
    const int pooled = (p.y < g.h) & (p.x < g.w);
    EACH_VECTOR {
      const int c = LIVE_START(v, g.c);
      const fv d = pooled ? LOAD_LIVE(D_T, START(dy) + PIXEL_INDEX(g.h, g.w) * dy_pitch + c) : (fv)(0.0f);
      if (inside)
        fill_cell(START(x) + c, x_pitch, START(y), y_pitch, extras, g, y0, x0, corner, d, v, whole, 1);
      else
        fill_cell(START(x) + c, x_pitch, START(y), y_pitch, extras, g, y0, x0, corner, d, v, whole, 0);
    }
  }
}

// What a window gives back: d, to the pixel with this number (row-major in the window); no window: number -1.
typedef struct {
  iv number;
  fv d;
} Winner;

static inline iv number_of_max(__global const X_T* corner, int pitch, Window g, int y0, int x0, const int inside) {
  fv best = (fv)(-INFINITY);
  iv number = (iv)(max(-y0, 0) * g.s + max(-x0, 0));  // the first inside unless one is larger
  TAPS for (int r = 0; r < g.r; ++r)
    TAPS for (int s = 0; s < g.s; ++s)
      if (inside || (IS_INSIDE(y0 + r, g.oh) && IS_INSIDE(x0 + s, g.ow))) {
        const fv value = LOAD_LIVE(X_T, corner + (r * g.ow + s) * pitch);
        number = value > best ? (iv)(r * g.s + s) : number;
        best = max_of(best, value);
      }
  return number;
}

// The winner of window (oy, ox) of image n; x and dy point at the vector's channels of pixel 0.
static inline Winner winner_of(__global const X_T* x, int x_pitch, __global const D_T* dy, int dy_pitch, Window g, int n,
                               int oy, int ox) {
  Winner w = {(iv)(-1), (fv)(0.0f)};
  if (!IS_INSIDE(oy, g.h) || !IS_INSIDE(ox, g.w)) return w;
  const int y0 = oy * g.sh - g.pt, x0 = ox * g.sw - g.pl;
  __global const X_T* corner = x + ((n * g.oh + y0) * g.ow + x0) * x_pitch;
  w.d = LOAD_LIVE(D_T, dy + ((n * g.h + oy) * g.w + ox) * dy_pitch);
  if (y0 >= 0 && y0 + g.r <= g.oh && x0 >= 0 && x0 + g.s <= g.ow)
    w.number = number_of_max(corner, x_pitch, g, y0, x0, 1);
  else
    w.number = number_of_max(corner, x_pitch, g, y0, x0, 0);
  return w;
}

// What a window gives to its pixel (r, s), which it may not have.
static inline fv given_to(Winner w, Window g, int r, int s) {
  return r < g.r && s < g.s ? (w.number == (iv)(r * g.s + s) ? w.d : (fv)(0.0f)) : (fv)(0.0f);
}

__kernel GROUP void max_pool_grad_pairs(TENSOR(const X_T, x), TENSOR(const D_T, dy), TENSOR(Y_T, y) EPILOGUE_PARAMS,
                                        WINDOW_PARAMS, int units, int chunk, int whole) {
  const Window given = WINDOW, g = constants(given);
  const Extra extras[4] = EPILOGUE_EXTRAS;
  const int cells_h = (g.oh + g.pt + g.sh - 1) / g.sh, cells_w = (g.ow + g.pl + g.sw - 1) / g.sw;
  EACH_PIXEL(cells_h, cells_w) EACH_VECTOR {
    const int c = LIVE_START(v, g.c);
    Winner w[2][2];  // of the cell's own window and those above and to the left, which reach into it
#pragma unroll
    for (int up = 0; up < 2; ++up)
#pragma unroll
      for (int left = 0; left < 2; ++left)
        w[up][left] = winner_of(START(x) + c, x_pitch, START(dy) + c, dy_pitch, g, p.n, p.y - up, p.x - left);
    TAPS for (int r = 0; r < g.sh; ++r)
      TAPS for (int s = 0; s < g.sw; ++s) {
        const int iy = p.y * g.sh - g.pt + r, ix = p.x * g.sw - g.pl + s, row = (p.n * g.oh + iy) * g.ow + ix;
        if (!IS_INSIDE(iy, g.oh) || !IS_INSIDE(ix, g.ow)) continue;
        const fv sum = given_to(w[1][1], g, r + g.sh, s + g.sw) + given_to(w[1][0], g, r + g.sh, s) +
                       given_to(w[0][1], g, r, s + g.sw) + given_to(w[0][0], g, r, s);
        STORE_LIVE(live_epilogue(sum, extras, row, c), START(y) + row * y_pitch, v, g.c, whole);
      }
  }
}

// 1 / divisor of a window whose first pixel is (y0, x0) in an image of h x w.
static inline float weight_of(Window g, int h, int w, int y0, int x0, int count_pad) {
  const int inside = (min(y0 + g.r, h) - max(y0, 0)) * (min(x0 + g.s, w) - max(x0, 0));
  return 1.0f / (count_pad ? g.r * g.s : max(inside, 1));
}

__kernel GROUP void avg_pool(TENSOR(const X_T, x), TENSOR(Y_T, y), WINDOW_PARAMS, int units, int chunk, int whole,
                             int count_pad) {
  const Window given = WINDOW, g = constants(given);
  EACH_PIXEL(g.oh, g.ow) {
    const int y0 = p.y * g.sh - g.pt, x0 = p.x * g.sw - g.pl;
    const float weight = weight_of(g, g.h, g.w, y0, x0, count_pad);
    EACH_VECTOR {
      __global const X_T* image = START(x) + p.n * g.h * g.w * x_pitch + LIVE_START(v, g.c);
      fv sum = (fv)(0.0f);
      for (int iy = max(y0, 0); iy < min(y0 + g.r, g.h); ++iy)
        for (int ix = max(x0, 0); ix < min(x0 + g.s, g.w); ++ix) sum += LOAD_LIVE(X_T, image + (iy * g.w + ix) * x_pitch);
      STORE_LIVE(sum * (fv)(weight), START(y) + PIXEL_INDEX(g.oh, g.ow) * y_pitch, v, g.c, whole);
    }
  }
}

__kernel GROUP void avg_pool_grad(TENSOR(const D_T, dy), TENSOR(Y_T, y), WINDOW_PARAMS, int units, int chunk,
                                  int whole, int count_pad) {
  const Window given = WINDOW, g = constants(given);
  EACH_PIXEL(g.oh, g.ow) {
    const int y0 = max(0, (p.y + g.pt - g.r + g.sh) / g.sh), y1 = min(g.h - 1, (p.y + g.pt) / g.sh);
    const int x0 = max(0, (p.x + g.pl - g.s + g.sw) / g.sw), x1 = min(g.w - 1, (p.x + g.pl) / g.sw);
    EACH_VECTOR {
      fv sum = (fv)(0.0f);
      for (int oy = y0; oy <= y1; ++oy) {
        for (int ox = x0; ox <= x1; ++ox) {
          const fv d = LOAD_LIVE(D_T, START(dy) + ((p.n * g.h + oy) * g.w + ox) * dy_pitch + LIVE_START(v, g.c));
          sum += d * (fv)(weight_of(g, g.oh, g.ow, oy * g.sh - g.pt, ox * g.sw - g.pl, count_pad));
        }
      }
      STORE_LIVE(sum, START(y) + PIXEL_INDEX(g.oh, g.ow) * y_pitch, v, g.c, whole);
    }
  }
}
