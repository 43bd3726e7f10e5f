// pointwise.cl -- y = f(i0, i1, ...) element by element, inputs stretched to y's shape; may work in place.
//
// The function is source text put before this file: EACH_INPUT lists the inputs as F(name, index, stride), where stride
// is 1 if the input has y's last axis and 0 if it has one value there, STEPS holds the statements, RESULT the value.
//
// Axes that all operands walk alike are merged on the host: y is rows x cols with `outer` axes of rows. The table holds
// their extents and then, for y and each input, the elements to move for a step along each: extents[outer],
// y[outer], i0[outer], ... A work-item does `chunk` vectors, counted row by row.
#include "common.clh"
#include "math.clh"

#ifndef EACH_INPUT
#define EACH_INPUT(F) F(i0, 0, 1)  // the inputs: name, index, stride along the last axis
#endif
#ifndef STEPS
#define STEPS const fv t0 = i0 < (fv)(0.0f) ? (fv)(0.0f) : i0;  // statements over fv variables named like the inputs
#endif
#ifndef RESULT
#define RESULT t0  // the value stored
#endif

#define PARAM(x, index, stride) TENSOR(const float, x),
#define ROW(x, index, stride) __global const float* x##_row = START(x);
#define MOVE(x, index, stride) x##_row += i * table[(index + 2) * outer + a];
#define WHOLE(x, index, stride) const fv x = CAT(WHOLE_, stride)(x##_row);
#define WHOLE_0(p) (fv)(*p)
#define WHOLE_1(p) LOAD(p + c)
#define PARTIAL(x, index, stride) const fv x = CAT(PARTIAL_, stride)(x##_row);
#define PARTIAL_0(p) (fv)(*p)
#define PARTIAL_1(p) load_lanes(p + c, 0, cols - c)

__kernel GROUP void pointwise(EACH_INPUT(PARAM) TENSOR(float, y), __global const int* table, int outer, int rows,
                              int cols, int chunk) {
  const int in_row = (cols + VW - 1) / VW, whole = cols / VW, total = rows * in_row;
  const int first = (int)get_global_id(0) * chunk, end = min(total, first + chunk);
  for (int unit = first; unit < end;) {
    const int row = unit / in_row, from = unit - row * in_row, to = min(in_row, from + end - unit);
    __global float* y_row = START(y);
    EACH_INPUT(ROW)
    for (int a = outer - 1, rest = row; a >= 0; --a) {
      const int i = a ? rest % table[a] : rest;
      rest /= table[a];
      y_row += i * table[outer + a];
      EACH_INPUT(MOVE)
    }
    for (int v = from; v < min(to, whole); ++v) {
      const int c = v * VW;
      EACH_INPUT(WHOLE)
      STEPS
      STORE(RESULT, y_row + c);
    }
    if (to > whole) {
      const int c = whole * VW;
      EACH_INPUT(PARTIAL)
      STEPS
      store_lanes(RESULT, y_row + c, 0, cols - c);
    }
    unit += to - from;
  }
}
