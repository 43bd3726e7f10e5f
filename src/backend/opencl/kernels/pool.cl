// pool.cl -- max and average pooling over NHWC, and their gradients.
//
//   max_pool       y[n, oy, ox, c]  = max over the window's taps inside x
//   max_pool_grad  dx[n, iy, ix, c] = sum of dy over the windows whose first maximum (row-major) is this pixel
//   avg_pool       y[n, oy, ox, c]  = sum over the taps inside x / divisor      divisor: taps inside, or all (count_pad)
//   avg_pool_grad  dx[n, iy, ix, c] = sum over the windows that hold this pixel of dy / divisor
//
// The gradients gather: each pixel of dx looks at the windows that hold it, so no two work-items write one element.
// A work-item owns one vector of VW <= C channels of one pixel of the result; the last vector starts early (common.clh).
// In the gradients g.h, g.w are the sizes of the pooled image (dy) and g.oh, g.ow those of dx.
#include "common.clh"
#include "window.clh"

typedef struct {
  int vector, pixel, n, y, x;  // which channels, and which pixel of the result
  int c;                       // where the channel vector starts
} Place;

static inline Place place_of(int item, int channels, int oh, int ow) {
  Place p;
  p.vector = item % VECTORS(channels);
  p.pixel = item / VECTORS(channels);
  const int line = p.pixel / ow;
  p.n = line / oh;
  p.y = line - p.n * oh;
  p.x = p.pixel - line * ow;
  p.c = vector_start(p.vector, channels);
  return p;
}

__kernel GROUP void max_pool(TENSOR(const float, x), TENSOR(float, y), WINDOW_PARAMS, int items) {
  const Window g = WINDOW;
  if ((int)get_global_id(0) >= items) return;
  const Place p = place_of(get_global_id(0), g.c, g.oh, g.ow);
  __global const float* image = START(x) + p.n * g.h * g.w * x_pitch + p.c;
  fv best = (fv)(-INFINITY);
  for (int r = 0; r < g.r; ++r) {
    const int iy = p.y * g.sh - g.pt + r;
    if (iy < 0 || iy >= g.h) continue;
    for (int s = 0; s < g.s; ++s) {
      const int ix = p.x * g.sw - g.pl + s;
      if (ix >= 0 && ix < g.w) best = max_of(best, LOAD(image + (iy * g.w + ix) * x_pitch));
    }
  }
  store_vector(best, START(y) + p.pixel * y_pitch, p.vector, g.c);
}

// Lanes where pixel (iy, ix) of value v is the first maximum of the window whose first pixel is (y0, x0).
static inline iv is_first_max(__global const float* image, int pitch, Window g, int y0, int x0, int iy, int ix, fv v) {
  iv first = (iv)(-1);
  for (int r = max(0, -y0); r < min(g.r, g.oh - y0); ++r) {
    for (int s = max(0, -x0); s < min(g.s, g.ow - x0); ++s) {
      const int y = y0 + r, x = x0 + s;
      const fv other = LOAD(image + (y * g.ow + x) * pitch);
      const iv loses = y < iy || (y == iy && x < ix) ? other < v : other <= v;
      first = loses ? first : (iv)(0);
    }
  }
  return first;
}

__kernel GROUP void max_pool_grad(TENSOR(const float, x), TENSOR(const float, dy), TENSOR(float, y), WINDOW_PARAMS,
                                  int items) {
  const Window g = WINDOW;
  if ((int)get_global_id(0) >= items) return;
  const Place p = place_of(get_global_id(0), g.c, g.oh, g.ow);
  __global const float* image = START(x) + p.n * g.oh * g.ow * x_pitch + p.c;
  const fv v = LOAD(image + (p.y * g.ow + p.x) * x_pitch);
  const int y1 = min(g.h - 1, (p.y + g.pt) / g.sh), x1 = min(g.w - 1, (p.x + g.pl) / g.sw);
  const int y0 = max(0, (p.y + g.pt - g.r + g.sh) / g.sh), x0 = max(0, (p.x + g.pl - g.s + g.sw) / g.sw);
  fv sum = (fv)(0.0f);
  for (int oy = y0; oy <= y1; ++oy) {
    for (int ox = x0; ox <= x1; ++ox) {
      const iv first = is_first_max(image, x_pitch, g, oy * g.sh - g.pt, ox * g.sw - g.pl, p.y, p.x, v);
      sum += first ? LOAD(START(dy) + ((p.n * g.h + oy) * g.w + ox) * dy_pitch + p.c) : (fv)(0.0f);
    }
  }
  store_vector(sum, START(y) + p.pixel * y_pitch, p.vector, g.c);
}

// 1 / divisor of a window whose first pixel is (y0, x0) in an image of h x w.
static inline float weight_of(Window g, int h, int w, int y0, int x0, int count_pad) {
  const int inside = (min(y0 + g.r, h) - max(y0, 0)) * (min(x0 + g.s, w) - max(x0, 0));
  return 1.0f / (count_pad ? g.r * g.s : max(inside, 1));
}

__kernel GROUP void avg_pool(TENSOR(const float, x), TENSOR(float, y), WINDOW_PARAMS, int items, int count_pad) {
  const Window g = WINDOW;
  if ((int)get_global_id(0) >= items) return;
  const Place p = place_of(get_global_id(0), g.c, g.oh, g.ow);
  __global const float* image = START(x) + p.n * g.h * g.w * x_pitch + p.c;
  const int y0 = p.y * g.sh - g.pt, x0 = p.x * g.sw - g.pl;
  fv sum = (fv)(0.0f);
  for (int iy = max(y0, 0); iy < min(y0 + g.r, g.h); ++iy)
    for (int ix = max(x0, 0); ix < min(x0 + g.s, g.w); ++ix) sum += LOAD(image + (iy * g.w + ix) * x_pitch);
  store_vector(sum * (fv)(weight_of(g, g.h, g.w, y0, x0, count_pad)), START(y) + p.pixel * y_pitch, p.vector, g.c);
}

__kernel GROUP void avg_pool_grad(TENSOR(const float, dy), TENSOR(float, y), WINDOW_PARAMS, int items, int count_pad) {
  const Window g = WINDOW;
  if ((int)get_global_id(0) >= items) return;
  const Place p = place_of(get_global_id(0), g.c, g.oh, g.ow);
  const int y1 = min(g.h - 1, (p.y + g.pt) / g.sh), x1 = min(g.w - 1, (p.x + g.pl) / g.sw);
  const int y0 = max(0, (p.y + g.pt - g.r + g.sh) / g.sh), x0 = max(0, (p.x + g.pl - g.s + g.sw) / g.sw);
  fv sum = (fv)(0.0f);
  for (int oy = y0; oy <= y1; ++oy) {
    for (int ox = x0; ox <= x1; ++ox) {
      const fv v = LOAD(START(dy) + ((p.n * g.h + oy) * g.w + ox) * dy_pitch + p.c);
      sum += v * (fv)(weight_of(g, g.oh, g.ow, oy * g.sh - g.pt, ox * g.sw - g.pl, count_pad));
    }
  }
  store_vector(sum, START(y) + p.pixel * y_pitch, p.vector, g.c);
}
