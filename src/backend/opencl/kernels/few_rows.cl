// few_rows.cl -- products whose left operand has at most ROWS rows: B is read once, in the order it lies in memory.
//
//   few_rows      part[z, m, n] = sum_k a[m, k] * b[k, n]    k from z * k_split on; sum_splits adds the parts; the first
//                                                            one ends with the bias if there is one
//   few_dots      y[m, n]       = sum_k a[m, k] * b[n, k]
//
// The register tile of gemm.cl walks down a panel of B: with few rows nothing hides what each row of B costs to fetch.
// few_rows: work-item (x, 1, z) walks columns x * span to (x + 1) * span of KB rows of B at a time, that many streams, and
// keeps its sums in `part`. few_dots: work-item x does `span` rows of B, two at a time.
#include "common.clh"

#define ROWS 8
#define KB 8

static inline void row_starts(__global const float* p[ROWS], __global const float* a, int pitch, int m) {
#pragma unroll
  for (int r = 0; r < ROWS; ++r) p[r] = a + min(r, m - 1) * pitch;
}

// Adds rows k0..k1-1 of B to the sums at columns c..c+VW-1 and d..d+VW-1; lanes before c_lo and d_lo belong to
// neighbours. The sums start from zero or, `going_on`, from what they are; `bias` or nothing comes last: begun with, a
// large one would have every term rounded at its size.
static inline void add_rows(__global const float* const p[ROWS], __global const float* b, int b_pitch, int k0, int k1,
                            __global float* y, int m, int n, int c, int c_lo, int d, int d_lo,
                            int going_on, __global const float* bias) {
  fv left[ROWS], right[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    __global const float* row = y + min(r, m - 1) * n;
    left[r] = going_on ? LOAD(row + c) : (fv)(0.0f);
    right[r] = going_on ? LOAD(row + d) : (fv)(0.0f);
  }
  for (int k = k0; k < k1; ++k) {
    const fv bc = LOAD(b + k * b_pitch + c), bd = LOAD(b + k * b_pitch + d);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const fv a = (fv)(p[r][k]);
      left[r] = MAC(a, bc, left[r]);
      right[r] = MAC(a, bd, right[r]);
    }
  }
  const fv left_bias = bias ? LOAD(bias + c) : (fv)(0.0f), right_bias = bias ? LOAD(bias + d) : (fv)(0.0f);
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    if (r >= m) continue;
    left[r] += left_bias;
    right[r] += right_bias;
    if (c_lo == 0 && d_lo == 0) {
      STORE(left[r], y + r * n + c);
      STORE(right[r], y + r * n + d);
    } else {
      store_lanes(left[r], y + r * n + c, c_lo, VW);
      store_lanes(right[r], y + r * n + d, d_lo, VW);
    }
  }
}

__kernel GROUP void few_rows(TENSOR(const float, a), TENSOR(const float, b), TENSOR(float, part), TENSOR(const float, bias),
                             int m, int n, int k, int k_split, int span, int has_bias) {
  const int c0 = get_global_id(0) * span, c1 = min(n, c0 + span), z = get_global_id(2);
  const int k0 = z * k_split, k1 = min(k, k0 + k_split);
  __global const float* p[ROWS];
  row_starts(p, START(a), a_pitch, m);
  __global float* y = START(part) + z * m * n;
  for (int begin = k0; begin < k1; begin += KB) {
    __global const float* last = has_bias && z == 0 && begin + KB >= k1 ? START(bias) : 0;
    for (int c = c0; c < c1; c += 2 * VW) {
      const int s = min(c, n - VW), t = min(c + VW, n - VW);  // a vector past the last column starts earlier
      add_rows(p, START(b), b_pitch, begin, min(k1, begin + KB), y, m, n, s, c - s, t, min(c + VW - t, VW),
               begin > k0, last);
    }
  }
}

__kernel GROUP void few_dots(TENSOR(const float, a), TENSOR(const float, b), TENSOR(float, y), int m, int n, int k,
                             int span) {
  const int c0 = get_global_id(0) * span, c1 = min(n, c0 + span);
  __global const float* p[ROWS];
  row_starts(p, START(a), a_pitch, m);
  for (int c = c0; c < c1; c += 2) {
    __global const float* left = START(b) + c * b_pitch;
    __global const float* right = START(b) + min(c + 1, c1 - 1) * b_pitch;
    fv one[ROWS], two[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) one[r] = two[r] = (fv)(0.0f);
    int i = 0;
    for (; i + VW <= k; i += VW) {
      const fv bl = LOAD(left + i), br = LOAD(right + i);
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        const fv a = LOAD(p[r] + i);
        one[r] = MAC(a, bl, one[r]);
        two[r] = MAC(a, br, two[r]);
      }
    }
    if (i < k) {
      const fv bl = load_lanes(left + i, 0, k - i), br = load_lanes(right + i, 0, k - i);
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        const fv a = load_lanes(p[r] + i, 0, k - i);
        one[r] = MAC(a, bl, one[r]);
        two[r] = MAC(a, br, two[r]);
      }
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      if (r >= m) continue;
      START(y)[r * y_pitch + c] = sum_of_lanes(one[r]);
      if (c + 1 < c1) START(y)[r * y_pitch + c + 1] = sum_of_lanes(two[r]);
    }
  }
}
