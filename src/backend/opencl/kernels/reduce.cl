// reduce.cl -- sum, mean or maximum over neighbouring axes, in chunks whose number depends on the shape alone.
//
//   reduce_rows  y[a, part]       over r1, r2 of x[a, r1, r2]: the reduced axes are the last; r2 is contiguous
//   reduce_cols  y[a, part, w, c] over r of x[a, r, w, c]: the last axis is kept; a vector of VW <= C columns at a time
//
// Each part is one work-item with four vector accumulators (reduce_rows: or a group, rows.clh). Many parts: a second launch reduces them, in order.
// KIND 0 adds, 1 takes the maximum; `scale` makes a mean of a sum.
#include "rows.clh"

#ifndef KIND
#define KIND 0  // 0: sum, 1: maximum
#endif

#ifndef X_T
#define X_T float  // or half: how x is stored
#endif

#if KIND
#define NEUTRAL (-INFINITY)
#define COMBINE(a, b) max_of(a, b)
#define LANES(v) max_of_lanes(v)
#define COMBINE_SCALAR(a, b) ((a) > (b) ? (a) : (b))
#define OF_ROW row_largest
#else
#define NEUTRAL 0.0f
#define COMBINE(a, b) ((a) + (b))
#define LANES(v) sum_of_lanes(v)
#define COMBINE_SCALAR(a, b) ((a) + (b))
#define OF_ROW row_total
#endif

// Part p takes r1 from p * step1 on, len1 of them, and of each r2 from p * step2 on, len2. Element i of y lies at
// (i / y_cols) * y_pitch + i % y_cols.
__kernel GROUP void reduce_rows(TENSOR(const X_T, x), TENSOR(float, y), int rows, int parts, int extent1, int extent2,
                                int step1, int len1, int step2, int len2, int y_cols, float scale) {
  const int part = ROW_INDEX, row = get_global_id(1);
  ROW_MEMORY
  if (part >= parts || row >= rows) return;
  const int from1 = part * step1, to1 = min(extent1, from1 + len1), from2 = part * step2, to2 = min(extent2, from2 + len2);
  fv a0 = (fv)(NEUTRAL), a1 = a0, a2 = a0, a3 = a0;
  float rest = NEUTRAL;
  for (int r = from1; r < to1; ++r) {
    __global const X_T* p = START(x) + (row * extent1 + r) * x_pitch;
    int i = from2 + ROW_LANE * 4 * VW;
    for (; i + 4 * VW <= to2; i += ROW_ITEMS * 4 * VW) {
      a0 = COMBINE(a0, LOAD_AS(X_T, p + i));
      a1 = COMBINE(a1, LOAD_AS(X_T, p + i + VW));
      a2 = COMBINE(a2, LOAD_AS(X_T, p + i + 2 * VW));
      a3 = COMBINE(a3, LOAD_AS(X_T, p + i + 3 * VW));
    }
    const int fours = from2 + max(0, to2 - from2) / (4 * VW) * (4 * VW), ones = fours + (to2 - fours) / VW * VW;
    for (i = fours + ROW_LANE * VW; i + VW <= to2; i += ROW_ITEMS * VW) a0 = COMBINE(a0, LOAD_AS(X_T, p + i));
    for (i = ones + ROW_LANE; i < to2; i += ROW_ITEMS) rest = COMBINE_SCALAR(rest, AT(X_T, p, i));
  }
  const fv all = COMBINE(COMBINE(a0, a1), COMBINE(a2, a3));
  const float result = OF_ROW(COMBINE_SCALAR(LANES(all), rest) ROW_PASS);
  const int i = row * parts + part;
  if (ROW_LANE == 0) START(y)[i / y_cols * y_pitch + i % y_cols] = result * scale;
}

__kernel GROUP void reduce_cols(TENSOR(const X_T, x), TENSOR(float, y), int extent, int parts, int len, int lines,
                                int outer, int cols, float scale) {
  const int vector = get_global_id(0), part = get_global_id(1), line = (int)get_global_id(2) % lines;
  const int a = (int)get_global_id(2) / lines, from = part * len, to = min(extent, from + len);
  if (vector >= VECTORS(cols) || part >= parts || a >= outer) return;
  const int step = lines * x_pitch;
  __global const X_T* p = START(x) + ((a * extent + from) * lines + line) * x_pitch + vector_start(vector, cols);
  fv a0 = (fv)(NEUTRAL), a1 = a0, a2 = a0, a3 = a0;
  int r = from;
  for (; r + 4 <= to; r += 4, p += 4 * step) {
    a0 = COMBINE(a0, LOAD_AS(X_T, p));
    a1 = COMBINE(a1, LOAD_AS(X_T, p + step));
    a2 = COMBINE(a2, LOAD_AS(X_T, p + 2 * step));
    a3 = COMBINE(a3, LOAD_AS(X_T, p + 3 * step));
  }
  for (; r < to; ++r, p += step) a0 = COMBINE(a0, LOAD_AS(X_T, p));
  const fv all = COMBINE(COMBINE(a0, a1), COMBINE(a2, a3)) * (fv)(scale);
  store_vector(all, START(y) + ((a * parts + part) * lines + line) * y_pitch, vector, cols, 0);
}
