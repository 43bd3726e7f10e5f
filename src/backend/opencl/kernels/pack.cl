// pack.cl -- the right operand of the GEMM family as panels, zero-padded at the last column.
//
//   p[g][N / tn][K][tn]:   p[g, c / tn, k, c % tn] = element (k, c) of group g's matrix
//
//   pack_rows   element (k, c) = b[k, g * N + c]                           b of a matmul; w[R, S, C/g, O], k = (r, s, c)
//   pack_cols   element (k, c) = w[(taps - 1 - t) * N + c, g * KT + o]     k = t * KT + o: the data gradient's matrix,
//               taps in reverse, C and O exchanged; with one tap it is a transposed b of a matmul
// Work-item (x, panel): rows k from x * chunk on.
#include "common.clh"

#ifndef B_T
#define B_T float  // or half: how pack_rows finds b; panels are float
#endif

__kernel GROUP void pack_rows(TENSOR(const B_T, b), TENSOR(float, p), int n, int k, int tn, int panels, int chunk) {
  const int panel = get_global_id(1), c0 = panel % panels * tn, first = panel / panels * n + c0;
  const int k0 = get_global_id(0) * chunk, k1 = min(k, k0 + chunk);
  __global const B_T* from = START(b) + k0 * b_pitch + first;
  __global float* to = START(p) + (panel * k + k0) * tn;
  for (int i = k0; i < k1; ++i) {
    if (c0 + tn <= n) {
      for (int j = 0; j < tn; j += VW) STORE(LOAD_AS(B_T, from + j), to + j);
    } else {
      for (int j = 0; j < tn; ++j) to[j] = c0 + j < n ? AT(B_T, from, j) : 0.0f;
    }
    from += b_pitch;
    to += tn;
  }
}

// In squares turned in registers: reads run along w, writes along the panel's rows.
static inline void pack_columns(__global const float* from, int pitch, __global float* to, int tn, int rows, int cols) {
  for (int j = 0; j < tn; j += 4) {
    __global const float* p = from + j * pitch;
    int i = 0;
    if (j + 4 <= min(cols, tn))
      for (; i + 4 <= rows; i += 4)
        turn_4x4((__global const int*)(p + i), pitch, (__global int*)(to + i * tn + j), tn);
    for (; i < rows; ++i)
      for (int l = j; l < min(j + 4, tn); ++l) to[i * tn + l] = l < cols ? from[l * pitch + i] : 0.0f;
  }
}

__kernel GROUP void pack_cols(TENSOR(const float, w), TENSOR(float, p), int n, int kt, int taps, int tn, int panels,
                              int chunk) {
  const int panel = get_global_id(1), c0 = panel % panels * tn, first = panel / panels * kt, k = taps * kt;
  const int k0 = get_global_id(0) * chunk, k1 = min(k, k0 + chunk);
  __global float* to = START(p) + panel * k * tn;
  for (int begin = k0; begin < k1;) {
    const int tap = begin / kt, end = min(k1, (tap + 1) * kt);
    __global const float* from = START(w) + ((taps - 1 - tap) * n + c0) * w_pitch + first + begin - tap * kt;
    pack_columns(from, w_pitch, to + begin * tn, tn, end - begin, n - c0);
    begin = end;
  }
}
