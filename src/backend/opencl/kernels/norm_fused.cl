// norm_fused.cl -- statistics of columns and the pointwise function that reads them in one launch: ops/norm_fused.h.
//
// A work-item owns VW columns over all rows: it takes their statistics, which stay in registers, and then goes over the
// rows a second time. y may lie where an operand does, so cols is a multiple of VW: no two vectors share a column.
// The function is source text put before this file: EACH_OTHER lists its further inputs as F(name, kind, type), kind
// being 0 for one value, 1 for one per column, 2 for an image like x; LITERALS, STEPS and RESULT are as in pointwise.cl.
#include "columns.clh"
#include "math.clh"

#ifndef SUMS
#define SUMS 0  // 1: norm_sums_fused, 0: moments_fused; their functions see different inputs
#endif
#ifndef EACH_OTHER
#define EACH_OTHER(F)  // inputs that are not operands of the statistics
#endif
#ifndef LITERALS
#define LITERALS  // parameters for constants of the expression: , float k0, float k1
#endif
#ifndef STEPS
#define STEPS const fv t0 = (i0 - i1) * i2;  // statements over fv variables named like the inputs
#endif
#ifndef RESULT
#define RESULT t0  // the value stored
#endif
#ifndef Y_T
#define Y_T float  // or half: how y is stored
#endif

#define WAY(a, b) WAY_(a, b)
#define WAY_(a, b) a##b
#define PARAM(x, kind, T) TENSOR(const T, x),
// What all rows share is loaded before the loop over rows, the rest in it.
#define SHARED(x, kind, T) WAY(SHARED_, kind)(x, T)
#define SHARED_0(x, T) const fv x = (fv)(AT(T, START(x), 0));
#define SHARED_1(x, T) const fv x = LOAD_AS(T, START(x) + c);
#define SHARED_2(x, T)
#define OWN(x, kind, T) WAY(OWN_, kind)(x, T)
#define OWN_0(x, T)
#define OWN_1(x, T)
#define OWN_2(x, T) const fv x = LOAD_AS(T, START(x) + r * x##_pitch + c);

#if !SUMS
__kernel GROUP void moments_fused(TENSOR(const X_T, i0), EACH_OTHER(PARAM) TENSOR(Y_T, y), TENSOR(float, mean),
                                  TENSOR(float, var), TENSOR(float, rstd), int rows, int cols, float eps LITERALS) {
  const int v = get_global_id(0), c = v * VW;
  if (c >= cols) return;
  const Moments m = moments_of(START(i0) + c, i0_pitch, rows);
  const fv i1 = m.mean, i2 = finish_moments(m, START(mean), START(var), START(rstd), v, cols, eps);
  EACH_OTHER(SHARED)
  for (int r = 0; r < rows; ++r) {
    const fv i0 = LOAD_AS(X_T, START(i0) + r * i0_pitch + c);
    EACH_OTHER(OWN)
    STEPS
    STORE_AS(Y_T, RESULT, START(y) + r * y_pitch + c);
  }
}
#else
__kernel GROUP void norm_sums_fused(TENSOR(const X_T, i0), TENSOR(const D_T, i1), TENSOR(const float, i2),
                                    TENSOR(const float, i3), EACH_OTHER(PARAM) TENSOR(Y_T, y), TENSOR(float, dgamma),
                                    TENSOR(float, dbeta), int rows, int cols LITERALS) {
  const int v = get_global_id(0), c = v * VW;
  if (c >= cols) return;
  const fv i2 = LOAD(START(i2) + c), i3 = LOAD(START(i3) + c);
  const Sums sums = sums_of(START(i0) + c, i0_pitch, START(i1) + c, i1_pitch, rows, i2);
  const fv i4 = sums.products * i3, i5 = sums.plain;
  STORE(i4, START(dgamma) + c);
  STORE(i5, START(dbeta) + c);
  EACH_OTHER(SHARED)
  for (int r = 0; r < rows; ++r) {
    const fv i0 = LOAD_AS(X_T, START(i0) + r * i0_pitch + c), i1 = LOAD_AS(D_T, START(i1) + r * i1_pitch + c);
    EACH_OTHER(OWN)
    STEPS
    STORE_AS(Y_T, RESULT, START(y) + r * y_pitch + c);
  }
}
#endif
