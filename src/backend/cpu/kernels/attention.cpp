// attention.cpp -- attention in blocks with an online softmax, and its gradients with scores computed again.
//
//   attention        per block of keys: s = scale q k^T;  m' = max(m, s);  o = o e^(m - m') + e^(s - m') v;  lse = m +
//   log l attention_delta  delta = do.o - dlse attention_dq     p = e^(s - lse);  ds = p (do v^T - delta) scale;  dq +=
//   ds k          a task: queries of a head attention_dkv    the same scores transposed;  dv += p^T do;  dk += ds^T q
//   a task: keys of a key head
// All products run on the register tile. The side that supplies the lanes is turned over on the task's stack first.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels/attention.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/cpu/block_product.h"
#include "backend/cpu/math-inl.h"
#include "backend/cpu/simd-inl.h"
#include "ops/attention.h"

#ifndef SITU_BACKEND_CPU_ATTENTION_ONCE_
#define SITU_BACKEND_CPU_ATTENTION_ONCE_
namespace situ::cpu {
namespace {
constexpr int64_t kRows = 48;   // rows of a task: a multiple of the tile's heights
constexpr int64_t kLanes = 64;  // the other side at a time: a multiple of any vector length up to that

struct Heads {
  ops::Attention a;
  PanelSet values;               // tiles for `width` columns
  std::vector<PanelSet> scores;  // and for 1, 2, ... vectors of the other side
  int64_t row_blocks = 0;
  const int32_t* lengths = nullptr;
  Matrix q, k, v, o, lse, d_o, delta, dq, dk, dv;
  int64_t length(int64_t n) const { return lengths ? lengths[n] : a.keys; }
};

// What a task works on: rows r0.. of head `head` of sequence n; first row of its queries and keys, columns of both.
struct Place {
  int64_t n, head, r0, rows, queries, keys, q_col, k_col;
};
}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

// to[d][j] = from[j][d] for j < n; zeros up to a whole vector.
HWY_INLINE void turn_over(const float* from, int64_t pitch, int64_t n, int64_t width, float* to) {
  int64_t j = 0;
#if HWY_TARGET != HWY_SCALAR
  for (; j + 4 <= n; j += 4) {
    int64_t d = 0;
    for (; d + 4 <= width; d += 4) transpose_4x4(from + j * pitch + d, pitch, to + d * kLanes + j, kLanes);
    for (; d < width; ++d)
      for (int64_t l = 0; l < 4; ++l) to[d * kLanes + j + l] = from[(j + l) * pitch + d];
  }
#endif
  for (; j < n; ++j)
    for (int64_t d = 0; d < width; ++d) to[d * kLanes + j] = from[j * pitch + d];
  const int64_t end = round_up(n, lanes());
  for (int64_t d = 0; d < width && n < end; ++d) std::fill(to + d * kLanes + n, to + d * kLanes + end, 0.0f);
}

// The scores of m rows at `a` with the first n columns of `turned`, rounded up to whole vectors.
HWY_INLINE void scores_of(const Heads& h, const float* a, int64_t a_pitch, int64_t m, const float* turned, int64_t n,
                          float* y) {
  const Block block{
      .m = m, .k = h.a.width, .a = a, .a_row = a_pitch, .b = turned, .b_step = kLanes, .y = y, .y_pitch = kLanes};
  multiply(h.scores[static_cast<size_t>((n - 1) / lanes())], block);
}

// y[rows] += weights[m][k] times k rows of b.
HWY_INLINE void add_weighted(const Heads& h, const float* weights, int64_t m, int64_t k, const float* b,
                             int64_t b_pitch, float* y, int64_t y_pitch, bool first) {
  multiply(h.values, {.m = m,
                      .k = k,
                      .a = weights,
                      .a_row = kLanes,
                      .b = b,
                      .b_step = b_pitch,
                      .y = y,
                      .y_pitch = y_pitch,
                      .accumulate = !first});
}

HWY_INLINE void clear_rows(float* y, int64_t pitch, int64_t rows, int64_t width) {
  for (int64_t r = 0; r < rows; ++r) std::fill_n(y + r * pitch, width, 0.0f);
}
HWY_INLINE void scale_row(float* y, int64_t n, float factor) {
  const Floats f = fill(factor);
  for (int64_t i = 0; i < n; i += lanes()) store_up_to(hn::Mul(load_up_to(y + i, n - i), f), y + i, n - i);
}

HWY_INLINE Floats only_first(Floats v, int64_t n) {
  return n >= lanes() ? v : n <= 0 ? zeros() : hn::IfThenElseZero(hn::FirstN(Tag(), static_cast<size_t>(n)), v);
}

// --- forward --------------------------------------------------------------------------------------------------------
struct Online {
  float top = -3e38f, sum = 0;
};

// One row of m scores, the first n visible, becomes weights; o, the result so far, follows the new maximum.
HWY_INLINE void soften(float* s, int64_t n, int64_t m, float scale, Online& online, float* o, int64_t width,
                       bool first) {
  if (n <= 0) return std::fill(s, s + m, 0.0f);
  const Floats lowest = fill(-3e38f), factor = fill(scale);
  Floats tops = lowest;
  for (int64_t j = 0; j < n; j += lanes()) {
    const Floats v = hn::Mul(hn::LoadU(Tag(), s + j), factor);
    tops =
        hn::Max(tops, n - j >= lanes() ? v : hn::IfThenElse(hn::FirstN(Tag(), static_cast<size_t>(n - j)), v, lowest));
  }
  const float top = std::max(online.top, max_lanes(tops));
  const Floats shift = fill(top);
  Floats sum = zeros();
  for (int64_t j = 0; j < m; j += lanes()) {
    if (j >= n) {
      hn::StoreU(zeros(), Tag(), s + j);
      continue;
    }
    const Floats p = only_first(exp_of(hn::MulSub(hn::LoadU(Tag(), s + j), factor, shift)), n - j);
    hn::StoreU(p, Tag(), s + j);
    sum = hn::Add(sum, p);
  }
  const float kept = top == online.top ? 1.0f : std::exp(online.top - top);
  if (!first && kept != 1.0f) scale_row(o, width, kept);
  online.sum = online.sum * kept + sum_lanes(sum);
  online.top = top;
}

Place place_of(const Heads& h, int64_t task, bool by_key) {
  const int64_t heads = by_key ? h.a.kv_heads : h.a.heads, all = by_key ? h.a.keys : h.a.queries;
  Place p;
  p.r0 = task % h.row_blocks * kRows;
  p.head = task / h.row_blocks % heads;
  p.n = task / h.row_blocks / heads;
  p.rows = std::min(kRows, all - p.r0);
  p.queries = p.n * h.a.queries;
  p.keys = p.n * h.a.keys;
  p.q_col = (by_key ? p.head * h.a.group() : p.head) * h.a.width;
  p.k_col = (by_key ? p.head : p.head / h.a.group()) * h.a.width;
  return p;
}

void forward_task(const Heads& h, int64_t task) {
  HWY_ALIGN float turned[ops::kMaxHeadWidth * kLanes];
  HWY_ALIGN float s[kRows * kLanes];
  Online online[kRows];
  const Place p = place_of(h, task, false);
  const int64_t width = h.a.width, length = h.length(p.n);
  const int64_t most = h.a.visible(p.r0 + p.rows - 1, length);
  float* o = h.o.row(p.queries + p.r0) + p.q_col;
  if (most == 0) clear_rows(o, h.o.pitch, p.rows, width);
  for (int64_t k0 = 0; k0 < most; k0 += kLanes) {
    const int64_t keys = std::min(kLanes, most - k0);
    turn_over(h.k.row(p.keys + k0) + p.k_col, h.k.pitch, keys, width, turned);
    scores_of(h, h.q.row(p.queries + p.r0) + p.q_col, h.q.pitch, p.rows, turned, keys, s);
    for (int64_t r = 0; r < p.rows; ++r)
      soften(s + r * kLanes, std::min(keys, h.a.visible(p.r0 + r, length) - k0), keys, static_cast<float>(h.a.scale),
             online[r], o + r * h.o.pitch, width, k0 == 0);
    add_weighted(h, s, p.rows, keys, h.v.row(p.keys + k0) + p.k_col, h.v.pitch, o, h.o.pitch, k0 == 0);
  }
  for (int64_t r = 0; r < p.rows; ++r) {
    const bool any = online[r].sum != 0;  // a NaN counts
    if (any) scale_row(o + r * h.o.pitch, width, 1 / online[r].sum);
    h.lse.row(p.queries + p.r0 + r)[p.head] = any ? online[r].top + std::log(online[r].sum) : 0;
  }
}

// --- gradients ------------------------------------------------------------------------------------------------------
void delta_task(const Heads& h, int64_t task) {
  const int64_t rows = h.a.batch * h.a.queries, last = std::min(rows, (task + 1) * kRows), width = h.a.width;
  for (int64_t r = task * kRows; r < last; ++r)
    for (int64_t head = 0; head < h.a.heads; ++head) {
      const float *o = h.o.row(r) + head * width, *d_o = h.d_o.row(r) + head * width;
      Floats sum = zeros();
      for (int64_t i = 0; i < width; i += lanes())
        sum = hn::MulAdd(load_up_to(o + i, width - i), load_up_to(d_o + i, width - i), sum);
      h.delta.row(r)[head] = sum_lanes(sum) - (h.lse ? h.lse.row(r)[head] : 0.0f);
    }
}

// Scores become p, and dp becomes ds, for lanes [n0, n1) of a row; zeros elsewhere up to m.
HWY_INLINE void weigh(float* s, float* dp, int64_t n0, int64_t n1, int64_t m, float scale, const float* lse,
                      const float* delta) {
  const Floats factor = fill(scale);
  for (int64_t j = 0; j < m; j += lanes()) {
    Floats p = exp_of(hn::MulSub(hn::LoadU(Tag(), s + j), factor, hn::LoadU(Tag(), lse + j)));
    Floats ds = hn::Mul(hn::Mul(p, factor), hn::Sub(hn::LoadU(Tag(), dp + j), hn::LoadU(Tag(), delta + j)));
    if (j + lanes() > n1) {
      p = only_first(p, n1 - j);
      ds = only_first(ds, n1 - j);
    }
    if (j < n0) {  // what only_first would keep goes
      const auto low = hn::FirstN(Tag(), static_cast<size_t>(std::min(lanes(), n0 - j)));
      p = hn::IfThenZeroElse(low, p);
      ds = hn::IfThenZeroElse(low, ds);
    }
    hn::StoreU(p, Tag(), s + j);
    hn::StoreU(ds, Tag(), dp + j);
  }
}

void dq_task(const Heads& h, int64_t task) {
  HWY_ALIGN float turned[ops::kMaxHeadWidth * kLanes];
  HWY_ALIGN float s[kRows * kLanes], dp[kRows * kLanes], lse[kLanes], delta[kLanes];
  const Place p = place_of(h, task, false);
  const int64_t width = h.a.width, length = h.length(p.n), first = p.queries + p.r0;
  const int64_t most = h.a.visible(p.r0 + p.rows - 1, length);
  float* dq = h.dq.row(first) + p.q_col;
  if (most == 0) clear_rows(dq, h.dq.pitch, p.rows, width);
  for (int64_t k0 = 0; k0 < most; k0 += kLanes) {
    const int64_t keys = std::min(kLanes, most - k0);
    const float* k = h.k.row(p.keys + k0) + p.k_col;
    turn_over(k, h.k.pitch, keys, width, turned);
    scores_of(h, h.q.row(first) + p.q_col, h.q.pitch, p.rows, turned, keys, s);
    turn_over(h.v.row(p.keys + k0) + p.k_col, h.v.pitch, keys, width, turned);
    scores_of(h, h.d_o.row(first) + p.q_col, h.d_o.pitch, p.rows, turned, keys, dp);
    for (int64_t r = 0; r < p.rows; ++r) {
      std::fill_n(lse, kLanes, h.lse.row(first + r)[p.head]);
      std::fill_n(delta, kLanes, h.delta.row(first + r)[p.head]);
      weigh(s + r * kLanes, dp + r * kLanes, 0, std::min(keys, h.a.visible(p.r0 + r, length) - k0), keys,
            static_cast<float>(h.a.scale), lse, delta);
    }
    add_weighted(h, dp, p.rows, keys, k, h.k.pitch, dq, h.dq.pitch, k0 == 0);
  }
}

void dkv_task(const Heads& h, int64_t task) {
  HWY_ALIGN float turned[ops::kMaxHeadWidth * kLanes];
  HWY_ALIGN float s[kRows * kLanes], dp[kRows * kLanes], lse[kLanes] = {}, delta[kLanes] = {};
  const Place p = place_of(h, task, true);
  const int64_t width = h.a.width, present = std::clamp<int64_t>(h.length(p.n) - p.r0, 0, p.rows);
  const int64_t offset = h.a.keys - h.a.queries;  // causal: key j is seen from query j - offset on
  const int64_t begin = h.a.causal ? std::max<int64_t>(0, p.r0 - offset) / kLanes * kLanes : 0;
  float *dk = h.dk.row(p.keys + p.r0) + p.k_col, *dv = h.dv.row(p.keys + p.r0) + p.k_col;
  const float *k = h.k.row(p.keys + p.r0) + p.k_col, *v = h.v.row(p.keys + p.r0) + p.k_col;
  bool first = true;
  for (int64_t head = p.head * h.a.group(); head < (p.head + 1) * h.a.group() && present > 0; ++head)
    for (int64_t t0 = begin; t0 < h.a.queries; t0 += kLanes, first = false) {
      const int64_t queries = std::min(kLanes, h.a.queries - t0), col = head * width;
      const float *q = h.q.row(p.queries + t0) + col, *d_o = h.d_o.row(p.queries + t0) + col;
      for (int64_t t = 0; t < queries; ++t) {
        lse[t] = h.lse.row(p.queries + t0 + t)[head];
        delta[t] = h.delta.row(p.queries + t0 + t)[head];
      }
      turn_over(q, h.q.pitch, queries, width, turned);
      scores_of(h, k, h.k.pitch, p.rows, turned, queries, s);
      turn_over(d_o, h.d_o.pitch, queries, width, turned);
      scores_of(h, v, h.v.pitch, p.rows, turned, queries, dp);
      for (int64_t r = 0; r < p.rows; ++r) {
        const int64_t from = h.a.causal ? std::clamp<int64_t>(p.r0 + r - offset - t0, 0, kLanes) : 0;
        weigh(s + r * kLanes, dp + r * kLanes, from, r < present ? queries : 0, queries, static_cast<float>(h.a.scale),
              lse, delta);
      }
      add_weighted(h, s, p.rows, queries, d_o, h.d_o.pitch, dv, h.dv.pitch, first);
      add_weighted(h, dp, p.rows, queries, q, h.q.pitch, dk, h.dk.pitch, first);
    }
  if (!first) return;
  clear_rows(dk, h.dk.pitch, p.rows, width);
  clear_rows(dv, h.dv.pitch, p.rows, width);
}

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(forward_task);
HWY_EXPORT(delta_task);
HWY_EXPORT(dq_task);
HWY_EXPORT(dkv_task);

// `operands`: how many come before lengths.
Heads make_heads(const Call& call, size_t operands, bool by_key) {
  Heads h;
  h.a = ops::attention_of(call.attrs, call.in[0].shape(), call.in[1].shape());
  h.row_blocks = ceil_div(by_key ? h.a.keys : h.a.queries, kRows);
  const int64_t lanes = call.tuning().get("simd.lanes", 8);
  for (int64_t n = lanes; n <= kLanes; n += lanes) h.scores.push_back(make_panels(n, true, kRows, call.tuning()));
  h.values = make_panels(h.a.width, false, kRows, call.tuning());
  if (call.in.size() > operands) h.lengths = call.in[operands].i32();
  h.q = Matrix(call.in[0]);
  h.k = Matrix(call.in[1]);
  h.v = Matrix(call.in[2]);
  return h;
}
template <typename Run>
Work work(const Heads& h, int64_t tasks, Run run) {
  return {tasks, [h, run](int64_t task) { run(h, task); }};
}

Work bind_attention(const Call& call) {
  Heads h = make_heads(call, 3, false);
  h.o = Matrix(call.out[0]);
  h.lse = Matrix(call.out[1]);
  return work(h, h.a.batch * h.a.heads * h.row_blocks, &HWY_DYNAMIC_DISPATCH(forward_task));
}

Work bind_delta(const Call& call) {
  Heads h;
  h.a.batch = call.in[0].shape()[0];
  h.a.queries = call.in[0].shape()[1];
  h.a.heads = call.attrs.integer("heads");
  h.a.width = call.in[0].cols() / h.a.heads;
  h.o = Matrix(call.in[0]);
  h.d_o = Matrix(call.in[1]);
  if (call.in.size() > 2) h.lse = Matrix(call.in[2]);  // its gradient
  h.delta = Matrix(call.out[0]);
  return work(h, ceil_div(call.in[0].rows(), kRows), &HWY_DYNAMIC_DISPATCH(delta_task));
}

Heads make_gradient(const Call& call, bool by_key) {
  Heads h = make_heads(call, 6, by_key);
  h.d_o = Matrix(call.in[3]);
  h.lse = Matrix(call.in[4]);
  h.delta = Matrix(call.in[5]);
  return h;
}
Work bind_dq(const Call& call) {
  Heads h = make_gradient(call, false);
  h.dq = Matrix(call.out[0]);
  return work(h, h.a.batch * h.a.heads * h.row_blocks, &HWY_DYNAMIC_DISPATCH(dq_task));
}
Work bind_dkv(const Call& call) {
  Heads h = make_gradient(call, true);
  h.dk = Matrix(call.out[0]);
  h.dv = Matrix(call.out[1]);
  return work(h, h.a.batch * h.a.kv_heads * h.row_blocks, &HWY_DYNAMIC_DISPATCH(dkv_task));
}

}  // namespace

namespace kernels {
KernelList attention() {
  static constexpr Kernel kernels[] = {{"attention", bind_attention},
                                       {"attention_delta", bind_delta},
                                       {"attention_dq", bind_dq},
                                       {"attention_dkv", bind_dkv}};
  return {kernels, {}};
}
}  // namespace kernels
}  // namespace situ::cpu
#endif
