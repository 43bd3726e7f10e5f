// pointwise.cl -- y = f(i0, i1, ...) element by element, inputs stretched to y's shape; may work in place.
//
// The function is source text put before this file: EACH_INPUT lists the inputs as F(name, index, stride, type): stride
// is 1 if the input has y's last axis and 0 if it has one value there, STEPS holds the statements, RESULT the value.
//
// Axes that all operands walk alike are merged on the host: y is rows x cols with `outer` axes of rows. The table holds
// their extents and then, for y and each input, the elements to move for a step along each: extents[outer],
// y[outer], i0[outer], ... A work-item does `chunk` vectors, counted row by row.
#include "common.clh"
#include "math.clh"

#ifndef EACH_INPUT
#define EACH_INPUT(F) F(i0, 0, 1, float)  // the inputs: name, index, stride along the last axis, float or half
#endif
#ifndef STEPS
#define STEPS const fv t0 = i0 < (fv)(0.0f) ? (fv)(0.0f) : i0;  // statements over fv variables named like the inputs
#endif
#ifndef RESULT
#define RESULT t0  // the value stored
#endif
#ifndef Y_T
#define Y_T float  // or half: how y is stored
#endif

#define WAY(a, b) WAY_(a, b)
#define WAY_(a, b) a##b
#define PARAM(x, index, stride, T) TENSOR(const T, x),
#define ROW(x, index, stride, T) __global const T* x##_row = START(x);
#define MOVE(x, index, stride, T) x##_row += i * table[(index + 2) * outer + a];
#define WHOLE(x, index, stride, T) const fv x = WAY(WHOLE_, stride)(T, x##_row);
#define WHOLE_0(T, p) (fv)(AT(T, p, 0))
#define WHOLE_1(T, p) LOAD_AS(T, p + c)
#define PARTIAL(x, index, stride, T) const fv x = WAY(PARTIAL_, stride)(T, x##_row);
#define PARTIAL_0(T, p) (fv)(AT(T, p, 0))
#define PARTIAL_1(T, p) LOAD_LANES(T, p + c, 0, cols - c)

__kernel GROUP void pointwise(EACH_INPUT(PARAM) TENSOR(Y_T, y), __global const int* table, int outer, int rows,
                              int cols, int chunk) {
  const int in_row = (cols + VW - 1) / VW, whole = cols / VW, total = rows * in_row;
  const int first = (int)get_global_id(0) * chunk, end = min(total, first + chunk);
  for (int unit = first; unit < end;) {
    const int row = unit / in_row, from = unit - row * in_row, to = min(in_row, from + end - unit);
    __global Y_T* y_row = START(y);
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
      STORE_AS(Y_T, RESULT, y_row + c);
    }
    if (to > whole) {
      const int c = whole * VW;
      EACH_INPUT(PARTIAL)
      STEPS
      STORE_LANES(Y_T, RESULT, y_row + c, 0, cols - c);
    }
    unit += to - from;
  }
}
