// norm_weights.cl -- the batch norm of a product x w by x's statistics (ops/defs/norm_weights.cpp).
//
//   covariance_partial  x[N,C] -> parts[P][C+1][C]: of a part's rows sum (x - mean)^T (x - mean), and below it their
//                       mean; a work-item owns four rows of a part's matrix and a vector of its columns
//   covariance_final    joins the parts: mean, cov; a vector of a row
//   norm_weights        a vector of w's columns, and norm_weights_dw
//   norm_weights_dcov   an element; covariance_slope: a column
#include "columns.clh"

// Adds to t, squares of the rows so far, those of a block with means of its own (Chan). `weight`: rows so far times the
// block's share of all.
#define JOIN(t, squares, mean_i, block_i, mean, block) \
  t += squares + (fv)(((block_i) - (mean_i)) * weight) * ((block) - (mean))

__kernel GROUP void covariance_partial(TENSOR(const X_T, x), TENSOR(float, y), int rows, int cols, int len) {
  const int v = get_global_id(0), i = get_global_id(1) * 4, part = get_global_id(2), begin = part * len;
  if (v >= VECTORS(cols) || i >= cols) return;
  __global const X_T* from = START(x);
  const int c = vector_start(v, cols), end = min(rows, begin + len), last = cols - 1;
  const int i1 = min(i + 1, last), i2 = min(i + 2, last), i3 = min(i + 3, last);
  fv mean = (fv)(0.0f), t0 = mean, t1 = mean, t2 = mean, t3 = mean;
  float m0 = 0.0f, m1 = 0.0f, m2 = 0.0f, m3 = 0.0f;
  for (int r0 = begin; r0 < end; r0 += BLOCK) {
    const int n = min(BLOCK, end - r0);
    fv block = (fv)(0.0f);
    float b0 = 0.0f, b1 = 0.0f, b2 = 0.0f, b3 = 0.0f;
    for (int r = r0; r < r0 + n; ++r) {
      __global const X_T* row = from + r * x_pitch;
      block += LOAD_AS(X_T, row + c);
      b0 += AT(X_T, row, i), b1 += AT(X_T, row, i1), b2 += AT(X_T, row, i2), b3 += AT(X_T, row, i3);
    }
    block /= (fv)((float)n);
    b0 /= (float)n, b1 /= (float)n, b2 /= (float)n, b3 /= (float)n;
    fv s0 = (fv)(0.0f), s1 = s0, s2 = s0, s3 = s0;
    for (int r = r0; r < r0 + n; ++r) {
      __global const X_T* row = from + r * x_pitch;
      const fv s = LOAD_AS(X_T, row + c) - block;
      s0 = MAC((fv)(AT(X_T, row, i) - b0), s, s0);
      s1 = MAC((fv)(AT(X_T, row, i1) - b1), s, s1);
      s2 = MAC((fv)(AT(X_T, row, i2) - b2), s, s2);
      s3 = MAC((fv)(AT(X_T, row, i3) - b3), s, s3);
    }
    const float share = (float)n / (float)(r0 - begin + n), weight = (float)(r0 - begin) * share;
    JOIN(t0, s0, m0, b0, mean, block);
    JOIN(t1, s1, m1, b1, mean, block);
    JOIN(t2, s2, m2, b2, mean, block);
    JOIN(t3, s3, m3, b3, mean, block);
    mean += (block - mean) * (fv)(share);
    m0 += (b0 - m0) * share, m1 += (b1 - m1) * share, m2 += (b2 - m2) * share, m3 += (b3 - m3) * share;
  }
  __global float* to = START(y) + part * (cols + 1) * y_pitch;
  store_vector(t0, to + i * y_pitch, v, cols, 0);
  if (i + 1 < cols) store_vector(t1, to + (i + 1) * y_pitch, v, cols, 0);
  if (i + 2 < cols) store_vector(t2, to + (i + 2) * y_pitch, v, cols, 0);
  if (i + 3 < cols) store_vector(t3, to + (i + 3) * y_pitch, v, cols, 0);
  if (i == 0) store_vector(mean, to + cols * y_pitch, v, cols, 0);
}

__kernel GROUP void covariance_final(TENSOR(const float, part), TENSOR(float, mean), TENSOR(float, cov), int rows,
                                     int cols, int len) {
  const int v = get_global_id(0), i = get_global_id(1), c = vector_start(v, cols);
  if (v >= VECTORS(cols) || i >= cols) return;
  __global const float* from = START(part);
  fv squares = (fv)(0.0f), total = squares;
  float total_i = 0.0f;
  for (int begin = 0; begin < rows; begin += len, from += (cols + 1) * part_pitch) {
    const int n = min(len, rows - begin);
    const fv block = LOAD(from + cols * part_pitch + c);
    const float block_i = from[cols * part_pitch + i];
    const float share = (float)n / (float)(begin + n), weight = (float)begin * share;
    JOIN(squares, LOAD(from + i * part_pitch + c), total_i, block_i, total, block);
    total += (block - total) * (fv)(share);
    total_i += (block_i - total_i) * share;
  }
  store_vector(squares / (fv)((float)rows), START(cov) + i * cov_pitch, v, cols, 0);
  if (i == 0) store_vector(total, START(mean), v, cols, 0);
}

// Row i of cov, or of cov + cov^T, times the columns of w.
static inline fv weighted(__global const float* cov, int cov_pitch, __global const float* column, int w_pitch, int inner,
                          int i, int both) {
  fv sum = (fv)(0.0f);
  for (int k = 0; k < inner; ++k) {
    const float factor = cov[i * cov_pitch + k] + (both ? cov[k * cov_pitch + i] : 0.0f);
    sum = MAC((fv)(factor), LOAD(column + k * w_pitch), sum);
  }
  return sum;
}

__kernel GROUP void norm_weights(TENSOR(const float, mean), TENSOR(const float, cov), TENSOR(const float, w),
                                 TENSOR(const float, gamma), TENSOR(const float, beta), TENSOR(float, weight),
                                 TENSOR(float, shift), TENSOR(float, product), TENSOR(float, var), TENSOR(float, rstd),
                                 int inner, int cols, float eps, float unbiased) {
  const int v = get_global_id(0), c = vector_start(v, cols);
  if (v >= VECTORS(cols)) return;
  __global const float* column = START(w) + c;
  fv m = (fv)(0.0f), square = m;
  for (int i = 0; i < inner; ++i) {
    const fv x = LOAD(column + i * w_pitch);
    m = MAC((fv)(START(mean)[i]), x, m);
    square = MAC(weighted(START(cov), cov_pitch, column, w_pitch, inner, i, 0), x, square);
  }
  square = max_of((fv)(0.0f), square);  // rounding may leave a little less than nothing of a column that does not vary
  const fv r = (fv)(1.0f) / sqrt(square + (fv)(eps)), scale = LOAD(START(gamma) + c) * r;
  for (int i = 0; i < inner; ++i)
    store_vector(LOAD(column + i * w_pitch) * scale, START(weight) + i * weight_pitch, v, cols, 0);
  store_vector(LOAD(START(beta) + c) - m * scale, START(shift), v, cols, 0);
  store_vector(m, START(product), v, cols, 0);
  store_vector(square * (fv)(unbiased), START(var), v, cols, 0);
  store_vector(r, START(rstd), v, cols, 0);
}

__kernel GROUP void norm_weights_dw(TENSOR(const float, mean), TENSOR(const float, cov), TENSOR(const float, w),
                                    TENSOR(const float, gamma), TENSOR(const float, product), TENSOR(const float, rstd),
                                    TENSOR(const float, dweight), TENSOR(const float, dshift),
                                    TENSOR(const float, dproduct), TENSOR(const float, dsquare), TENSOR(float, dw),
                                    TENSOR(float, dgamma), TENSOR(float, dmean), TENSOR(float, dv), int inner, int cols) {
  const int v = get_global_id(0), c = vector_start(v, cols);
  if (v >= VECTORS(cols)) return;
  __global const float* column = START(w) + c;
  const fv ds = LOAD(START(dshift) + c), r = LOAD(START(rstd) + c), g = LOAD(START(gamma) + c), scale = g * r;
  fv dscale = -LOAD(START(product) + c) * ds;
  for (int i = 0; i < inner; ++i)
    dscale = MAC(LOAD(column + i * w_pitch), LOAD(START(dweight) + i * dweight_pitch + c), dscale);
  const fv dg = dscale * r, dm = LOAD(START(dproduct) + c) - scale * ds;
  const fv d = LOAD(START(dsquare) + c) - (fv)(0.5f) * r * r * g * dg;
  store_vector(dg, START(dgamma), v, cols, 0);
  store_vector(dm, START(dmean), v, cols, 0);
  store_vector(d, START(dv), v, cols, 0);
  for (int i = 0; i < inner; ++i) {
    const fv through = weighted(START(cov), cov_pitch, column, w_pitch, inner, i, 1) * d + dm * (fv)(START(mean)[i]);
    const fv plain = LOAD(START(dweight) + i * dweight_pitch + c) * scale;
    store_vector(plain + through, START(dw) + i * dw_pitch, v, cols, 0);
  }
}

// Element (i, j) of dcov; those behind a row's last are the gradient of x's mean.
__kernel GROUP void norm_weights_dcov(TENSOR(const float, w), TENSOR(const float, dmean), TENSOR(const float, dv),
                                         TENSOR(float, dx_mean), TENSOR(float, dcov), int inner, int cols) {
  const int j = get_global_id(0), i = get_global_id(1);
  if (j > inner || i >= inner) return;
  __global const float* row = START(w) + i * w_pitch;
  __global const float* other = START(w) + min(j, inner - 1) * w_pitch;
  fv sum = (fv)(0.0f);
  float rest = 0.0f;
  int c = 0;
  if (j < inner) {
    for (; c + VW <= cols; c += VW) sum += LOAD(row + c) * LOAD(START(dv) + c) * LOAD(other + c);
    for (; c < cols; ++c) rest += row[c] * START(dv)[c] * other[c];
    START(dcov)[i * dcov_pitch + j] = sum_of_lanes(sum) + rest;
  } else {
    for (; c + VW <= cols; c += VW) sum += LOAD(row + c) * LOAD(START(dmean) + c);
    for (; c < cols; ++c) rest += row[c] * START(dmean)[c];
    START(dx_mean)[i] = sum_of_lanes(sum) + rest;
  }
}

__kernel GROUP void covariance_slope(TENSOR(const float, mean), TENSOR(const float, dmean), TENSOR(const float, dcov),
                                     TENSOR(float, slope), TENSOR(float, shift), int cols, float inv_n) {
  const int j = get_global_id(0);
  if (j >= cols) return;
  float sum = START(dmean)[j] * inv_n;
  for (int i = 0; i < cols; ++i) {
    const float both = (START(dcov)[i * dcov_pitch + j] + START(dcov)[j * dcov_pitch + i]) * inv_n;
    START(slope)[i * slope_pitch + j] = both;
    sum -= START(mean)[i] * both;
  }
  START(shift)[j] = sum;
}
