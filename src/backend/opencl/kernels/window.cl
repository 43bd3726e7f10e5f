// window.cl -- pad and slice, upsample and its gradient: y made of x at other places.
//
//   window    y[i...] = x[i - before...], 0 where x has no such element; moves 32-bit words. A work-item does `chunk`
//             words of one row. table, for each axis but the last: extents of y, extents of x, before
//   resample  y[n, p, q, c] = sum over taps a of p and b of q of wy[a] wx[b] x[n, first + a, first + b, c]. A unit is a
//             vector of VW <= C channels of a pixel; a work-item does `chunk` of them. The table holds for each line of
//             y, then for each pixel of a line, `stride` words: first, number of taps, their weights
#include "common.clh"

__kernel GROUP void window(TENSOR(const int, x), TENSOR(int, y), __global const int* table, int outer, int rows,
                           int x_cols, int cols, int shift, int chunk) {
  const int row = get_global_id(1), from = (int)get_global_id(0) * chunk, to = min(cols, from + chunk);
  if (row >= rows || from >= cols) return;
  int source = 0, step = 1, inside = 1;
  for (int a = outer - 1, rest = row; a >= 0; --a) {
    const int i = rest % table[a] - table[2 * outer + a], extent = table[outer + a];
    inside = inside && i >= 0 && i < extent;
    source += i * step;
    step *= extent;
    rest /= table[a];
  }
  __global int* out = START(y) + row * y_pitch;
  const int first = inside ? clamp(shift, from, to) : to, last = inside ? clamp(shift + x_cols, first, to) : to;
  __global const int* in = START(x) + source * x_pitch - shift;
  int c = from;
  for (; c < first; ++c) out[c] = 0;
  for (; c + VW <= last; c += VW) STORE(LOAD(in + c), out + c);
  for (; c < last; ++c) out[c] = in[c];
  for (; c < to; ++c) out[c] = 0;
}

#ifndef X_T
#define X_T float  // or half: how x of resample is stored
#endif
#ifndef Y_T
#define Y_T float  // likewise y
#endif

__kernel GROUP void resample(TENSOR(const X_T, x), TENSOR(Y_T, y), __global const int* table, int h, int w, int cols,
                             int height, int width, int stride, int units, int chunk, int whole) {
  const int vectors = VECTORS(cols), unit0 = (int)get_global_id(0) * chunk, end = min(units, unit0 + chunk);
  for (int unit = unit0; unit < end; ++unit) {
    const int pixel = unit / vectors, v = unit - pixel * vectors, line = pixel / width, image = line / height;
    __global const int* ty = table + (line - image * height) * stride;
    __global const int* tx = table + (height + pixel - line * width) * stride;
    __global const X_T* from = START(x) + ((image * h + ty[0]) * w + tx[0]) * x_pitch + vector_start(v, cols);
    fv sum = (fv)(0.0f);
    for (int a = 0; a < ty[1]; ++a) {
      fv part = (fv)(0.0f);
      for (int b = 0; b < tx[1]; ++b) part += LOAD_AS(X_T, from + (a * w + b) * x_pitch) * (fv)(as_float(tx[2 + b]));
      sum += part * (fv)(as_float(ty[2 + a]));
    }
    STORE_VECTOR(Y_T, sum, START(y) + pixel * y_pitch, v, cols, whole);
  }
}
