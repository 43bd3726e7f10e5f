// copy.cl -- y = x with any pitch on both sides, and y = x with its axes in another order. Moves words,
// and converts where only one side is stored as half.
//
//   copy       y[r, c] = x[r, c]; a work-item copies `chunk` vectors of one row
//   pad        images [N, h, w, C] into dense [N, ph, pw, C] with `top` lines above and `left` pixels before, zeros around;
//              what does not fit is left out (top and left may be negative). A work-item fills a line.
//   transpose  y is walked in blocks of SIDE x SIDE over its last axis (x strides there by x_last) and over the axis
//              that is x's last (y strides there by y_last), so both sides touch whole cache lines; the other axes are in
//              `table`: extents[outer], y strides[outer], x strides[outer]; a work-item does a block, or
//              `chunk` whole planes where they are small
#include "common.clh"

#ifndef SIDE
#define SIDE 8  // of the square block a work-item transposes
#endif

#ifndef X_T
#define X_T int  // how x is stored: int, short or, where y is stored otherwise, float or half
#endif
#ifndef Y_T
#define Y_T int  // likewise y
#endif
#ifndef TURNS
#define TURNS 1  // both sides hold 32-bit words, which are turned in registers
#endif

#define LOAD_int(p) LOAD(p)
#define STORE_int(v, p) STORE(v, p)
#define AT_int(p, i) ((p)[i])
#define PUT_int(v, p, i) ((p)[i] = (v))
#define LOAD_short(p) LOAD(p)
#define STORE_short(v, p) STORE(v, p)
#define AT_short(p, i) ((p)[i])
#define PUT_short(v, p, i) ((p)[i] = (v))

__kernel GROUP void copy(TENSOR(const X_T, x), TENSOR(Y_T, y), int rows, int cols, int chunk) {
  const int row = get_global_id(1), from = (int)get_global_id(0) * chunk * VW, to = min(cols, from + chunk * VW);
  if (row >= rows) return;
  __global const X_T* in = START(x) + row * x_pitch;
  __global Y_T* out = START(y) + row * y_pitch;
  int c = from;
  for (; c + VW <= to; c += VW) STORE_AS(Y_T, LOAD_AS(X_T, in + c), out + c);
  for (; c < to; ++c) PUT(Y_T, AT(X_T, in, c), out, c);
}

__kernel GROUP void pad(TENSOR(const X_T, x), TENSOR(Y_T, y), int lines, int h, int w, int c, int ph, int pw, int top,
                        int left) {
  const int line = get_global_id(0), n = line / ph, iy = line - n * ph - top;
  if (line >= lines) return;
  const int whole_line = x_pitch == c, first = max(left, 0), last = iy >= 0 && iy < h ? min(pw, left + w) : first;
  __global Y_T* out = START(y) + line * pw * c;
  __global const X_T* in = START(x) + ((n * h + iy) * w - left) * x_pitch;  // pixel `first` of the line is in[first]
  for (int i = 0; i < first * c; ++i) PUT(Y_T, 0, out, i);
  for (int p = first; p < last; p += whole_line ? last - first : 1) {
    const int end = (whole_line ? last - p : 1) * c;
    int i = 0;
    for (; i + VW <= end; i += VW) STORE_AS(Y_T, LOAD_AS(X_T, in + p * x_pitch + i), out + p * c + i);
    for (; i < end; ++i) PUT(Y_T, AT(X_T, in, p * x_pitch + i), out, p * c + i);
  }
  for (int i = max(last, first) * c; i < pw * c; ++i) PUT(Y_T, 0, out, i);
}

// One block, of at most SIDE x SIDE.
static inline void transpose_block(__global const X_T* in, int x_last, __global Y_T* out, int y_last, int c0, int c1,
                                   int o0, int o1) {
#if TURNS
  const int c4 = c0 + (c1 - c0) / 4 * 4, o4 = o0 + (o1 - o0) / 4 * 4;
  for (int c = c0; c < c4; c += 4)
    for (int o = o0; o < o4; o += 4) turn_4x4(in + c * x_last + o, x_last, out + o * y_last + c, y_last);
#else
  const int c4 = c0, o4 = o0;
#endif
  for (int o = o0; o < o1; ++o)
    for (int c = o < o4 ? c4 : c0; c < c1; ++c) PUT(Y_T, AT(X_T, in, c * x_last + o), out, o * y_last + c);
}

__kernel GROUP void transpose(TENSOR(const X_T, x), TENSOR(Y_T, y), __global const int* table, int outer, int planes,
                              int chunk, int cols, int x_last, int others, int y_last) {
  const int first = (int)get_global_id(2) * chunk, last = min(planes, first + chunk);
  const int c_step = (int)get_global_size(0) * SIDE, o_step = (int)get_global_size(1) * SIDE;
  for (int plane = first; plane < last; ++plane) {
    __global const X_T* in = START(x);
    __global Y_T* out = START(y);
    for (int a = outer - 1, rest = plane; a >= 0; --a) {
      const int i = a ? rest % table[a] : rest;
      rest /= table[a];
      out += i * table[outer + a];
      in += i * table[2 * outer + a];
    }
    for (int c0 = (int)get_global_id(0) * SIDE; c0 < cols; c0 += c_step)
      for (int o0 = (int)get_global_id(1) * SIDE; o0 < others; o0 += o_step)
        transpose_block(in, x_last, out, y_last, c0, min(cols, c0 + SIDE), o0, min(others, o0 + SIDE));
  }
}
