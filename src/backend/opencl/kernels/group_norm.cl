// group_norm.cl -- group norm and its gradient with respect to x. A work-item owns a group of channels of one image.
//
//   group_norm     y = (x - mean) rstd gamma + beta, mean and rstd of the group
//   group_norm_dx  dx = rstd (g - mean(g) - h mean(g h)), g = dy gamma, h = (x - mean) rstd
// VW <= width, the channels of a group. Either may work in place: an element is read before it is written.
#include "common.clh"

#define TERMS 64  // added up before they join the total

// The sum over the group of VECTOR (at pixel p, channels c..c + VW - 1 of the group) and SCALAR (at channel c).
#define SUM_GROUP(total, VECTOR, SCALAR)          \
  float total = 0.0f;                             \
  {                                               \
    fv sum = (fv)(0.0f), few = sum;               \
    float rest = 0.0f;                            \
    int terms = 0, rest_terms = 0;                \
    for (int p = 0; p < pixels; ++p) {            \
      int c = 0;                                  \
      for (; c + VW <= width; c += VW) {          \
        few += VECTOR;                            \
        if (++terms < TERMS) continue;            \
        sum += few;                               \
        few = (fv)(0.0f);                         \
        terms = 0;                                \
      }                                           \
      for (; c < width; ++c) {                    \
        rest += SCALAR;                           \
        if (++rest_terms < TERMS) continue;       \
        total += rest;                            \
        rest = 0.0f;                              \
        rest_terms = 0;                           \
      }                                           \
    }                                             \
    total += rest + sum_of_lanes(sum + few);      \
  }

#define EACH_PIXEL for (int p = 0; p < pixels; ++p)

static inline fv square(fv v) { return v * v; }
static inline float square_one(float v) { return v * v; }

__kernel GROUP void group_norm(TENSOR(const float, x), TENSOR(const float, gamma), TENSOR(const float, beta),
                               TENSOR(float, y), TENSOR(float, mean), TENSOR(float, rstd), int images, int pixels,
                               int groups, int width, float eps) {
  const int group = get_global_id(0), image = get_global_id(1), first = group * width;
  if (group >= groups || image >= images) return;
  __global const float *in = START(x) + image * pixels * x_pitch + first, *scale = START(gamma) + first;
  __global const float* offset = START(beta) + first;
  __global float* out = START(y) + image * pixels * y_pitch + first;
  const float n = (float)pixels * (float)width;
  SUM_GROUP(total, LOAD(in + p * x_pitch + c), in[p * x_pitch + c])
  const float m = total / n;
  SUM_GROUP(squares, square(LOAD(in + p * x_pitch + c) - (fv)(m)), square_one(in[p * x_pitch + c] - m))
  const float s = 1.0f / sqrt(squares / n + eps);
  EACH_PIXEL {
    __global const float* from = in + p * x_pitch;
    __global float* to = out + p * y_pitch;
    int c = 0;
    for (; c + VW <= width; c += VW) STORE((LOAD(from + c) - (fv)(m)) * (fv)(s) * LOAD(scale + c) + LOAD(offset + c), to + c);
    for (; c < width; ++c) to[c] = (from[c] - m) * s * scale[c] + offset[c];
  }
  START(mean)[image * mean_pitch + group] = m;
  START(rstd)[image * rstd_pitch + group] = s;
}

__kernel GROUP void group_norm_dx(TENSOR(const float, x), TENSOR(const float, dy), TENSOR(const float, gamma),
                                  TENSOR(const float, mean), TENSOR(const float, rstd), TENSOR(float, dx), int images,
                                  int pixels, int groups, int width) {
  const int group = get_global_id(0), image = get_global_id(1), first = group * width;
  if (group >= groups || image >= images) return;
  __global const float *in = START(x) + image * pixels * x_pitch + first, *scale = START(gamma) + first;
  __global const float* din = START(dy) + image * pixels * dy_pitch + first;
  __global float* out = START(dx) + image * pixels * dx_pitch + first;
  const float n = (float)pixels * (float)width;
  const float m = START(mean)[image * mean_pitch + group], s = START(rstd)[image * rstd_pitch + group];
  SUM_GROUP(total, LOAD(din + p * dy_pitch + c) * LOAD(scale + c), din[p * dy_pitch + c] * scale[c])
  SUM_GROUP(products, LOAD(din + p * dy_pitch + c) * LOAD(scale + c) * ((LOAD(in + p * x_pitch + c) - (fv)(m)) * (fv)(s)),
            din[p * dy_pitch + c] * scale[c] * ((in[p * x_pitch + c] - m) * s))
  const float plain = total / n, share = products / n;
  EACH_PIXEL {
    __global const float *from = in + p * x_pitch, *gradient = din + p * dy_pitch;
    __global float* to = out + p * dx_pitch;
    int c = 0;
    for (; c + VW <= width; c += VW) {
      const fv g = LOAD(gradient + c) * LOAD(scale + c), h = (LOAD(from + c) - (fv)(m)) * (fv)(s);
      STORE((fv)(s) * (g - (fv)(plain) - h * (fv)(share)), to + c);
    }
    for (; c < width; ++c) to[c] = s * (gradient[c] * scale[c] - plain - (from[c] - m) * s * share);
  }
}
