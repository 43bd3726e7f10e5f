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

#ifndef X_T
#define X_T float  // or half: how x is stored
#endif
#ifndef D_T
#define D_T float  // likewise dy
#endif
#ifndef Y_T
#define Y_T float  // likewise the result
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

__kernel GROUP void norm_rows(TENSOR(const X_T, x), TENSOR(const float, gamma), TENSOR(const float, beta),
                              TENSOR(Y_T, y), TENSOR(float, mean), TENSOR(float, rstd), int rows, int cols,
                              int stat_cols, float eps) {
  const int row = ROW_INDEX;
  ROW_MEMORY
  if (row >= rows) return;
  __global const X_T* in = START(x) + row * x_pitch;
  __global const float *scale = START(gamma), *offset = START(beta);
  __global Y_T* out = START(y) + row * y_pitch;
#if CENTRED
  SUM_ROW(total, LOAD_AS(X_T, in + c), AT(X_T, in, c))
  const float m = total / (float)cols;
#else
  const float m = 0.0f;
#endif
  SUM_ROW(squares, square(LOAD_AS(X_T, in + c) - (fv)(m)), square_one(AT(X_T, in, c) - m))
  const float s = 1.0f / sqrt(squares / (float)cols + eps);
#if CENTRED
  ROW_VECTORS(c, cols) STORE_AS(Y_T, (LOAD_AS(X_T, in + c) - (fv)(m)) * (fv)(s) * LOAD(scale + c) + LOAD(offset + c), out + c);
  ROW_REST(c, cols) PUT(Y_T, (AT(X_T, in, c) - m) * s * scale[c] + offset[c], out, c);
  if (ROW_LANE == 0) STATISTIC(mean, row) = m;
#else
  ROW_VECTORS(c, cols) STORE_AS(Y_T, LOAD_AS(X_T, in + c) * (fv)(s) * LOAD(scale + c), out + c);
  ROW_REST(c, cols) PUT(Y_T, AT(X_T, in, c) * s * scale[c], out, c);
#endif
  if (ROW_LANE == 0) STATISTIC(rstd, row) = s;
}

__kernel GROUP void norm_dx(TENSOR(const X_T, x), TENSOR(const D_T, dy), TENSOR(const float, gamma),
                            TENSOR(const float, mean), TENSOR(const float, rstd), TENSOR(Y_T, dx), int rows, int cols,
                            int stat_cols) {
  const int row = ROW_INDEX;
  ROW_MEMORY
  if (row >= rows) return;
  __global const X_T* in = START(x) + row * x_pitch;
  __global const D_T* din = START(dy) + row * dy_pitch;
  __global const float* scale = START(gamma);
  __global Y_T* out = START(dx) + row * dx_pitch;
  const float s = STATISTIC(rstd, row);
#if CENTRED
  const float m = STATISTIC(mean, row);
  SUM_ROW(total, LOAD_AS(D_T, din + c) * LOAD(scale + c), AT(D_T, din, c) * scale[c])
  const float plain = total / (float)cols;
#else
  const float m = 0.0f, plain = 0.0f;
#endif
  SUM_ROW(products, LOAD_AS(D_T, din + c) * LOAD(scale + c) * ((LOAD_AS(X_T, in + c) - (fv)(m)) * (fv)(s)),
          AT(D_T, din, c) * scale[c] * ((AT(X_T, in, c) - m) * s))
  const float share = products / (float)cols;
  ROW_VECTORS(c, cols) {
    const fv g = LOAD_AS(D_T, din + c) * LOAD(scale + c), h = (LOAD_AS(X_T, in + c) - (fv)(m)) * (fv)(s);
    STORE_AS(Y_T, (fv)(s) * (g - (fv)(plain) - h * (fv)(share)), out + c);
  }
  ROW_REST(c, cols) PUT(Y_T, s * (AT(D_T, din, c) * scale[c] - plain - (AT(X_T, in, c) - m) * s * share), out, c);
}
