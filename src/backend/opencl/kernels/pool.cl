// pool.cl -- max and average pooling over NHWC, and their gradients.
//
//   max_pool       y[n, oy, ox, c]  = max over the window's taps inside x
//   max_pool_grad  dx[n, iy, ix, c] = sum of dy over the windows whose first maximum (row-major) is this pixel
//   avg_pool       y[n, oy, ox, c]  = sum over the taps inside x / divisor      divisor: taps inside, or all (count_pad)
//   avg_pool_grad  dx[n, iy, ix, c] = sum over the windows that hold this pixel of dy / divisor
//
// No two work-items write one element: max_pool_grad and avg_pool_grad gather, each pixel of dx looks at the windows that
// hold it; max_pool_grad_cells, for windows that do not overlap, fills the cell of sh x sw pixels around a window.
// A unit is one vector of VW <= C channels of one pixel (or cell); a work-item does `chunk` units. The last vector starts
// early (common.clh); `whole`: a work-item does all vectors of its pixels. In the gradients g.h, g.w are the sizes of the
// pooled image (dy) and g.oh, g.ow those of dx.
#include "common.clh"
#include "window.clh"

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

static inline Window constants(Window g) {
  if (KR) g.r = KR;
  if (KS) g.s = KS;
  if (KSH) g.sh = KSH;
  if (KSW) g.sw = KSW;
  return g;
}

typedef struct {
  int vector, pixel, n, y, x;  // which channels, and which pixel of an image of h x w
} Place;

static inline Place place_of(int unit, int vectors, int h, int w) {
  Place p;
  p.pixel = unit / vectors;
  p.vector = unit - p.pixel * vectors;
  const int line = p.pixel / w;
  p.n = line / h;
  p.y = line - p.n * h;
  p.x = p.pixel - line * w;
  return p;
}

static inline void advance(Place* p, int vectors, int h, int w) {
  if (++p->vector < vectors) return;
  p->vector = 0;
  ++p->pixel;
  if (++p->x < w) return;
  p->x = 0;
  if (++p->y < h) return;
  p->y = 0;
  ++p->n;
}

#define IS_INSIDE(i, extent) ((uint)(i) < (uint)(extent))

// for (each unit of this work-item, as Place p, over an image of h x w)
#define EACH_UNIT(h, w)                                                                                                \
  const int vectors = VECTORS(g.c), unit0 = (int)get_global_id(0) * chunk, end = min(units, unit0 + chunk);            \
  Place p = place_of(unit0, vectors, h, w);                                                                            \
  for (int unit = unit0; unit < end; ++unit, advance(&p, vectors, h, w))

__kernel GROUP void max_pool(TENSOR(const float, x), TENSOR(float, y), WINDOW_PARAMS, int units, int chunk, int whole) {
  const Window given = WINDOW, g = constants(given);
  EACH_UNIT(g.oh, g.ow) {
    __global const float* image = START(x) + p.n * g.h * g.w * x_pitch + vector_start(p.vector, g.c);
    const int y0 = p.y * g.sh - g.pt, x0 = p.x * g.sw - g.pl;
    fv best = (fv)(-INFINITY);
    for (int r = 0; r < g.r; ++r)
      for (int s = 0; s < g.s; ++s)
        if (IS_INSIDE(y0 + r, g.h) && IS_INSIDE(x0 + s, g.w))
          best = max_of(best, LOAD(image + ((y0 + r) * g.w + x0 + s) * x_pitch));
    store_vector(best, START(y) + p.pixel * y_pitch, p.vector, g.c, whole);
  }
}

// Lanes where pixel (iy, ix) of value v is the first maximum of the window whose first pixel is (y0, x0).
static inline iv is_first_max(__global const float* image, int pitch, Window g, int y0, int x0, int iy, int ix, fv v) {
  iv first = (iv)(-1);
  for (int y = max(y0, 0); y < min(y0 + g.r, g.oh); ++y) {
    for (int x = max(x0, 0); x < min(x0 + g.s, g.ow); ++x) {
      const fv other = LOAD(image + (y * g.ow + x) * pitch);
      const iv loses = y < iy || (y == iy && x < ix) ? other < v : other <= v;
      first = loses ? first : (iv)(0);
    }
  }
  return first;
}

__kernel GROUP void max_pool_grad(TENSOR(const float, x), TENSOR(const float, dy), TENSOR(float, y), WINDOW_PARAMS,
                                  int units, int chunk, int whole) {
  const Window given = WINDOW, g = constants(given);
  EACH_UNIT(g.oh, g.ow) {
    const int c = vector_start(p.vector, g.c);
    __global const float* image = START(x) + p.n * g.oh * g.ow * x_pitch + c;
    const fv v = LOAD(image + (p.y * g.ow + p.x) * x_pitch);
    const int y0 = max(0, (p.y + g.pt - g.r + g.sh) / g.sh), x0 = max(0, (p.x + g.pl - g.s + g.sw) / g.sw);
    fv sum = (fv)(0.0f);
    for (int oy = y0; oy <= min(g.h - 1, (p.y + g.pt) / g.sh); ++oy) {
      for (int ox = x0; ox <= min(g.w - 1, (p.x + g.pl) / g.sw); ++ox) {
        const iv first = is_first_max(image, x_pitch, g, oy * g.sh - g.pt, ox * g.sw - g.pl, p.y, p.x, v);
        sum += first ? LOAD(START(dy) + ((p.n * g.h + oy) * g.w + ox) * dy_pitch + c) : (fv)(0.0f);
      }
    }
    store_vector(sum, START(y) + p.pixel * y_pitch, p.vector, g.c, whole);
  }
}

__kernel GROUP void max_pool_grad_cells(TENSOR(const float, x), TENSOR(const float, dy), TENSOR(float, y), WINDOW_PARAMS,
                                        int units, int chunk, int whole) {
  const Window given = WINDOW, g = constants(given);
  const int cells_h = (g.oh + g.pt + g.sh - 1) / g.sh, cells_w = (g.ow + g.pl + g.sw - 1) / g.sw;
  EACH_UNIT(cells_h, cells_w) {
    const int c = vector_start(p.vector, g.c), y0 = p.y * g.sh - g.pt, x0 = p.x * g.sw - g.pl;
    __global const float* image = START(x) + p.n * g.oh * g.ow * x_pitch + c;
    fv best = (fv)(0.0f), d = (fv)(0.0f);
    iv winner = (iv)(-1);  // tap of the cell
    if (p.y < g.h && p.x < g.w) {
      d = LOAD(START(dy) + ((p.n * g.h + p.y) * g.w + p.x) * dy_pitch + c);
      const int first = max(-y0, 0) * g.sw + max(-x0, 0);
      best = LOAD(image + (max(y0, 0) * g.ow + max(x0, 0)) * x_pitch);
      winner = (iv)(first);
      for (int r = 0; r < g.r; ++r)
        for (int s = 0; s < g.s; ++s)
          if (IS_INSIDE(y0 + r, g.oh) && IS_INSIDE(x0 + s, g.ow)) {
            const fv v = LOAD(image + ((y0 + r) * g.ow + x0 + s) * x_pitch);
            winner = v > best ? (iv)(r * g.sw + s) : winner;
            best = v > best ? v : best;
          }
    }
    for (int r = 0; r < g.sh; ++r)
      for (int s = 0; s < g.sw; ++s)
        if (IS_INSIDE(y0 + r, g.oh) && IS_INSIDE(x0 + s, g.ow)) {
          const fv here = winner == (iv)(r * g.sw + s) ? d : (fv)(0.0f);
          store_vector(here, START(y) + ((p.n * g.oh + y0 + r) * g.ow + x0 + s) * y_pitch, p.vector, g.c, whole);
        }
  }
}

// 1 / divisor of a window whose first pixel is (y0, x0) in an image of h x w.
static inline float weight_of(Window g, int h, int w, int y0, int x0, int count_pad) {
  const int inside = (min(y0 + g.r, h) - max(y0, 0)) * (min(x0 + g.s, w) - max(x0, 0));
  return 1.0f / (count_pad ? g.r * g.s : max(inside, 1));
}

__kernel GROUP void avg_pool(TENSOR(const float, x), TENSOR(float, y), WINDOW_PARAMS, int units, int chunk, int whole,
                             int count_pad) {
  const Window given = WINDOW, g = constants(given);
  EACH_UNIT(g.oh, g.ow) {
    __global const float* image = START(x) + p.n * g.h * g.w * x_pitch + vector_start(p.vector, g.c);
    const int y0 = p.y * g.sh - g.pt, x0 = p.x * g.sw - g.pl, x1 = min(x0 + g.s, g.w);
    fv sum = (fv)(0.0f);
    for (int iy = max(y0, 0); iy < min(y0 + g.r, g.h); ++iy)
      for (int ix = max(x0, 0); ix < x1; ++ix) sum += LOAD(image + (iy * g.w + ix) * x_pitch);
    sum *= (fv)(weight_of(g, g.h, g.w, y0, x0, count_pad));
    store_vector(sum, START(y) + p.pixel * y_pitch, p.vector, g.c, whole);
  }
}

__kernel GROUP void avg_pool_grad(TENSOR(const float, dy), TENSOR(float, y), WINDOW_PARAMS, int units, int chunk,
                                  int whole, int count_pad) {
  const Window given = WINDOW, g = constants(given);
  EACH_UNIT(g.oh, g.ow) {
    const int y0 = max(0, (p.y + g.pt - g.r + g.sh) / g.sh), x0 = max(0, (p.x + g.pl - g.s + g.sw) / g.sw);
    fv sum = (fv)(0.0f);
    for (int oy = y0; oy <= min(g.h - 1, (p.y + g.pt) / g.sh); ++oy) {
      for (int ox = x0; ox <= min(g.w - 1, (p.x + g.pl) / g.sw); ++ox) {
        const fv v = LOAD(START(dy) + ((p.n * g.h + oy) * g.w + ox) * dy_pitch + vector_start(p.vector, g.c));
        sum += v * (fv)(weight_of(g, g.oh, g.ow, oy * g.sh - g.pt, ox * g.sw - g.pl, count_pad));
      }
    }
    store_vector(sum, START(y) + p.pixel * y_pitch, p.vector, g.c, whole);
  }
}
