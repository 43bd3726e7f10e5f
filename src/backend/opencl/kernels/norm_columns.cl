// norm_columns.cl -- statistics of columns over rows: what batch norm and the parameters of all norms need.
//
//   moments    x -> mean, var, rstd of each column; moments_partial: of a part of the rows, joined by moments_final
//   norm_sums  dgamma = sum dy (x - mean) rstd, dbeta = sum dy, over the rows of a part; norm_sums_final adds parts up
//
// A work-item owns a vector of VW <= cols columns of one part.
#include "columns.clh"

#ifndef CENTRE
#define CENTRE 0  // norm_sums: mean and rstd belong to 0 an image's group of columns, 1 a row, 2 a row without a mean
#endif

__kernel GROUP void moments(TENSOR(const X_T, x), TENSOR(float, mean), TENSOR(float, var), TENSOR(float, rstd),
                            int rows, int cols, float eps) {
  const int v = get_global_id(0);
  if (v >= VECTORS(cols)) return;
  const Moments m = moments_of(START(x) + vector_start(v, cols), x_pitch, rows);
  finish_moments(m, START(mean), START(var), START(rstd), v, cols, eps);
}

__kernel GROUP void moments_partial(TENSOR(const X_T, x), TENSOR(float, y), int rows, int cols, int parts, int len) {
  const int v = get_global_id(0), part = get_global_id(1), first = part * len;
  if (v >= VECTORS(cols) || part >= parts) return;
  const Moments m = moments_of(START(x) + first * x_pitch + vector_start(v, cols), x_pitch, min(len, rows - first));
  store_vector(m.mean, START(y) + part * y_pitch, v, cols, 0);
  store_vector(m.m2, START(y) + (parts + part) * y_pitch, v, cols, 0);
}

__kernel GROUP void moments_final(TENSOR(const float, x), TENSOR(float, mean), TENSOR(float, var), TENSOR(float, rstd),
                                  int rows, int cols, int parts, int len, float eps) {
  const int v = get_global_id(0);
  if (v >= VECTORS(cols)) return;
  __global const float* from = START(x) + vector_start(v, cols);
  Moments total = no_moments();
  for (int part = 0; part < parts; ++part) {
    Moments m;
    m.mean = LOAD(from + part * x_pitch);
    m.m2 = LOAD(from + (parts + part) * x_pitch);
    m.count = clamp(rows - part * len, 0, len);
    total = joined(total, m);
  }
  finish_moments(total, START(mean), START(var), START(rstd), v, cols, eps);
}

// The statistics of the groups that columns c.. belong to; a row of them per image.
static inline fv by_group(__global const float* row, int c, int width) {
  if (width == 1) return LOAD(row + c);
  float t[VW];
#pragma unroll
  for (int l = 0; l < VW; ++l) t[l] = row[(c + l) / width];
  return LOAD(t);
}

// Element i of a tensor of `cols` columns.
#define ELEMENT(x, i, cols) START(x)[(i) / (cols)*x##_pitch + (i) % (cols)]

// rows: of an image; each is cut into `splits` of len rows. width: columns of a group. stat_cols: of mean and rstd.
__kernel GROUP void norm_sums(TENSOR(const X_T, x), TENSOR(const D_T, dy), TENSOR(const float, mean),
                              TENSOR(const float, rstd), TENSOR(float, dgamma), TENSOR(float, dbeta), int images,
                              int rows, int cols, int splits, int len, int width, int stat_cols) {
  const int v = get_global_id(0), part = get_global_id(1), image = part / splits, first = (part - image * splits) * len;
  if (v >= VECTORS(cols) || part >= images * splits) return;
  const int c = vector_start(v, cols), end = min(rows, first + len);
  __global const X_T* from = START(x) + image * rows * x_pitch + c;
  __global const D_T* gradient = START(dy) + image * rows * dy_pitch + c;
#if CENTRE == 0
  const Sums sums = sums_of(from + first * x_pitch, x_pitch, gradient + first * dy_pitch, dy_pitch, end - first,
                            by_group(START(mean) + image * mean_pitch, c, width));
  const fv products = sums.products * by_group(START(rstd) + image * rstd_pitch, c, width), plain = sums.plain;
#else
  fv products = (fv)(0.0f), plain = products;
  for (int r0 = first; r0 < end; r0 += BLOCK) {
    fv p = (fv)(0.0f), s = p;
    for (int r = r0; r < min(end, r0 + BLOCK); ++r) {
      const fv g = LOAD_AS(D_T, gradient + r * dy_pitch);
#if CENTRE == 1
      const fv centred = (LOAD_AS(X_T, from + r * x_pitch) - (fv)(ELEMENT(mean, r, stat_cols))) * (fv)(ELEMENT(rstd, r, stat_cols));
#else
      const fv centred = LOAD_AS(X_T, from + r * x_pitch) * (fv)(ELEMENT(rstd, r, stat_cols));
#endif
      p += g * centred;
      s += g;
    }
    products += p;
    plain += s;
  }
#endif
  store_vector(products, START(dgamma) + part * dgamma_pitch, v, cols, 0);
#if CENTRE != 2
  store_vector(plain, START(dbeta) + part * dbeta_pitch, v, cols, 0);
#endif
}

__kernel GROUP void norm_sums_final(TENSOR(const float, x), TENSOR(float, dgamma), TENSOR(float, dbeta), int cols,
                                    int parts, int results) {
  const int v = get_global_id(0), result = get_global_id(1);
  if (v >= VECTORS(cols) || result >= results) return;
  __global const float* from = START(x) + result * parts * x_pitch + vector_start(v, cols);
  fv total = (fv)(0.0f);
  for (int part = 0; part < parts;) {
    fv few = (fv)(0.0f);
    for (const int end = min(parts, part + BLOCK); part < end; ++part) few += LOAD(from + part * x_pitch);
    total += few;
  }
  store_vector(total, result ? START(dbeta) : START(dgamma), v, cols, 0);
}
