// metrics.cl -- adds one batch to running totals, in place. A batch is short: one work-item, or one for each class.
//
//   metrics             y = {totals0 + sum(loss) / scale, totals1 + sum(score), totals2 + sum(weight), sum(loss)}
//   confusion           y = counts, and y[label_i, first maximum of row i] += weight_i for every sample in order
//   regression_metrics  y = totals + {sum w |e|, sum w e^2, sum w, sum w e} over all elements, e = prediction - target
#include "common.clh"

static inline float sum_of(__global const float* x, int count) {
  fv a0 = (fv)(0.0f), a1 = a0;
  float rest = 0.0f;
  int i = 0;
  for (; i + 2 * VW <= count; i += 2 * VW) {
    a0 += LOAD(x + i);
    a1 += LOAD(x + i + VW);
  }
  for (; i < count; ++i) rest += x[i];
  return sum_of_lanes(a0 + a1) + rest;
}

__kernel GROUP void metrics(TENSOR(const float, totals), TENSOR(const float, loss), TENSOR(const float, score),
                            TENSOR(const float, weight), TENSOR(const float, scale), TENSOR(float, y), int count) {
  __global const float* old = START(totals);
  __global float* out = START(y);
  const float sum = sum_of(START(loss), count);
  out[0] = old[0] + sum / START(scale)[0];
  out[1] = old[1] + sum_of(START(score), count);
  out[2] = old[2] + sum_of(START(weight), count);
  out[3] = sum;
}

// A work-item owns a label's row of the matrix and walks over all samples.
__kernel GROUP void confusion(TENSOR(const float, counts), TENSOR(const float, logits), TENSOR(const int, labels),
                              TENSOR(const float, weight), TENSOR(float, y), int samples, int classes) {
  const int label = get_global_id(0);
  if (label >= classes) return;
  __global const float* old = START(counts) + label * counts_pitch;
  __global float* out = START(y) + label * y_pitch;
  for (int c = 0; c < classes; ++c) out[c] = old[c];
  for (int i = 0; i < samples; ++i) {
    if (START(labels)[i] != label) continue;
    __global const float* row = START(logits) + i * logits_pitch;
    int best = 0;
    for (int c = 1; c < classes; ++c)
      if (row[c] > row[best]) best = c;
    out[best] += START(weight)[i];
  }
}

// Sums of short runs of rows are added up: one long chain would lose digits.
__kernel GROUP void regression_metrics(TENSOR(const float, totals), TENSOR(const float, x), TENSOR(const float, t),
                                       TENSOR(const float, weight), TENSOR(float, y), int rows, int cols, int x_step,
                                       int t_step, int lines) {
  float4 sums = (float4)(0.0f);
  for (int first = 0; first < rows; first += 32) {
    float4 block = (float4)(0.0f);
    for (int r = first; r < min(rows, first + 32); ++r) {
      __global const float *a = START(x) + r * x_step, *b = START(t) + r * t_step;
      fv size = (fv)(0.0f), square = size, error = size;
      float4 line = (float4)(0.0f, 0.0f, (float)cols, 0.0f);
      int c = 0;
      for (; c + VW <= cols; c += VW) {
        const fv e = LOAD(a + c) - LOAD(b + c);
        size += fabs(e);
        square += e * e;
        error += e;
      }
      for (; c < cols; ++c) {
        const float e = a[c] - b[c];
        line += (float4)(fabs(e), e * e, 0.0f, e);
      }
      line += (float4)(sum_of_lanes(size), sum_of_lanes(square), 0.0f, sum_of_lanes(error));
      block += START(weight)[r / lines] * line;
    }
    sums += block;
  }
  vstore4(vload4(0, START(totals)) + sums, 0, START(y));
}
