// norm_columns.cl -- statistics of columns over rows: what batch norm and the parameters of all norms need.
//
//   moments    x -> mean, var, rstd of each column; moments_partial: of a part of the rows, joined by moments_final
//   norm_sums  dgamma = sum dy (x - mean) rstd, dbeta = sum dy, over the rows of a part; norm_sums_final adds parts up
//
// A work-item owns a vector of VW <= cols columns of one part. Rows are taken in blocks with a mean of their own, joined
// in order (Chan): n = na + nb, d = mean_b - mean_a, mean = mean_a + d nb / n, m2 = m2_a + m2_b + d^2 na nb / n.
#include "common.clh"

#ifndef CENTRE
#define CENTRE 0  // norm_sums: mean and rstd belong to 0 an image's group of columns, 1 a row, 2 a row without a mean
#endif

#ifndef X_T
#define X_T float  // or half: how x is stored
#endif
#ifndef D_T
#define D_T float  // likewise dy
#endif

#define BLOCK 32   // rows summed before they join the rest
#define BLOCKS 32  // blocks joined before they join the total

typedef struct {
  fv mean, m2;
  int count;
} Moments;

static inline Moments joined(Moments a, Moments b) {
  const float share = b.count ? (float)b.count / (float)(a.count + b.count) : 0.0f;
  const fv d = b.mean - a.mean;
  a.m2 += b.m2 + d * d * (fv)((float)a.count * share);
  a.mean += d * (fv)(share);
  a.count += b.count;
  return a;
}

static inline Moments no_moments(void) {
  Moments m;
  m.mean = m.m2 = (fv)(0.0f);
  m.count = 0;
  return m;
}

static inline Moments block_moments(__global const X_T* x, int pitch, int rows) {
  fv a = (fv)(0.0f), b = a;
  int r = 0;
  for (; r + 2 <= rows; r += 2) {
    a += LOAD_AS(X_T, x + r * pitch);
    b += LOAD_AS(X_T, x + (r + 1) * pitch);
  }
  if (r < rows) a += LOAD_AS(X_T, x + r * pitch);
  Moments m;
  m.count = rows;
  m.mean = (a + b) / (fv)((float)rows);
  a = b = (fv)(0.0f);
  for (r = 0; r + 2 <= rows; r += 2) {
    const fv d = LOAD_AS(X_T, x + r * pitch) - m.mean, e = LOAD_AS(X_T, x + (r + 1) * pitch) - m.mean;
    a += d * d;
    b += e * e;
  }
  if (r < rows) {
    const fv d = LOAD_AS(X_T, x + r * pitch) - m.mean;
    a += d * d;
  }
  m.m2 = a + b;
  return m;
}

static inline Moments moments_of(__global const X_T* x, int pitch, int rows) {
  Moments total = no_moments(), few = total;
  for (int r = 0; r < rows; r += BLOCK) {
    few = joined(few, block_moments(x + r * pitch, pitch, min(BLOCK, rows - r)));
    if (few.count < BLOCK * BLOCKS && r + BLOCK < rows) continue;
    total = joined(total, few);
    few = no_moments();
  }
  return total;
}

static inline void finish_moments(Moments m, __global float* mean, __global float* var, __global float* rstd, int v,
                                  int cols, float eps) {
  const fv variance = m.m2 / (fv)((float)m.count);
  store_vector(m.mean, mean, v, cols, 0);
  store_vector(m.m2 / (fv)((float)max(1, m.count - 1)), var, v, cols, 0);
  store_vector((fv)(1.0f) / sqrt(variance + (fv)(eps)), rstd, v, cols, 0);
}

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
  fv products = (fv)(0.0f), plain = products;
#if CENTRE == 0
  const fv shift = by_group(START(mean) + image * mean_pitch, c, width);
#endif
  for (int r0 = first; r0 < end; r0 += BLOCK) {
    fv p = (fv)(0.0f), s = p;
    for (int r = r0; r < min(end, r0 + BLOCK); ++r) {
      const fv g = LOAD_AS(D_T, gradient + r * dy_pitch);
#if CENTRE == 0
      const fv centred = LOAD_AS(X_T, from + r * x_pitch) - shift;
#elif CENTRE == 1
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
#if CENTRE == 0
  products *= by_group(START(rstd) + image * rstd_pitch, c, width);
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
