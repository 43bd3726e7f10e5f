// norm_weights.cl -- the batch norm of a product x w by x's statistics (ops/defs/norm_weights.cpp).
//
//   covariance_partial  x[N,C] -> parts[P][C+1][C]: of a part's rows less x's first, [s 1]^T s; a work-item owns
//                       ROWS rows of a part's matrix and a vector of its columns
//   covariance_final    the parts, and x's first row -> mean, cov: a vector of a row
//   norm_weights        a vector of w's columns, and norm_weights_dw
//   norm_weights_dcov   an element; covariance_slope: a column
#include "columns.clh"

#define ROWS 4

// Element i of a row of x less the first row's; behind the last stands a one.
#define CENTRED(row, i) ((i) < cols ? AT(X_T, row, i) - AT(X_T, first, i) : 1.0f)

__kernel GROUP void covariance_partial(TENSOR(const X_T, x), TENSOR(float, y), int rows, int cols, int parts, int len) {
  const int v = get_global_id(0), i = get_global_id(1) * ROWS, part = get_global_id(2);
  if (v >= VECTORS(cols) || i > cols) return;
  __global const X_T* first = START(x);
  const int c = vector_start(v, cols), end = min(rows, (part + 1) * len);
  const fv shift = LOAD_AS(X_T, first + c);
  const int i1 = min(i + 1, cols), i2 = min(i + 2, cols), i3 = min(i + 3, cols);
  fv t0 = (fv)(0.0f), t1 = t0, t2 = t0, t3 = t0;
  for (int r0 = part * len; r0 < end; r0 += BLOCK) {
    fv s0 = (fv)(0.0f), s1 = s0, s2 = s0, s3 = s0;
    for (int r = r0; r < min(end, r0 + BLOCK); ++r) {
      __global const X_T* row = first + r * x_pitch;
      const fv s = LOAD_AS(X_T, row + c) - shift;
      s0 = MAC((fv)(CENTRED(row, i)), s, s0);
      s1 = MAC((fv)(CENTRED(row, i1)), s, s1);
      s2 = MAC((fv)(CENTRED(row, i2)), s, s2);
      s3 = MAC((fv)(CENTRED(row, i3)), s, s3);
    }
    t0 += s0;
    t1 += s1;
    t2 += s2;
    t3 += s3;
  }
  __global float* to = START(y) + (part * (cols + 1) + i) * y_pitch;
  store_vector(t0, to, v, cols, 0);
  if (i + 1 <= cols) store_vector(t1, to + y_pitch, v, cols, 0);
  if (i + 2 <= cols) store_vector(t2, to + 2 * y_pitch, v, cols, 0);
  if (i + 3 <= cols) store_vector(t3, to + 3 * y_pitch, v, cols, 0);
}

__kernel GROUP void covariance_final(TENSOR(const float, part), TENSOR(const X_T, x), TENSOR(float, mean),
                                     TENSOR(float, cov), int rows, int cols, int parts) {
  const int v = get_global_id(0), i = get_global_id(1), c = vector_start(v, cols);
  if (v >= VECTORS(cols) || i >= cols) return;
  __global const float* from = START(part);
  fv products = (fv)(0.0f), sums = products;
  float other = 0.0f;
  for (int p = 0; p < parts; ++p, from += (cols + 1) * part_pitch) {
    products += LOAD(from + i * part_pitch + c);
    sums += LOAD(from + cols * part_pitch + c);
    other += from[cols * part_pitch + i];
  }
  const float inv_n = 1.0f / (float)rows;
  const fv distance = sums * (fv)(inv_n);  // of the mean from the first row
  store_vector(products * (fv)(inv_n) - distance * (fv)(other * inv_n), START(cov) + i * cov_pitch, v, cols, 0);
  if (i == 0) store_vector(LOAD_AS(X_T, START(x) + c) + distance, START(mean), v, cols, 0);
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
  // Rounding may leave a little less than nothing of a column that does not vary.
  const fv r = (fv)(1.0f) / sqrt(max_of((fv)(0.0f), square) + (fv)(eps)), scale = LOAD(START(gamma) + c) * r;
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
