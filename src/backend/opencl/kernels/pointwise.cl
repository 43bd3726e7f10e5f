// pointwise.cl -- y = f(i0, i1, ...) element by element, inputs stretched to y's shape; may work in place.
//
// The function is source text put before this file: EACH_INPUT lists the inputs as F(name, index, stride, moves, type):
// stride is 1 if the input has y's last axis and 0 if it has one value there; LITERALS lists the constants, STEPS holds
// the statements, RESULT the value. moves is for COLUMNS alone: 0 if all rows share the input's.
//
// Axes that all operands walk alike are merged on the host: y is rows x cols with `outer` axes of rows. The table holds
// their extents and then, for y and each input, the elements to move for a step along each: extents[outer],
// y[outer], i0[outer], ... A work-item does `chunk` vectors, counted row by row.
// COLUMNS: one outer axis, and inputs of one value per column. A work-item does `height` rows of `span` vectors, and a
// column's values stay in registers for `block` rows, few enough that a CPU still reads and writes in streams. Where rows
// are no whole vectors, a few of them are taken as one (the host joins them): values of columns repeat every `period`.
#include "common.clh"
#include "math.clh"

#ifndef EACH_INPUT
#define EACH_INPUT(F) F(i0, 0, 1, 1, float)  // the inputs: name, index, stride along the last axis, moves with rows, type
#endif
#ifndef LITERALS
#define LITERALS  // parameters for constants of the expression: , float k0, float k1
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
#ifndef COLUMNS
#define COLUMNS 0  // 1: inputs that all rows share stay in registers
#endif

#define WAY(a, b) WAY_(a, b)
#define WAY_(a, b) a##b
#define PARAM(x, index, stride, moves, T) TENSOR(const T, x),
#define ROW(x, index, stride, moves, T) __global const T* x##_row = START(x);
#define MOVE(x, index, stride, moves, T) x##_row += i * table[(index + 2) * outer + a];
#define WHOLE(x, index, stride, moves, T) const fv x = WAY(WHOLE_, stride)(T, x##_row);
#define WHOLE_0(T, p) (fv)(AT(T, p, 0))
#define WHOLE_1(T, p) LOAD_AS(T, p + c)
#define PARTIAL(x, index, stride, moves, T) const fv x = WAY(PARTIAL_, stride)(T, x##_row);
#define PARTIAL_0(T, p) (fv)(AT(T, p, 0))
#define PARTIAL_1(T, p) LOAD_LANES(T, p + c, 0, cols - c)

#if !COLUMNS
__kernel GROUP void pointwise(EACH_INPUT(PARAM) TENSOR(Y_T, y), __global const int* table, int outer, int rows,
                              int cols, int chunk LITERALS) {
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
#else
#define STEP(x, index, stride, moves, T) const int x##_step = table[index + 2];
#define AT_ROW(x, index, stride, moves, T) __global const T* x##_row = START(x) + r * x##_step;
// What all rows share is loaded before the loop over rows, the rest in it.
#define SHARED(x, index, stride, moves, T) KEEP_##moves(x, WAY(REPEATED_, stride)(T, x##_row))
#define REPEATED_0(T, p) (fv)(AT(T, p, 0))
#define REPEATED_1(T, p) (at + VW <= period ? LOAD_AS(T, p + at) : TYPED(load_repeated_, T)(p, at, period))
#define OWN(x, index, stride, moves, T) LOAD_NOW_##moves(x, WAY(WHOLE_, stride)(T, x##_row))
#define KEEP_0(x, value) const fv x = value;
#define KEEP_1(x, value)
#define LOAD_NOW_0(x, value)
#define LOAD_NOW_1(x, value) const fv x = value;

#define DEFINE_REPEATED(T)                                                                 \
  static inline fv load_repeated_##T(__global const T* p, int at, int period) {            \
    float t[VW];                                                                           \
    for (int l = 0; l < VW; ++l, at = at + 1 < period ? at + 1 : 0) t[l] = AT(T, p, at);   \
    return LOAD(t);                                                                        \
  }
DEFINE_REPEATED(float)
#if HALVES
DEFINE_REPEATED(half)
#endif

__kernel GROUP void pointwise_columns(EACH_INPUT(PARAM) TENSOR(Y_T, y), __global const int* table, int rows,
                                      int cols, int period, int height, int span, int block LITERALS) {
  const int in_row = (cols + VW - 1) / VW, whole = cols / VW, spans = (in_row + span - 1) / span;
  const int strip = (int)get_global_id(0) / spans, from = ((int)get_global_id(0) - strip * spans) * span;
  const int to = min(in_row, from + span), end = min(rows, (strip + 1) * height), y_step = table[1];
  EACH_INPUT(STEP)
  for (int r0 = strip * height; r0 < end; r0 += block) {
    const int r1 = min(end, r0 + block);
    for (int v = from; v < min(to, whole); ++v) {
      const int c = v * VW, r = r0, at = c % period;
      EACH_INPUT(AT_ROW)
      EACH_INPUT(SHARED)
      for (int r = r0; r < r1; ++r) {
        EACH_INPUT(AT_ROW)
        EACH_INPUT(OWN)
        STEPS
        STORE_AS(Y_T, RESULT, START(y) + r * y_step + c);
      }
    }
    for (int r = r0; r < r1 && to > whole; ++r) {  // rows that could not be joined
      const int c = whole * VW;
      EACH_INPUT(AT_ROW)
      EACH_INPUT(PARTIAL)
      STEPS
      STORE_LANES(Y_T, RESULT, START(y) + r * y_step + c, 0, cols - c);
    }
  }
}
#endif
