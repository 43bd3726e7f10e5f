// metrics.cl -- adds one batch to the running totals; one work-item, for a batch is short. In place.
//
//   y = {totals0 + sum(loss) / scale, totals1 + sum(score), totals2 + sum(weight), sum(loss)}
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
