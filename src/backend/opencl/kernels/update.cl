// update.cl -- one optimizer step over a whole group of parameters, in one launch, in place. Rules:
// ops/defs/update.cpp. Also square_sum_parts, the sums that clipping begins with.
//
// The group is cut into chunks; row i of the table describes chunk i: its number of elements, the parts its gradient
// comes in and the elements between them, then for each operand the place where it starts (slabs.clh): w g w', then s s'
// of each slot. A work-group does a chunk, its work-items side by side.
#include "slabs.clh"

#ifndef SLOTS
#define SLOTS 1  // of each member
#endif
#ifndef MOMENTUM
#define MOMENTUM 0  // sgd, rmsprop: 1 if the members have a momentum
#endif
#ifndef CENTERED
#define CENTERED 0  // rmsprop: 1 if the mean is taken off the mean square
#endif
#ifndef CLIPPED
#define CLIPPED 0  // 1: gradients are multiplied by a factor on the device
#endif
#ifndef CLAMPED
#define CLAMPED 0  // 1: gradients are clamped to -clip..clip
#endif

#ifndef GUARDED
#define GUARDED 0  // 1: a factor of 0 skips the step
#endif

#if CLIPPED
#define FACTOR_PARAM TENSOR(const float, factor),
#define FACTOR START(factor)[0]
#else
#define FACTOR_PARAM
#define FACTOR 1.0f
#endif

static inline __global float* operand(__global float* const slabs[8], __global const int* entry, int index) {
  return placed(slabs, entry + 3 + 2 * index);
}

#if GUARDED
// A skipped step: w and slots stay. Operands are w g w', then s s' of each slot.
static inline void keep_all(__global float* const slabs[8], __global const int* entry) {
  for (int k = 0; k <= SLOTS; ++k) {
    __global const float* in = operand(slabs, entry, k ? 1 + 2 * k : 0);
    __global float* out = operand(slabs, entry, 2 + 2 * k);
    if (in == out) continue;
    for (int i = get_local_id(0); i < entry[0]; i += WX) out[i] = in[i];
  }
}
#define GUARD                \
  if (scale == 0.0f) {       \
    keep_all(slabs, entry);  \
    return;                  \
  }
#else
#define GUARD
#endif

// What every update starts with: where the operands of its chunk lie.
#define FIND_OPERANDS                                                                                          \
  __global float* const slabs[8] = SLABS;                                                                      \
  __global const int* entry = table + (int)get_group_id(0) * (9 + 4 * SLOTS);                                  \
  const int count = entry[0];                                                                                  \
  __global const float *w_in = operand(slabs, entry, 0), *g_in = operand(slabs, entry, 1);                     \
  __global float* w_out = operand(slabs, entry, 2);

#define FIND_PARTS const int parts = entry[1], stride = entry[2];  // of the gradient

#define FIND_SLOT(x, index)                                            \
  __global const float* x##_in = operand(slabs, entry, 3 + 2 * (index)); \
  __global float* x##_out = operand(slabs, entry, 4 + 2 * (index));

#define GET_ONE(p) (*(p))
#define PUT_ONE(v, p) (*(p) = (v))

// Runs a rule over the chunk: vectors (T is fv), then the last few elements (T is float).
#define EACH_ELEMENT(RULE)                                                          \
  {                                                                                 \
    const int whole = count / VW * VW, id = get_local_id(0);                        \
    for (int i = id * VW; i < whole; i += WX * VW) RULE(fv, LOAD, STORE, i)         \
    for (int i = whole + id; i < count; i += WX) RULE(float, GET_ONE, PUT_ONE, i)   \
  }

// The gradient: its parts added up in order, scaled and clamped; a NaN stays one.
#define SUM_OF_PARTS(T, GET, i)                                                \
  T g = GET(g_in + i);                                                         \
  for (int part = 1; part < parts; ++part) g += GET(g_in + part * stride + i); \
  g *= (T)(scale);
#if CLAMPED
#define GRADIENT(T, GET, i)                                              \
  SUM_OF_PARTS(T, GET, i)                                                \
  g = g < (T)(-clip) ? (T)(-clip) : (g > (T)(clip) ? (T)(clip) : g);
#else
#define GRADIENT(T, GET, i) SUM_OF_PARTS(T, GET, i)
#endif

#define SGD(T, GET, PUT, i)                              \
  {                                                      \
    const T w = GET(w_in + i);                           \
    GRADIENT(T, GET, i)                                  \
    T step = g + decay * w;                              \
    if (MOMENTUM) {                                      \
      const T m = momentum * GET(m_in + i) + step;       \
      PUT(m, m_out + i);                                 \
      step = nesterov ? step + momentum * m : m;         \
    }                                                    \
    PUT(w - rate * step, w_out + i);                     \
  }

__kernel GROUP void sgd(SLAB_PARAMS, TENSOR(const float, lr), FACTOR_PARAM __global const int* table, float clip,
                        float momentum, float decay, int nesterov) {
  FIND_OPERANDS
  FIND_PARTS
#if MOMENTUM
  FIND_SLOT(m, 0)
#else
  __global float *m_in = 0, *m_out = 0;
#endif
  const float rate = START(lr)[0], scale = FACTOR;
  GUARD
  EACH_ELEMENT(SGD)
}

#define ADAM(T, GET, PUT, i)                                                              \
  {                                                                                       \
    const T w = GET(w_in + i);                                                            \
    GRADIENT(T, GET, i)                                                                   \
    g += coupled * w;                                                                     \
    const T m = beta1 * GET(m_in + i) + rest1 * g;                                        \
    const T v = beta2 * GET(v_in + i) + rest2 * g * g;                                    \
    PUT(m, m_out + i);                                                                    \
    PUT(v, v_out + i);                                                                    \
    PUT(w * shrink - rate * (m / correction1) / (sqrt(v / correction2) + eps), w_out + i); \
  }

// rest = 1 - beta and log = log(beta) come rounded once from the host: beta near 1 would lose digits here.
__kernel GROUP void adam(SLAB_PARAMS, TENSOR(const float, lr), TENSOR(const float, step), FACTOR_PARAM
                         __global const int* table, float clip, float beta1, float beta2, float rest1, float rest2,
                         float log1, float log2, float eps, float coupled, float decoupled) {
  FIND_OPERANDS
  FIND_PARTS
  FIND_SLOT(m, 0)
  FIND_SLOT(v, 1)
  const float rate = START(lr)[0], scale = FACTOR, t = START(step)[0] + 1.0f;
  const float correction1 = -expm1(t * log1), correction2 = -expm1(t * log2), shrink = 1.0f - rate * decoupled;
  GUARD
  EACH_ELEMENT(ADAM)
}

#define RMSPROP(T, GET, PUT, i)                                     \
  {                                                                 \
    const T w = GET(w_in + i);                                      \
    GRADIENT(T, GET, i)                                             \
    g += decay * w;                                                 \
    T square = alpha * GET(s_in + i) + rest * g * g;                \
    PUT(square, s_out + i);                                         \
    if (CENTERED) {                                                 \
      const T mean = alpha * GET(a_in + i) + rest * g;              \
      PUT(mean, a_out + i);                                         \
      square -= mean * mean;                                        \
      square = square < (T)(0.0f) ? (T)(0.0f) : square;             \
    }                                                               \
    T step = g / (sqrt(square) + eps);                              \
    if (MOMENTUM) {                                                 \
      step += momentum * GET(m_in + i);                             \
      PUT(step, m_out + i);                                         \
    }                                                               \
    PUT(w - rate * step, w_out + i);                                \
  }

__kernel GROUP void rmsprop(SLAB_PARAMS, TENSOR(const float, lr), FACTOR_PARAM __global const int* table, float clip,
                            float alpha, float rest, float eps, float momentum, float decay) {
  FIND_OPERANDS
  FIND_PARTS
  FIND_SLOT(s, 0)
#if MOMENTUM
  FIND_SLOT(m, 1)
#else
  __global float *m_in = 0, *m_out = 0;
#endif
#if CENTERED
  FIND_SLOT(a, MOMENTUM + 1)
#else
  __global float *a_in = 0, *a_out = 0;
#endif
  const float rate = START(lr)[0], scale = FACTOR;
  GUARD
  EACH_ELEMENT(RMSPROP)
}

#define ADAGRAD(T, GET, PUT, i)                          \
  {                                                      \
    const T w = GET(w_in + i);                           \
    GRADIENT(T, GET, i)                                  \
    g += decay * w;                                      \
    const T sum = GET(s_in + i) + g * g;                 \
    PUT(sum, s_out + i);                                 \
    PUT(w - rate * g / (sqrt(sum) + eps), w_out + i);    \
  }

__kernel GROUP void adagrad(SLAB_PARAMS, TENSOR(const float, lr), TENSOR(const float, step), FACTOR_PARAM
                            __global const int* table, float clip, float lr_decay, float eps, float decay) {
  FIND_OPERANDS
  FIND_PARTS
  FIND_SLOT(s, 0)
  const float rate = START(lr)[0] / (1.0f + START(step)[0] * lr_decay), scale = FACTOR;
  GUARD
  EACH_ELEMENT(ADAGRAD)
}

// A sum that is neither above nor below 0 is 0 or NaN, and passes itself on.
#define LION(T, GET, PUT, i)                                                                              \
  {                                                                                                       \
    GRADIENT(T, GET, i)                                                                                   \
    const T m = GET(m_in + i), towards = beta1 * m + rest1 * g;                                           \
    const T way = towards > (T)(0.0f) ? (T)(1.0f) : (towards < (T)(0.0f) ? (T)(-1.0f) : towards);         \
    PUT(beta2 * m + rest2 * g, m_out + i);                                                                \
    PUT(GET(w_in + i) * shrink - rate * way, w_out + i);                                                  \
  }

__kernel GROUP void lion(SLAB_PARAMS, TENSOR(const float, lr), FACTOR_PARAM __global const int* table, float clip,
                         float beta1, float beta2, float rest1, float rest2, float decay) {
  FIND_OPERANDS
  FIND_PARTS
  FIND_SLOT(m, 0)
  const float rate = START(lr)[0], scale = FACTOR, shrink = 1.0f - rate * decay;
  GUARD
  EACH_ELEMENT(LION)
}

#define EMA(T, GET, PUT, i) PUT(decay * GET(w_in + i) + rest * GET(g_in + i), w_out + i);

__kernel GROUP void ema(SLAB_PARAMS, __global const int* table, float clip, float decay, float rest) {
  FIND_OPERANDS
  EACH_ELEMENT(EMA)
}

// A work-item sums a chunk, in blocks of a few vectors: one long chain would lose digits.
__kernel GROUP void square_sum_parts(SLAB_PARAMS, __global const int* table, TENSOR(float, parts), int rows) {
  const int row = get_global_id(0);
  if (row >= rows) return;
  __global float* const slabs[8] = SLABS;
  __global const int* entry = table + row * 5;
  const int count = entry[0], whole = count / VW * VW;
  __global const float* x = operand(slabs, entry, 0);
  fv sum = (fv)(0.0f);
  float rest = 0.0f;
  for (int i = 0; i < whole;) {
    const int end = min(whole, i + 32 * VW);
    fv block = (fv)(0.0f);
    for (; i < end; i += VW) block += LOAD(x + i) * LOAD(x + i);
    sum += block;
  }
  for (int i = whole; i < count; ++i) rest += x[i] * x[i];
  START(parts)[row] = sum_of_lanes(sum) + rest;
}
