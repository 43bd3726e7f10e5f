// shift_time.cl -- y[n,t,:] = x[n,t-1,:] (reverse: t+1), zeros where there is none. A work-item copies vectors of a row.
#include "common.clh"

#ifndef X_T
#define X_T float  // or half: how x is stored
#endif
#ifndef Y_T
#define Y_T float  // likewise the result
#endif

__kernel GROUP void shift_time(TENSOR(const X_T, x), TENSOR(Y_T, y), int rows, int cols, int time, int reverse,
                               int chunk, int whole) {
  const int vectors = VECTORS(cols), first = get_global_id(0) * chunk, last = min(first + chunk, rows * vectors);
  for (int i = first; i < last; ++i) {
    const int row = i / vectors, vector = i % vectors;
    const int c = vector_start(vector, cols), start = row % time == (reverse ? time - 1 : 0);
    const int from = start ? row : row + (reverse ? 1 : -1);
    const fv v = start ? (fv)(0.0f) : LOAD_AS(X_T, START(x) + from * x_pitch + c);
    STORE_VECTOR(Y_T, v, START(y) + row * y_pitch, vector, cols, whole);
  }
}
