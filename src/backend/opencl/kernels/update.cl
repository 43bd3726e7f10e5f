// update.cl -- one optimizer step over a whole group of parameters, in one launch. In place.
//
//   sgd   g += decay * w;  m = momentum * m + g;  w -= lr * (nesterov ? g + momentum * m : m)
//   adam  decoupled: w *= 1 - lr * decay, else g += decay * w;  t = step + 1
//         m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g^2
//         w -= lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
//
// The group is cut into chunks; row i of the table describes chunk i: its number of elements, then for each operand the
// element where it starts, as two words: low 32 bits; slab << 24 | high bits. Operands: sgd w g w' [m m'], adam
// w g w' m m' v v'. Members may lie in up to eight slabs. A work-group does a chunk, its work-items side by side.
#include "common.clh"

#ifndef MOMENTUM
#define MOMENTUM 1  // sgd: 1 if the members have a momentum
#endif

#define SLAB_PARAMS                                                                                     \
  TENSOR(float, s0), TENSOR(float, s1), TENSOR(float, s2), TENSOR(float, s3), TENSOR(float, s4), TENSOR(float, s5), \
      TENSOR(float, s6), TENSOR(float, s7)
#define SLABS {s0_slab, s1_slab, s2_slab, s3_slab, s4_slab, s5_slab, s6_slab, s7_slab}

static inline __global float* operand(__global float* const slabs[8], __global const int* entry, int index) {
  const uint low = entry[1 + 2 * index], high = entry[2 + 2 * index];
  return slabs[high >> 24] + (((ulong)(high & 0xFFFFFFu) << 32) | low);
}

// sgd for one vector of elements (T is fv, or float for the last few).
#define SGD(T, GET, PUT, i)                              \
  {                                                      \
    const T w = GET(w_in + i);                           \
    T step = GET(g_in + i) + decay * w;                  \
    if (MOMENTUM) {                                      \
      const T m = momentum * GET(m_in + i) + step;       \
      PUT(m, m_out + i);                                 \
      step = nesterov ? step + momentum * m : m;         \
    }                                                    \
    PUT(w - rate * step, w_out + i);                     \
  }

#define GET_ONE(p) (*(p))
#define PUT_ONE(v, p) (*(p) = (v))

__kernel GROUP void sgd(SLAB_PARAMS, TENSOR(const float, lr), __global const int* table, float momentum,
                        float decay, int nesterov) {
  __global float* const slabs[8] = SLABS;
  __global const int* entry = table + (int)get_group_id(0) * (MOMENTUM ? 11 : 7);
  const int count = entry[0];
  __global const float *w_in = operand(slabs, entry, 0), *g_in = operand(slabs, entry, 1);
  __global float* w_out = operand(slabs, entry, 2);
  __global const float* m_in = MOMENTUM ? operand(slabs, entry, 3) : 0;
  __global float* m_out = MOMENTUM ? operand(slabs, entry, 4) : 0;
  const float rate = START(lr)[0];
  const int whole = count / VW * VW, id = get_local_id(0);
  for (int i = id * VW; i < whole; i += WX * VW) SGD(fv, LOAD, STORE, i)
  for (int i = whole + id; i < count; i += WX) SGD(float, GET_ONE, PUT_ONE, i)
}

#define ADAM(T, GET, PUT, i)                                                              \
  {                                                                                       \
    const T w = GET(w_in + i);                                                            \
    const T g = GET(g_in + i) + coupled * w;                                              \
    const T m = beta1 * GET(m_in + i) + rest1 * g;                                        \
    const T v = beta2 * GET(v_in + i) + rest2 * g * g;                                    \
    PUT(m, m_out + i);                                                                    \
    PUT(v, v_out + i);                                                                    \
    PUT(w * shrink - rate * (m / correction1) / (sqrt(v / correction2) + eps), w_out + i); \
  }

// rest = 1 - beta and log = log(beta) come rounded once from the host: beta near 1 would lose digits here.
__kernel GROUP void adam(SLAB_PARAMS, TENSOR(const float, lr), TENSOR(const float, step), __global const int* table,
                         float beta1, float beta2, float rest1, float rest2, float log1, float log2, float eps,
                         float coupled, float decoupled) {
  __global float* const slabs[8] = SLABS;
  __global const int* entry = table + (int)get_group_id(0) * 15;
  const int count = entry[0];
  __global const float *w_in = operand(slabs, entry, 0), *g_in = operand(slabs, entry, 1);
  __global const float *m_in = operand(slabs, entry, 3), *v_in = operand(slabs, entry, 5);
  __global float *w_out = operand(slabs, entry, 2), *m_out = operand(slabs, entry, 4), *v_out = operand(slabs, entry, 6);
  const float rate = START(lr)[0], t = START(step)[0] + 1.0f;
  const float correction1 = -expm1(t * log1), correction2 = -expm1(t * log2), shrink = 1.0f - rate * decoupled;
  const int whole = count / VW * VW, id = get_local_id(0);
  for (int i = id * VW; i < whole; i += WX * VW) ADAM(fv, LOAD, STORE, i)
  for (int i = whole + id; i < count; i += WX) ADAM(float, GET_ONE, PUT_ONE, i)
}
