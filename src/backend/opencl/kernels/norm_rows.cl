// norm_rows.cl -- layer norm and rms norm along the last axis, and their gradients with respect to x.
//
//   norm_rows  layer norm: y = (x - mean) rstd gamma + beta      rms norm (CENTRED 0): y = x rstd gamma
//   norm_dx    dx = rstd (g - mean(g) - h mean(g h)), g = dy gamma, h = (x - mean) rstd; CENTRED 0: without mean(g)
// A work-item or a group owns a row (rows.clh). Either may work in place: an element is read before it is written. Sums are made of short
// blocks. stat_cols: columns of the tensors mean and rstd, which hold a number for each row.
#include "rows.clh"

#ifndef CENTRED
#define CENTRED 1  // 0: rms norm, no mean and no beta
#endif

#define BLOCK 32  // vectors summed before they join the total

#define STATISTIC(x, i) START(x)[(i) / stat_cols * x##_pitch + (i) % stat_cols]

// total = the sum over a row of VECTOR (at column c, a whole vector) and SCALAR (at column c, one element)
#define SUM_ROW(total, VECTOR, SCALAR)                                                      \
  float total = 0.0f;                                                                       \
  {                                                                                         \
    fv sum = (fv)(0.0f);                                                                    \
    int c = ROW_LANE * VW;                                                                  \
    while (c + VW <= cols) {                                                                \
      fv few = (fv)(0.0f);                                                                  \
      for (int k = 0; k < BLOCK && c + VW <= cols; ++k, c += ROW_ITEMS * VW) few += VECTOR; \
      sum += few;                                                                           \
    }                                                                                       \
    for (c = cols / VW * VW + ROW_LANE; c < cols; c += ROW_ITEMS) total += SCALAR;          \
    total = row_total(total + sum_of_lanes(sum) ROW_PASS);                                  \
  }

static inline fv square(fv v) { return v * v; }
static inline float square_one(float v) { return v * v; }

__kernel GROUP void norm_rows(TENSOR(const float, x), TENSOR(const float, gamma), TENSOR(const float, beta),
                              TENSOR(float, y), TENSOR(float, mean), TENSOR(float, rstd), int rows, int cols,
                              int stat_cols, float eps) {
  const int row = ROW_INDEX;
  ROW_MEMORY
  if (row >= rows) return;
  __global const float *in = START(x) + row * x_pitch, *scale = START(gamma), *offset = START(beta);
  __global float* out = START(y) + row * y_pitch;
#if CENTRED
  SUM_ROW(total, LOAD(in + c), in[c])
  const float m = total / (float)cols;
#else
  const float m = 0.0f;
#endif
  SUM_ROW(squares, square(LOAD(in + c) - (fv)(m)), square_one(in[c] - m))
  const float s = 1.0f / sqrt(squares / (float)cols + eps);
#if CENTRED
  ROW_VECTORS(c, cols) STORE((LOAD(in + c) - (fv)(m)) * (fv)(s) * LOAD(scale + c) + LOAD(offset + c), out + c);
  ROW_REST(c, cols) out[c] = (in[c] - m) * s * scale[c] + offset[c];
  if (ROW_LANE == 0) STATISTIC(mean, row) = m;
#else
  ROW_VECTORS(c, cols) STORE(LOAD(in + c) * (fv)(s) * LOAD(scale + c), out + c);
  ROW_REST(c, cols) out[c] = in[c] * s * scale[c];
#endif
  if (ROW_LANE == 0) STATISTIC(rstd, row) = s;
}

__kernel GROUP void norm_dx(TENSOR(const float, x), TENSOR(const float, dy), TENSOR(const float, gamma),
                            TENSOR(const float, mean), TENSOR(const float, rstd), TENSOR(float, dx), int rows, int cols,
                            int stat_cols) {
  const int row = ROW_INDEX;
  ROW_MEMORY
  if (row >= rows) return;
  __global const float *in = START(x) + row * x_pitch, *din = START(dy) + row * dy_pitch, *scale = START(gamma);
  __global float* out = START(dx) + row * dx_pitch;
  const float s = STATISTIC(rstd, row);
#if CENTRED
  const float m = STATISTIC(mean, row);
  SUM_ROW(total, LOAD(din + c) * LOAD(scale + c), din[c] * scale[c])
  const float plain = total / (float)cols;
#else
  const float m = 0.0f, plain = 0.0f;
#endif
  SUM_ROW(products, LOAD(din + c) * LOAD(scale + c) * ((LOAD(in + c) - (fv)(m)) * (fv)(s)),
          din[c] * scale[c] * ((in[c] - m) * s))
  const float share = products / (float)cols;
  ROW_VECTORS(c, cols) {
    const fv g = LOAD(din + c) * LOAD(scale + c), h = (LOAD(in + c) - (fv)(m)) * (fv)(s);
    STORE((fv)(s) * (g - (fv)(plain) - h * (fv)(share)), out + c);
  }
  ROW_REST(c, cols) out[c] = s * (din[c] * scale[c] - plain - (in[c] - m) * s * share);
}
