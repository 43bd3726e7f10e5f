// attention.cl -- attention with an online softmax, and its gradients with scores computed again.
//
//   attention        per TK keys: s = scale q k^T;  m' = max(m, s);  o = o e^(m - m') + e^(s - m') v;  lse = m + log l
//   attention_delta  delta = do.o - dlse
//   attention_dq     p = e^(s - lse);  ds = p (do v^T - delta) scale;  dq += ds k       a work-item: VW queries of a head
//   attention_dkv    dv += p^T do;  dk += ds^T q                                        a work-item: VW keys of a key head
// The lanes of a vector are queries (or keys) side by side, so no product needs a sum over lanes, and the rows of the
// other side are read as scalars that the whole group shares. WIDTH is a macro because its vectors are private arrays.
#include "common.clh"
#include "turn.clh"

#ifndef WIDTH
#define WIDTH 8  // channels of a head
#endif
#ifndef TK
#define TK 4  // rows of the other side at a time
#endif
#ifndef HAS_LENGTHS
#define HAS_LENGTHS 0  // 1: keys at and beyond lengths[n] are not there
#endif
#ifndef HAS_DLSE
#define HAS_DLSE 0  // 1: a gradient arrived at lse
#endif
#if HAS_LENGTHS
#define LENGTHS TENSOR(const int, lengths),
#define LENGTH START(lengths)[get_global_id(2)]
#else
#define LENGTHS
#define LENGTH keys
#endif

// How operands are stored: float or half (common.clh).
#ifndef Q_T
#define Q_T float  // queries
#endif
#ifndef K_T
#define K_T float  // keys
#endif
#ifndef V_T
#define V_T float  // values
#endif
#ifndef O_T
#define O_T float  // o
#endif
#ifndef D_T
#define D_T float  // do
#endif
#ifndef Y_T
#define Y_T float  // dq or dk
#endif
#ifndef Z_T
#define Z_T float  // dv
#endif

#define LOWEST (-3e38f)

static inline int visible_keys(int query, int queries, int keys, int length, int causal) {
  return clamp(min(causal ? query + keys - queries + 1 : keys, length), 0, keys);
}

// What reads and writes rows, for each type they may have:
//   load_turned   to[d] = channel d of rows first .. first + VW - 1; rows beyond the last repeat it
//   store_turned  the other way round
//   point_at      rows first .. first + TK - 1, likewise
//   dot_rows      s[i] = x . row i
//   add_rows      y += sum of w[i] * row i
// The first two go through registers where channels come in whole vectors.
#if VW > 1 && WIDTH % VW == 0
DEFINE_TURN(turn_rows, VW)
#define DEFINE_TURNED(T)                                                                                            \
  static inline void load_turned_##T(fv* to, __global const T* rows, int pitch, int first, int count) {             \
    for (int d = 0; d < WIDTH; d += VW) {                                                                           \
      fv t[VW];                                                                                                     \
      _Pragma("unroll") for (int l = 0; l < VW; ++l) t[l] = LOAD_AS(T, rows + min(first + l, count - 1) * pitch + d); \
      turn_rows(t);                                                                                                 \
      _Pragma("unroll") for (int l = 0; l < VW; ++l) to[d + l] = t[l];                                              \
    }                                                                                                               \
  }                                                                                                                 \
  static inline void store_turned_##T(const fv* from, __global T* rows, int pitch, int first, int count) {          \
    for (int d = 0; d < WIDTH; d += VW) {                                                                           \
      fv t[VW];                                                                                                     \
      _Pragma("unroll") for (int l = 0; l < VW; ++l) t[l] = from[d + l];                                            \
      turn_rows(t);                                                                                                 \
      _Pragma("unroll") for (int l = 0; l < VW; ++l) {                                                              \
        if (first + l < count) STORE_AS(T, t[l], rows + (first + l) * pitch + d);                                   \
      }                                                                                                             \
    }                                                                                                               \
  }
#else
#define DEFINE_TURNED(T)                                                                                            \
  static inline void load_turned_##T(fv* to, __global const T* rows, int pitch, int first, int count) {             \
    for (int d = 0; d < WIDTH; ++d) {                                                                               \
      float t[VW];                                                                                                  \
      _Pragma("unroll") for (int l = 0; l < VW; ++l) t[l] = AT(T, rows, min(first + l, count - 1) * pitch + d);     \
      to[d] = LOAD(t);                                                                                              \
    }                                                                                                               \
  }                                                                                                                 \
  static inline void store_turned_##T(const fv* from, __global T* rows, int pitch, int first, int count) {          \
    for (int d = 0; d < WIDTH; ++d) {                                                                               \
      float t[VW];                                                                                                  \
      STORE(from[d], t);                                                                                            \
      _Pragma("unroll") for (int l = 0; l < VW; ++l) {                                                              \
        if (first + l < count) PUT(T, t[l], rows, (first + l) * pitch + d);                                         \
      }                                                                                                             \
    }                                                                                                               \
  }
#endif

#define DEFINE_ROWS(T)                                                                                              \
  DEFINE_TURNED(T)                                                                                                  \
  static inline void point_at_##T(__global const T** rows, __global const T* x, int pitch, int first, int count) {  \
    _Pragma("unroll") for (int i = 0; i < TK; ++i) rows[i] = x + min(first + i, count - 1) * pitch;                 \
  }                                                                                                                 \
  static inline void dot_rows_##T(fv* s, const fv* x, __global const T* const* rows) {                              \
    _Pragma("unroll") for (int i = 0; i < TK; ++i) s[i] = (fv)(0.0f);                                               \
    for (int d = 0; d < WIDTH; ++d) {                                                                               \
      const fv xd = x[d];                                                                                           \
      _Pragma("unroll") for (int i = 0; i < TK; ++i) s[i] = MAC(xd, (fv)(AT(T, rows[i], d)), s[i]);                 \
    }                                                                                                               \
  }                                                                                                                 \
  static inline void add_rows_##T(fv* y, const fv* w, __global const T* const* rows) {                              \
    for (int d = 0; d < WIDTH; ++d) {                                                                               \
      fv sum = w[0] * (fv)(AT(T, rows[0], d));                                                                      \
      _Pragma("unroll") for (int i = 1; i < TK; ++i) sum = MAC(w[i], (fv)(AT(T, rows[i], d)), sum);                 \
      y[d] += sum;                                                                                                  \
    }                                                                                                               \
  }
DEFINE_ROWS(float)
#if HALVES
DEFINE_ROWS(half)
#endif

// One number per row, strided.
static inline fv load_column(__global const float* x, int pitch, int first, int count) {
  float t[VW];
#pragma unroll
  for (int l = 0; l < VW; ++l) t[l] = x[min(first + l, count - 1) * pitch];
  return LOAD(t);
}

static inline void clear(fv* x) {
  for (int d = 0; d < WIDTH; ++d) x[d] = (fv)(0.0f);
}

// How many keys each of the lanes' queries sees.
static inline iv visible_lanes(int first, int queries, int keys, int length, int causal) {
  int t[VW];
#pragma unroll
  for (int l = 0; l < VW; ++l) t[l] = visible_keys(min(first + l, queries - 1), queries, keys, length, causal);
  return LOAD(t);
}

__kernel GROUP void attention(TENSOR(const Q_T, q), TENSOR(const K_T, k), TENSOR(const V_T, v), LENGTHS
                              TENSOR(O_T, o), TENSOR(float, lse), int queries, int keys, int group, int causal,
                              float scale) {
  const int t0 = get_global_id(0) * VW, head = get_global_id(1), n = get_global_id(2);
  if (t0 >= queries) return;
  const int length = LENGTH, kv = head / group * WIDTH;
  const int most = visible_keys(min(t0 + VW, queries) - 1, queries, keys, length, causal);
  const iv seen = visible_lanes(t0, queries, keys, length, causal);
  fv x[WIDTH], y[WIDTH], top = (fv)(LOWEST), sum = (fv)(0.0f);
  TYPED(load_turned_, Q_T)(x, START(q) + n * queries * q_pitch + head * WIDTH, q_pitch, t0, queries);
  clear(y);
  for (int k0 = 0; k0 < most; k0 += TK) {
    __global const K_T* k_rows[TK];
    __global const V_T* v_rows[TK];
    fv s[TK], next = top, part = (fv)(0.0f);
    TYPED(point_at_, K_T)(k_rows, START(k) + n * keys * k_pitch + kv, k_pitch, k0, keys);
    TYPED(dot_rows_, K_T)(s, x, k_rows);
#pragma unroll
    for (int i = 0; i < TK; ++i) {
      s[i] = (iv)(k0 + i) < seen ? s[i] * (fv)(scale) : (fv)(LOWEST);
      next = max_of(next, s[i]);
    }
    const fv kept = exp(top - next);
#pragma unroll
    for (int i = 0; i < TK; ++i) {
      s[i] = (iv)(k0 + i) < seen ? exp(s[i] - next) : (fv)(0.0f);
      part += s[i];
    }
    sum = sum * kept + part;
    top = next;
    TYPED(point_at_, V_T)(v_rows, START(v) + n * keys * v_pitch + kv, v_pitch, k0, keys);
    for (int d = 0; d < WIDTH; ++d) y[d] *= kept;
    TYPED(add_rows_, V_T)(y, s, v_rows);
  }
  const fv factor = sum == (fv)(0.0f) ? (fv)(0.0f) : (fv)(1.0f) / sum;
  for (int d = 0; d < WIDTH; ++d) y[d] *= factor;
  TYPED(store_turned_, O_T)(y, START(o) + n * queries * o_pitch + head * WIDTH, o_pitch, t0, queries);
  float t[VW];
  STORE(sum == (fv)(0.0f) ? (fv)(0.0f) : top + log(sum), t);
  for (int l = 0; l < VW; ++l)
    if (t0 + l < queries) START(lse)[(n * queries + t0 + l) * lse_pitch + head] = t[l];
}

__kernel GROUP void attention_delta(TENSOR(const O_T, o), TENSOR(const D_T, d_o),
#if HAS_DLSE
                                    TENSOR(const float, dlse),
#endif
                                    TENSOR(float, delta), int rows, int heads, int width, int chunk) {
  const int first = get_global_id(0) * chunk, last = min(first + chunk, rows * heads);
  for (int unit = first; unit < last; ++unit) {
    const int row = unit / heads, head = unit % heads;
    __global const O_T* a = START(o) + row * o_pitch + head * width;
    __global const D_T* b = START(d_o) + row * d_o_pitch + head * width;
    fv sums = (fv)(0.0f);
    float rest = 0.0f;
    int c = 0;
    for (; c + VW <= width; c += VW) sums += LOAD_AS(O_T, a + c) * LOAD_AS(D_T, b + c);
    for (; c < width; ++c) rest += AT(O_T, a, c) * AT(D_T, b, c);
    rest += sum_of_lanes(sums);
#if HAS_DLSE
    rest -= START(dlse)[row * dlse_pitch + head];
#endif
    START(delta)[row * delta_pitch + head] = rest;
  }
}

__kernel GROUP void attention_dq(TENSOR(const Q_T, q), TENSOR(const K_T, k), TENSOR(const V_T, v),
                                 TENSOR(const D_T, d_o), TENSOR(const float, lse), TENSOR(const float, delta), LENGTHS
                                 TENSOR(Y_T, dq), int queries, int keys, int group, int causal, float scale) {
  const int t0 = get_global_id(0) * VW, head = get_global_id(1), n = get_global_id(2);
  if (t0 >= queries) return;
  const int length = LENGTH, kv = head / group * WIDTH;
  const int most = visible_keys(min(t0 + VW, queries) - 1, queries, keys, length, causal);
  const iv seen = visible_lanes(t0, queries, keys, length, causal);
  const fv log_sum = load_column(START(lse) + n * queries * lse_pitch + head, lse_pitch, t0, queries);
  const fv less = load_column(START(delta) + n * queries * delta_pitch + head, delta_pitch, t0, queries);
  fv x[WIDTH], dy[WIDTH], dx[WIDTH];
  TYPED(load_turned_, Q_T)(x, START(q) + n * queries * q_pitch + head * WIDTH, q_pitch, t0, queries);
  TYPED(load_turned_, D_T)(dy, START(d_o) + n * queries * d_o_pitch + head * WIDTH, d_o_pitch, t0, queries);
  clear(dx);
  for (int k0 = 0; k0 < most; k0 += TK) {
    __global const K_T* k_rows[TK];
    __global const V_T* v_rows[TK];
    fv s[TK], dp[TK];
    TYPED(point_at_, K_T)(k_rows, START(k) + n * keys * k_pitch + kv, k_pitch, k0, keys);
    TYPED(point_at_, V_T)(v_rows, START(v) + n * keys * v_pitch + kv, v_pitch, k0, keys);
    TYPED(dot_rows_, K_T)(s, x, k_rows);
    TYPED(dot_rows_, V_T)(dp, dy, v_rows);
#pragma unroll
    for (int i = 0; i < TK; ++i) {
      const fv ds = exp(s[i] * (fv)(scale) - log_sum) * (fv)(scale) * (dp[i] - less);
      s[i] = (iv)(k0 + i) < seen ? ds : (fv)(0.0f);
    }
    TYPED(add_rows_, K_T)(dx, s, k_rows);
  }
  TYPED(store_turned_, Y_T)(dx, START(dq) + n * queries * dq_pitch + head * WIDTH, dq_pitch, t0, queries);
}

__kernel GROUP void attention_dkv(TENSOR(const Q_T, q), TENSOR(const K_T, k), TENSOR(const V_T, v),
                                  TENSOR(const D_T, d_o), TENSOR(const float, lse), TENSOR(const float, delta),
                                  LENGTHS TENSOR(Y_T, dk), TENSOR(Z_T, dv), int queries, int keys, int group,
                                  int causal, float scale) {
  const int k0 = get_global_id(0) * VW, kv = get_global_id(1), n = get_global_id(2);
  if (k0 >= keys) return;
  const int length = LENGTH, begin = causal ? max(0, k0 + queries - keys) : 0;
  int lane[VW];
#pragma unroll
  for (int l = 0; l < VW; ++l) lane[l] = k0 + l;
  const iv key = LOAD(lane);
  fv kt[WIDTH], vt[WIDTH], to_k[WIDTH], to_v[WIDTH];
  TYPED(load_turned_, K_T)(kt, START(k) + n * keys * k_pitch + kv * WIDTH, k_pitch, k0, keys);
  TYPED(load_turned_, V_T)(vt, START(v) + n * keys * v_pitch + kv * WIDTH, v_pitch, k0, keys);
  clear(to_k);
  clear(to_v);
  for (int head = kv * group; head < (kv + 1) * group; ++head)
    for (int t0 = begin; t0 < queries; t0 += TK) {
      __global const Q_T* q_rows[TK];
      __global const D_T* d_rows[TK];
      fv s[TK], dp[TK];
      TYPED(point_at_, Q_T)(q_rows, START(q) + n * queries * q_pitch + head * WIDTH, q_pitch, t0, queries);
      TYPED(point_at_, D_T)(d_rows, START(d_o) + n * queries * d_o_pitch + head * WIDTH, d_o_pitch, t0, queries);
      TYPED(dot_rows_, Q_T)(s, kt, q_rows);
      TYPED(dot_rows_, D_T)(dp, vt, d_rows);
#pragma unroll
      for (int i = 0; i < TK; ++i) {
        const int row = n * queries + min(t0 + i, queries - 1);
        const int most = t0 + i < queries ? visible_keys(t0 + i, queries, keys, length, causal) : 0;
        const fv p = exp(s[i] * (fv)(scale) - (fv)(START(lse)[row * lse_pitch + head]));
        const fv ds = p * (fv)(scale) * (dp[i] - (fv)(START(delta)[row * delta_pitch + head]));
        s[i] = key < (iv)(most) ? p : (fv)(0.0f);
        dp[i] = key < (iv)(most) ? ds : (fv)(0.0f);
      }
      TYPED(add_rows_, D_T)(to_v, s, d_rows);
      TYPED(add_rows_, Q_T)(to_k, dp, q_rows);
    }
  TYPED(store_turned_, Y_T)(to_k, START(dk) + n * keys * dk_pitch + kv * WIDTH, dk_pitch, k0, keys);
  TYPED(store_turned_, Z_T)(to_v, START(dv) + n * keys * dv_pitch + kv * WIDTH, dv_pitch, k0, keys);
}
