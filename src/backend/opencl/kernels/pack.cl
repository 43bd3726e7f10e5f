// pack.cl -- the right operand of the GEMM family as panels, zero-padded at the last column.
//
//   p[g][N / tn][K][tn]:   p[g, c / tn, k, c % tn] = element (k, c) of group g's matrix
//
//   pack_rows   element (k, c) = b[k, g * N + c]                           b of a matmul; w[R, S, C/g, O], k = (r, s, c)
//   pack_cols   element (k, c) = w[(taps - 1 - t) * N + c, g * KT + o]     k = t * KT + o: the data gradient's matrix,
//               taps in reverse, C and O exchanged; with one tap it is a transposed b of a matmul
// pack_rows: work-item (x, panel) fills rows k from x * chunk on. pack_cols packs a group of matrices, cut into pieces of
// one panel and one tap; a work-group does a piece, which is a row of the table: where it starts in w and in p, w's
// pitch, tn, the rows of p and the columns of it that exist.
#include "slabs.clh"

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
__kernel GROUP void pack_cols(SLAB_PARAMS, __global const int* table) {
  __global float* const slabs[8] = SLABS;
  __global const int* piece = table + (int)get_group_id(0) * 8;
  __global const float* from = placed(slabs, piece);
  __global float* to = placed(slabs, piece + 2);
  const int pitch = piece[4], tn = piece[5], rows = piece[6], cols = piece[7], id = get_local_id(0);
  for (int j = 0; j < tn; j += 4) {
    const int squares = j + 4 <= min(cols, tn) ? rows / 4 : 0;
    for (int i = id * 4; i < squares * 4; i += WX * 4)
      turn_4x4((__global const int*)(from + j * pitch + i), pitch, (__global int*)(to + i * tn + j), tn);
    for (int i = squares * 4 + id; i < rows; i += WX)
      for (int l = j; l < min(j + 4, tn); ++l) to[i * tn + l] = l < cols ? from[l * pitch + i] : 0.0f;
  }
}
