// gather.cl -- rows of a table by id, the gradient of that, and one-hot rows. An id outside the table names no row.
//
//   gather       y[i, :] = table[ids[i], :], or zeros
//   gather_grad  dtable[v, :] = sum of dy[i, :] over ids[i] == v, in the order of i
//   one_hot      y[i, k] = ids[i] == k ? 1 : 0
// Id i lies at (i / id_cols) * ids_pitch + i % id_cols. gather: a unit is a vector (VW <= D) of one row of y, a work-item
// does `chunk` units; `whole`: all units of its rows (common.clh).
// gather_grad: a work-item owns `block` rows of the table and one vector of columns, and reads all ids: no two write one
// element, so nothing is atomic and the order of the sum is fixed.
#include "common.clh"

#ifndef D_T
#define D_T float  // likewise dy
#endif
#ifndef Y_T
#define Y_T float  // likewise the result
#endif

#define ID(i) START(ids)[(i) / id_cols * ids_pitch + (i) % id_cols]

__kernel GROUP void gather(TENSOR(const float, table), TENSOR(const int, ids), TENSOR(Y_T, y), int count, int id_cols,
                           int rows, int cols, int chunk, int whole) {
  const int vectors = VECTORS(cols), first = (int)get_global_id(0) * chunk, end = min(count * vectors, first + chunk);
  for (int unit = first; unit < end; ++unit) {
    const int i = unit / vectors, vector = unit - i * vectors, id = ID(i), known = id >= 0 && id < rows;
    const fv v = known ? LOAD(START(table) + id * table_pitch + vector_start(vector, cols)) : (fv)(0.0f);
    STORE_VECTOR(Y_T, v, START(y) + i * y_pitch, vector, cols, whole);
  }
}

__kernel GROUP void gather_grad(TENSOR(const int, ids), TENSOR(const D_T, dy), TENSOR(float, y), int count, int id_cols,
                                int rows, int cols, int block) {
  const int c = (int)get_global_id(0) * VW, from = (int)get_global_id(1) * block, to = min(rows, from + block);
  if (c >= cols) return;
  const int lanes = min(VW, cols - c);
  __global float* out = START(y) + c;
  for (int row = from; row < to; ++row) store_lanes((fv)(0.0f), out + row * y_pitch, 0, lanes);
  for (int i = 0; i < count; ++i) {
    const int id = ID(i);
    if (id < from || id >= to) continue;
    const fv sum = load_lanes(out + id * y_pitch, 0, lanes) + LOAD_LANES(D_T, START(dy) + i * dy_pitch + c, 0, lanes);
    store_lanes(sum, out + id * y_pitch, 0, lanes);
  }
}

__kernel GROUP void one_hot(TENSOR(const int, ids), TENSOR(float, y), int count, int id_cols, int cols) {
  const int i = get_global_id(0);
  if (i >= count) return;
  const int id = ID(i);
  for (int k = 0; k < cols; ++k) START(y)[i * y_pitch + k] = k == id ? 1.0f : 0.0f;
}
