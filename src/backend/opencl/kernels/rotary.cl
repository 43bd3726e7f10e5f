// rotary.cl -- pairs (i, i + D/2) of each head turned by an angle that grows with time; cosines and sines from a table
// [T][2][D/2] made at binding. A work-item turns `chunk` vectors of pairs. x may be overwritten: lanes that the neighbour owns are not
// touched.
#include "common.clh"

#ifndef X_T
#define X_T float  // or half: how x is stored
#endif
#ifndef Y_T
#define Y_T float  // likewise the result
#endif

static inline fv table_at(__global const int* p, int lo, int hi) {
  float t[VW];
#pragma unroll
  for (int l = 0; l < VW; ++l) t[l] = l >= lo && l < hi ? as_float(p[l]) : 0.0f;
  return LOAD(t);
}

static inline void turn(__global const X_T* in, __global Y_T* out, __global const int* angles, int half_width,
                        int lanes) {
  const fv c = table_at(angles, 0, lanes), s = table_at(angles + half_width, 0, lanes);
  if (lanes == VW) {
    const fv a = LOAD_AS(X_T, in), b = LOAD_AS(X_T, in + half_width);
    STORE_AS(Y_T, a * c - b * s, out);
    STORE_AS(Y_T, b * c + a * s, out + half_width);
  } else {
    const fv a = LOAD_LANES(X_T, in, 0, lanes), b = LOAD_LANES(X_T, in + half_width, 0, lanes);
    STORE_LANES(Y_T, a * c - b * s, out, 0, lanes);
    STORE_LANES(Y_T, b * c + a * s, out + half_width, 0, lanes);
  }
}

__kernel GROUP void rotary(TENSOR(const X_T, x), TENSOR(Y_T, y), __global const int* table, int rows, int time,
                           int heads, int half_width, int chunk) {
  const int vectors = VECTORS(half_width), first = get_global_id(0) * chunk;
  const int last = min(first + chunk, rows * heads * vectors);
  for (int unit = first; unit < last; ++unit) {
    const int row = unit / (heads * vectors), head = unit / vectors % heads, i = unit % vectors * VW;
    const int at = head * 2 * half_width + i;
    turn(START(x) + row * x_pitch + at, START(y) + row * y_pitch + at, table + row % time * 2 * half_width + i,
         half_width, min(VW, half_width - i));
  }
}
