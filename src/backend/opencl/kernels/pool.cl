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

#define IS_INSIDE(i, extent) ((uint)(i) < (uint)(extent))

// for (each pixel p this work-item has units of, among images of h x w) for its vectors v from v0 to v1 - 1
#define EACH_PIXEL(h, w)                                                                                    \
  const int vectors = VECTORS(g.c), unit0 = (int)get_global_id(0) * chunk, end = min(units, unit0 + chunk); \
  int index = unit0 / vectors, v0 = unit0 - index * vectors, v1;                                            \
  Pixel p = pixel_at(index, h, w);                                                                          \
  for (int unit = unit0; unit < end; unit += v1 - v0, ++index, v0 = 0, p = next_pixel(p, h, w))             \
    if ((v1 = min(vectors, v0 + end - unit)) > v0)
#define EACH_VECTOR for (int v = v0; v < v1; ++v)

__kernel GROUP void max_pool(TENSOR(const float, x), TENSOR(float, y), WINDOW_PARAMS, int units, int chunk, int whole) {
  const Window given = WINDOW, g = constants(given);
  EACH_PIXEL(g.oh, g.ow) {
    const int y0 = p.y * g.sh - g.pt, x0 = p.x * g.sw - g.pl;
    __global const float* corner = START(x) + ((p.n * g.h + y0) * g.w + x0) * x_pitch;
    const int inside = y0 >= 0 && y0 + g.r <= g.h && x0 >= 0 && x0 + g.s <= g.w;
    EACH_VECTOR {
      __global const float* from = corner + vector_start(v, g.c);
      fv best = (fv)(-INFINITY);
      for (int r = 0; r < g.r; ++r)
        for (int s = 0; s < g.s; ++s)
          if (inside || (IS_INSIDE(y0 + r, g.h) && IS_INSIDE(x0 + s, g.w)))
            best = max_of(best, LOAD(from + (r * g.w + s) * x_pitch));
      store_vector(best, START(y) + index * y_pitch, v, g.c, whole);
    }
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
  EACH_PIXEL(g.oh, g.ow) {
    const int y0 = max(0, (p.y + g.pt - g.r + g.sh) / g.sh), y1 = min(g.h - 1, (p.y + g.pt) / g.sh);
    const int x0 = max(0, (p.x + g.pl - g.s + g.sw) / g.sw), x1 = min(g.w - 1, (p.x + g.pl) / g.sw);
    EACH_VECTOR {
      const int c = vector_start(v, g.c);
      __global const float* image = START(x) + p.n * g.oh * g.ow * x_pitch + c;
      const fv here = LOAD(image + (p.y * g.ow + p.x) * x_pitch);
      fv sum = (fv)(0.0f);
      for (int oy = y0; oy <= y1; ++oy) {
        for (int ox = x0; ox <= x1; ++ox) {
          const iv first = is_first_max(image, x_pitch, g, oy * g.sh - g.pt, ox * g.sw - g.pl, p.y, p.x, here);
          sum += first ? LOAD(START(dy) + ((p.n * g.h + oy) * g.w + ox) * dy_pitch + c) : (fv)(0.0f);
        }
      }
      store_vector(sum, START(y) + index * y_pitch, v, g.c, whole);
    }
  }
}

__kernel GROUP void max_pool_grad_cells(TENSOR(const float, x), TENSOR(const float, dy), TENSOR(float, y), WINDOW_PARAMS,
                                        int units, int chunk, int whole) {
  const Window given = WINDOW, g = constants(given);
  const int cells_h = (g.oh + g.pt + g.sh - 1) / g.sh, cells_w = (g.ow + g.pl + g.sw - 1) / g.sw;
  EACH_PIXEL(cells_h, cells_w) {
    const int y0 = p.y * g.sh - g.pt, x0 = p.x * g.sw - g.pl, corner = (p.n * g.oh + y0) * g.ow + x0;
    const int inside = y0 >= 0 && y0 + g.sh <= g.oh && x0 >= 0 && x0 + g.sw <= g.ow, pooled = p.y < g.h && p.x < g.w;
    EACH_VECTOR {
      const int c = vector_start(v, g.c);
      fv best = (fv)(-INFINITY), d = (fv)(0.0f);
      iv winner = (iv)(max(-y0, 0) * g.sw + max(-x0, 0));  // a pixel of the cell; the first inside unless one is larger
      if (pooled) {
        d = LOAD(START(dy) + ((p.n * g.h + p.y) * g.w + p.x) * dy_pitch + c);
        for (int r = 0; r < g.r; ++r)
          for (int s = 0; s < g.s; ++s)
            if (inside || (IS_INSIDE(y0 + r, g.oh) && IS_INSIDE(x0 + s, g.ow))) {
              const fv value = LOAD(START(x) + (corner + r * g.ow + s) * x_pitch + c);
              winner = value > best ? (iv)(r * g.sw + s) : winner;
              best = max_of(best, value);
            }
      }
      for (int r = 0; r < g.sh; ++r)
        for (int s = 0; s < g.sw; ++s)
          if (inside || (IS_INSIDE(y0 + r, g.oh) && IS_INSIDE(x0 + s, g.ow))) {
            const fv here = winner == (iv)(r * g.sw + s) ? d : (fv)(0.0f);
            store_vector(here, START(y) + (corner + r * g.ow + s) * y_pitch, v, g.c, whole);
          }
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
  EACH_PIXEL(g.oh, g.ow) {
    const int y0 = p.y * g.sh - g.pt, x0 = p.x * g.sw - g.pl;
    const float weight = weight_of(g, g.h, g.w, y0, x0, count_pad);
    EACH_VECTOR {
      __global const float* image = START(x) + p.n * g.h * g.w * x_pitch + vector_start(v, g.c);
      fv sum = (fv)(0.0f);
      for (int iy = max(y0, 0); iy < min(y0 + g.r, g.h); ++iy)
        for (int ix = max(x0, 0); ix < min(x0 + g.s, g.w); ++ix) sum += LOAD(image + (iy * g.w + ix) * x_pitch);
      store_vector(sum * (fv)(weight), START(y) + index * y_pitch, v, g.c, whole);
    }
  }
}

__kernel GROUP void avg_pool_grad(TENSOR(const float, dy), TENSOR(float, y), WINDOW_PARAMS, int units, int chunk,
                                  int whole, int count_pad) {
  const Window given = WINDOW, g = constants(given);
  EACH_PIXEL(g.oh, g.ow) {
    const int y0 = max(0, (p.y + g.pt - g.r + g.sh) / g.sh), y1 = min(g.h - 1, (p.y + g.pt) / g.sh);
    const int x0 = max(0, (p.x + g.pl - g.s + g.sw) / g.sw), x1 = min(g.w - 1, (p.x + g.pl) / g.sw);
    EACH_VECTOR {
      fv sum = (fv)(0.0f);
      for (int oy = y0; oy <= y1; ++oy) {
        for (int ox = x0; ox <= x1; ++ox) {
          const fv d = LOAD(START(dy) + ((p.n * g.h + oy) * g.w + ox) * dy_pitch + vector_start(v, g.c));
          sum += d * (fv)(weight_of(g, g.oh, g.ow, oy * g.sh - g.pt, ox * g.sw - g.pl, count_pad));
        }
      }
      store_vector(sum, START(y) + index * y_pitch, v, g.c, whole);
    }
  }
}
