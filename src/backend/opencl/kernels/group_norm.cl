// group_norm.cl -- group norm and its gradient with respect to x.
//
//   group_norm     y = (x - mean) rstd gamma + beta, mean and rstd of the group
//   group_norm_dx  dx = rstd (g - mean(g) - h mean(g h)), g = dy gamma, h = (x - mean) rstd
// Groups of VW channels or more: a work-item owns one. Narrow ones (LANES): it owns a vector of channels, whole groups
// side by side, and the lanes of a group share their sums. Either may work in place: an element is read before it is
// written. span: the channels a work-item owns.
#include "common.clh"

#ifndef LANES
#define LANES 0  // 1: a vector holds several groups
#endif

#ifndef X_T
#define X_T float  // or half: how x is stored
#endif
#ifndef D_T
#define D_T float  // likewise dy
#endif
#ifndef Y_T
#define Y_T float  // likewise the result
#endif

#define TERMS 64  // added up before they join the total

// The sum over the group, in each of its lanes, of VECTOR (at pixel p, channels c..c + VW - 1) and SCALAR (at channel c).
#define SUM_GROUP(total, VECTOR, SCALAR)       \
  fv total;                                    \
  {                                            \
    fv sum = (fv)(0.0f), few = sum;            \
    float rest_sum = 0.0f, rest = 0.0f;        \
    int terms = 0, rest_terms = 0;             \
    for (int p = 0; p < pixels; ++p) {         \
      int c = 0;                               \
      for (; c + VW <= span; c += VW) {        \
        few += VECTOR;                         \
        if (++terms < TERMS) continue;         \
        sum += few;                            \
        few = (fv)(0.0f);                      \
        terms = 0;                             \
      }                                        \
      for (; c < span; ++c) {                  \
        rest += SCALAR;                        \
        if (++rest_terms < TERMS) continue;    \
        rest_sum += rest;                      \
        rest = 0.0f;                           \
        rest_terms = 0;                        \
      }                                        \
    }                                          \
    total = shared(sum + few, rest_sum + rest, width); \
  }

#define EACH_PIXEL for (int p = 0; p < pixels; ++p)

static inline fv shared(fv sums, float rest, int width) {
#if LANES
  float t[VW], groups[VW];
  STORE(sums, t);
  for (int l = 0; l < VW; ++l) {
    groups[l] = 0.0f;
    for (int k = 0; k < width; ++k) groups[l] += t[l / width * width + k];
  }
  return LOAD(groups);
#else
  return (fv)(sum_of_lanes(sums) + rest);
#endif
}

static inline float first_lane(fv v) {
  float t[VW];
  STORE(v, t);
  return t[0];
}

// The statistics of the lanes, and back: the groups from `group` on.
static inline fv load_statistics(__global const float* p, int width) {
#if LANES
  float t[VW];
  for (int l = 0; l < VW; ++l) t[l] = p[l / width];
  return LOAD(t);
#else
  return (fv)(*p);
#endif
}
static inline void store_statistics(fv v, __global float* p, int width) {
  float t[VW];
  STORE(v, t);
  for (int l = 0; l < (LANES ? VW : 1); l += width) p[l / width] = t[l];
}

static inline fv square(fv v) { return v * v; }
static inline float square_one(float v) { return v * v; }

__kernel GROUP void group_norm(TENSOR(const X_T, x), TENSOR(const float, gamma), TENSOR(const float, beta),
                               TENSOR(Y_T, y), TENSOR(float, mean), TENSOR(float, rstd), int images, int pixels,
                               int spans, int span, int width, float eps) {
  const int item = get_global_id(0), image = get_global_id(1), first = item * span, group = first / width;
  if (item >= spans || image >= images) return;
  __global const X_T* in = START(x) + image * pixels * x_pitch + first;
  __global const float* scale = START(gamma) + first;
  __global const float* offset = START(beta) + first;
  __global Y_T* out = START(y) + image * pixels * y_pitch + first;
  const fv n = (fv)((float)pixels * (float)width);
  SUM_GROUP(total, LOAD_AS(X_T, in + p * x_pitch + c), AT(X_T, in, p * x_pitch + c))
  const fv m = total / n;
  const float m0 = first_lane(m);
  SUM_GROUP(squares, square(LOAD_AS(X_T, in + p * x_pitch + c) - m), square_one(AT(X_T, in, p * x_pitch + c) - m0))
  const fv s = (fv)(1.0f) / sqrt(squares / n + (fv)(eps));
  const float s0 = first_lane(s);
  EACH_PIXEL {
    __global const X_T* from = in + p * x_pitch;
    __global Y_T* to = out + p * y_pitch;
    int c = 0;
    for (; c + VW <= span; c += VW) STORE_AS(Y_T, (LOAD_AS(X_T, from + c) - m) * s * LOAD(scale + c) + LOAD(offset + c), to + c);
    for (; c < span; ++c) PUT(Y_T, (AT(X_T, from, c) - m0) * s0 * scale[c] + offset[c], to, c);
  }
  store_statistics(m, START(mean) + image * mean_pitch + group, width);
  store_statistics(s, START(rstd) + image * rstd_pitch + group, width);
}

__kernel GROUP void group_norm_dx(TENSOR(const X_T, x), TENSOR(const D_T, dy), TENSOR(const float, gamma),
                                  TENSOR(const float, mean), TENSOR(const float, rstd), TENSOR(Y_T, dx), int images,
                                  int pixels, int spans, int span, int width) {
  const int item = get_global_id(0), image = get_global_id(1), first = item * span, group = first / width;
  if (item >= spans || image >= images) return;
  __global const X_T* in = START(x) + image * pixels * x_pitch + first;
  __global const float* scale = START(gamma) + first;
  __global const D_T* din = START(dy) + image * pixels * dy_pitch + first;
  __global Y_T* out = START(dx) + image * pixels * dx_pitch + first;
  const fv n = (fv)((float)pixels * (float)width);
  const fv m = load_statistics(START(mean) + image * mean_pitch + group, width);
  const fv s = load_statistics(START(rstd) + image * rstd_pitch + group, width);
  const float m0 = first_lane(m), s0 = first_lane(s);
  SUM_GROUP(total, LOAD_AS(D_T, din + p * dy_pitch + c) * LOAD(scale + c), AT(D_T, din, p * dy_pitch + c) * scale[c])
  SUM_GROUP(products, LOAD_AS(D_T, din + p * dy_pitch + c) * LOAD(scale + c) * ((LOAD_AS(X_T, in + p * x_pitch + c) - m) * s),
            AT(D_T, din, p * dy_pitch + c) * scale[c] * ((AT(X_T, in, p * x_pitch + c) - m0) * s0))
  const fv plain = total / n, share = products / n;
  const float plain0 = first_lane(plain), share0 = first_lane(share);
  EACH_PIXEL {
    __global const X_T* from = in + p * x_pitch;
    __global const D_T* gradient = din + p * dy_pitch;
    __global Y_T* to = out + p * dx_pitch;
    int c = 0;
    for (; c + VW <= span; c += VW) {
      const fv g = LOAD_AS(D_T, gradient + c) * LOAD(scale + c), h = (LOAD_AS(X_T, from + c) - m) * s;
      STORE_AS(Y_T, s * (g - plain - h * share), to + c);
    }
    for (; c < span; ++c) PUT(Y_T, s0 * (AT(D_T, gradient, c) * scale[c] - plain0 - (AT(X_T, from, c) - m0) * s0 * share0), to, c);
  }
}
