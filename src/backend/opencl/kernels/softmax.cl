// softmax.cl -- softmax along the last axis and its gradient, cross entropy with its gradient, accuracy.
//
//   softmax       y = exp(x - max x) / sum exp(x - max x)
//   softmax_grad  dx = y * (dy - sum(y * dy))
//   softmax_xent  loss = f * (log sum exp(l - max l) + sum t * (max l - l)),  dlogits = f * (softmax(l) - t),
//                 t = (1 - smoothing) * onehot(label) + smoothing / C, f = weight * scale; f = 0 gives exactly 0. A label
//                 that is no class: loss NaN, no one-hot term.
//   softmax_soft_xent  with t given: loss = f * (T log sum exp(..) + ..), dlogits = f * (T softmax(l) - t), T = sum t
//   accuracy      weight where fewer than `top` logits are larger than the label's, or equal and before it; else 0
// A work-item or a group owns a row (rows.clh). softmax may overwrite x, softmax_grad y or dy: an element is read before it is written.
#include "rows.clh"

static inline float row_max(__global const float* x, int cols ROW_PARAM) {
  fv best = (fv)(-INFINITY);
  float top = -INFINITY;
  ROW_VECTORS(c, cols) best = max_of(best, LOAD(x + c));
  ROW_REST(c, cols) top = top > x[c] ? top : x[c];
  const float other = max_of_lanes(best);
  return row_largest(top > other ? top : other ROW_PASS);
}

// y = exp(x - top); returns the sum.
static inline float exp_row(__global const float* x, __global float* y, int cols, float top ROW_PARAM) {
  fv sum = (fv)(0.0f);
  float rest = 0.0f;
  ROW_VECTORS(c, cols) {
    const fv e = exp(LOAD(x + c) - (fv)(top));
    sum += e;
    STORE(e, y + c);
  }
  ROW_REST(c, cols) {
    const float e = exp(x[c] - top);
    rest += e;
    y[c] = e;
  }
  return row_total(sum_of_lanes(sum) + rest ROW_PASS);
}

static inline void scale_row(__global float* y, int cols, float factor) {
  ROW_VECTORS(c, cols) STORE(LOAD(y + c) * (fv)(factor), y + c);
  ROW_REST(c, cols) y[c] *= factor;
}

__kernel GROUP void softmax(TENSOR(const float, x), TENSOR(float, y), int rows, int cols) {
  const int row = ROW_INDEX;
  ROW_MEMORY
  if (row >= rows) return;
  __global const float* in = START(x) + row * x_pitch;
  __global float* out = START(y) + row * y_pitch;
  const float sum = exp_row(in, out, cols, row_max(in, cols ROW_PASS) ROW_PASS);
  scale_row(out, cols, 1.0f / sum);
}

__kernel GROUP void softmax_grad(TENSOR(const float, y), TENSOR(const float, dy), TENSOR(float, dx), int rows, int cols) {
  const int row = ROW_INDEX;
  ROW_MEMORY
  if (row >= rows) return;
  __global const float *in = START(y) + row * y_pitch, *din = START(dy) + row * dy_pitch;
  __global float* out = START(dx) + row * dx_pitch;
  fv sums = (fv)(0.0f);
  float rest = 0.0f;
  ROW_VECTORS(c, cols) sums += LOAD(in + c) * LOAD(din + c);
  ROW_REST(c, cols) rest += in[c] * din[c];
  const float dot_product = row_total(sum_of_lanes(sums) + rest ROW_PASS);
  ROW_VECTORS(c, cols) STORE(LOAD(in + c) * (LOAD(din + c) - (fv)(dot_product)), out + c);
  ROW_REST(c, cols) out[c] = in[c] * (din[c] - dot_product);
}

// sum(top - x)
static inline float sum_below(__global const float* x, int cols, float top ROW_PARAM) {
  fv sum = (fv)(0.0f);
  float rest = 0.0f;
  ROW_VECTORS(c, cols) sum += (fv)(top) - LOAD(x + c);
  ROW_REST(c, cols) rest += top - x[c];
  return row_total(sum_of_lanes(sum) + rest ROW_PASS);
}

static inline void zero_row(__global float* y, int cols) {
  ROW_ELEMENTS(c, cols) y[c] = 0.0f;
}

// share = smoothing / C and rest = 1 - smoothing come rounded once from the host.
__kernel GROUP void softmax_xent(TENSOR(const float, logits), TENSOR(const int, labels), TENSOR(const float, weight),
                                 TENSOR(const float, scale), TENSOR(float, loss), TENSOR(float, dlogits), int rows,
                                 int cols, float share, float rest) {
  const int row = ROW_INDEX;
  ROW_MEMORY
  if (row >= rows) return;
  __global const float* in = START(logits) + row * logits_pitch;
  __global float* out = START(dlogits) + row * dlogits_pitch;
  const float factor = START(weight)[row] * START(scale)[0];
  if (factor == 0.0f) {
    if (ROW_LANE == 0) START(loss)[row] = 0.0f;
    zero_row(out, cols);
    return;
  }
  const int label = START(labels)[row], known = label >= 0 && label < cols;
  const float top = row_max(in, cols ROW_PASS), sum = exp_row(in, out, cols, top ROW_PASS);
  float below = known ? rest * (top - in[label]) : NAN;
  if (share > 0.0f) below += share * sum_below(in, cols, top ROW_PASS);
  if (ROW_LANE == 0) START(loss)[row] = factor * (log(sum) + below);
  scale_row(out, cols, factor / sum);
  ROW_FENCE  // from here on other elements than before, and the label's belongs to all
  if (share > 0.0f)
    ROW_ELEMENTS(c, cols) out[c] -= factor * share;
  if (known && label % ROW_ITEMS == ROW_LANE) out[label] -= factor * rest;
}

// A target of 0 takes no part, whatever its logit is.
__kernel GROUP void softmax_soft_xent(TENSOR(const float, logits), TENSOR(const float, targets),
                                      TENSOR(const float, weight), TENSOR(const float, scale), TENSOR(float, loss),
                                      TENSOR(float, dlogits), int rows, int cols) {
  const int row = ROW_INDEX;
  ROW_MEMORY
  if (row >= rows) return;
  __global const float *in = START(logits) + row * logits_pitch, *t = START(targets) + row * targets_pitch;
  __global float* out = START(dlogits) + row * dlogits_pitch;
  const float factor = START(weight)[row] * START(scale)[0];
  if (factor == 0.0f) {
    if (ROW_LANE == 0) START(loss)[row] = 0.0f;
    zero_row(out, cols);
    return;
  }
  const float top = row_max(in, cols ROW_PASS), sum = exp_row(in, out, cols, top ROW_PASS);
  fv below = (fv)(0.0f), total = (fv)(0.0f);
  float rest_below = 0.0f, rest_total = 0.0f;
  ROW_VECTORS(c, cols) {
    const fv target = LOAD(t + c);
    below += target != (fv)(0.0f) ? target * ((fv)(top) - LOAD(in + c)) : (fv)(0.0f);
    total += target;
  }
  ROW_REST(c, cols) {
    rest_below += t[c] != 0.0f ? t[c] * (top - in[c]) : 0.0f;
    rest_total += t[c];
  }
  const float all = row_total(sum_of_lanes(total) + rest_total ROW_PASS);
  const float all_below = row_total(sum_of_lanes(below) + rest_below ROW_PASS);
  if (ROW_LANE == 0) START(loss)[row] = factor * (all * log(sum) + all_below);
  const float part = all / sum;
  ROW_VECTORS(c, cols) STORE((fv)(factor) * (LOAD(out + c) * (fv)(part) - LOAD(t + c)), out + c);
  ROW_REST(c, cols) out[c] = factor * (out[c] * part - t[c]);
}

__kernel GROUP void accuracy(TENSOR(const float, logits), TENSOR(const int, labels), TENSOR(const float, weight),
                             TENSOR(float, y), int rows, int cols, int top) {
  const int row = ROW_INDEX;
  ROW_MEMORY
  if (row >= rows) return;
  __global const float* in = START(logits) + row * logits_pitch;
  const int label = START(labels)[row];
  int ahead = cols;
  if (label >= 0 && label < cols) {
    const float own = in[label];
    ahead = 0;
    ROW_ELEMENTS(c, cols) ahead += in[c] > own || (c < label && in[c] == own);
    ahead = (int)row_total((float)ahead ROW_PASS);  // exact below 2^24 columns
    if (own != own) ahead = cols;
  }
  if (ROW_LANE == 0) START(y)[row] = ahead < top ? START(weight)[row] : 0.0f;
}
