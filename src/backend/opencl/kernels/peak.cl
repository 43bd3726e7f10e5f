// peak.cl -- what the device can do at best, as launches: for step/roofline.cpp alone.
//
//   peak_flops   y = y a + b, `rounds` times: ten vectors of a row at a time, a work-item per row; 160 columns fit any VW
//   peak_triad   c = a / 2 + b over n vectors, `rounds` times over; a group owns `share` vectors in a row and its items
//                stride over them, so neighbours touch neighbours and a part stays in one core's cache
#include "common.clh"

__kernel GROUP void peak_flops(TENSOR(float, y), int rows, int cols, int rounds, float a, float b) {
  const int row = get_global_id(0);
  if (row >= rows) return;
  const fv x = a, z = b;
  for (int c = 0; c < cols; c += 10 * VW) {
    __global float* at = START(y) + row * y_pitch + c;  // read, or the compiler computes the chains once
    fv c0 = LOAD(at), c1 = LOAD(at + VW), c2 = LOAD(at + 2 * VW), c3 = LOAD(at + 3 * VW), c4 = LOAD(at + 4 * VW);
    fv c5 = LOAD(at + 5 * VW), c6 = LOAD(at + 6 * VW), c7 = LOAD(at + 7 * VW), c8 = LOAD(at + 8 * VW);
    fv c9 = LOAD(at + 9 * VW);
    for (int i = 0; i < rounds; ++i) {
      c0 = MAC(c0, x, z);
      c1 = MAC(c1, x, z);
      c2 = MAC(c2, x, z);
      c3 = MAC(c3, x, z);
      c4 = MAC(c4, x, z);
      c5 = MAC(c5, x, z);
      c6 = MAC(c6, x, z);
      c7 = MAC(c7, x, z);
      c8 = MAC(c8, x, z);
      c9 = MAC(c9, x, z);
    }
    STORE(c0, at + 0 * VW);
    STORE(c1, at + 1 * VW);
    STORE(c2, at + 2 * VW);
    STORE(c3, at + 3 * VW);
    STORE(c4, at + 4 * VW);
    STORE(c5, at + 5 * VW);
    STORE(c6, at + 6 * VW);
    STORE(c7, at + 7 * VW);
    STORE(c8, at + 8 * VW);
    STORE(c9, at + 9 * VW);
  }
}

__kernel GROUP void peak_triad(TENSOR(const float, a), TENSOR(const float, b), TENSOR(float, c), int vectors, int share,
                               int rounds) {
  __global const float *x = START(a), *y = START(b);
  __global float* z = START(c);
  const int first = (int)get_group_id(0) * share, end = min(vectors, first + share);
  for (int round = 0; round < rounds; ++round)
    for (int v = first + (int)get_local_id(0); v < end; v += WX) {
      const fv sum = LOAD(x + v * VW) * 0.5f + LOAD(y + v * VW);
      STORE(sum, z + v * VW);
    }
}
