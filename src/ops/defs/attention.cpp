// attention.cpp -- softmax(scale q k^T) v per head, without a stored score matrix, and its gradients.
//   p_ts = exp(scale q_t.k_s - lse_t) over the keys that t sees;  o_t = sum p_ts v_s;  lse_t = log sum exp(scale
//   q_t.k_s) delta_t = do_t.o_t - dlse_t;  ds_ts = p_ts (do_t.v_s - delta_t) scale;  dq = ds k,  dk = ds^T q,  dv = p^T
//   do
// Heads lie side by side in the last axis; with fewer key heads, neighbouring query heads share one. causal: query t
// sees keys up to t + S - T; lengths: keys at and beyond it are not there. A query that sees no key gives o = 0 and lse
// = 0.
#include "ops/attention.h"

#include <algorithm>
#include <cmath>

#include "ops/op.h"

namespace situ::ops::defs {
namespace {

// Operands from `first` on: nothing, or lengths.
void need_lengths(const OpView& v, int first) {
  need(v.arity() == first || (v.arity() == first + 1 && v.in(first) == i32({v.in(0).shape[0]})),
       "after the f32 operands only lengths may follow, i32[N]");
}

Types type(const OpView& v) {
  need(v.arity() >= 3, "q, k and v are needed");
  for (int i = 0; i < 3; ++i) need(v.in(i).dtype == DType::f32, "q, k and v must be f32");
  const Attention a = attention_of(v.attrs, v.in(0).shape, v.in(1).shape);
  need(v.in(1) == v.in(2), "k and v must have one shape");
  need_lengths(v, 3);
  return {v.in(0), f32({a.batch, a.queries, a.heads})};
}

Types delta_type(const OpView& v) {
  need(v.arity() == 2 || v.arity() == 3, "o and do are needed, then dlse");
  need(v.in(0).dtype == DType::f32 && v.in(0).shape.rank() == 3 && v.in(0) == v.in(1), "o and do must be f32[N,T,C]");
  const Shape& o = v.in(0).shape;
  const int64_t heads = v.attrs.integer("heads");
  need(heads > 0 && o[2] % heads == 0, "heads must divide the last axis");
  const Type delta = f32({o[0], o[1], heads});
  need(v.arity() < 3 || v.in(2) == delta, "dlse must be f32[N,T,heads]");
  return {delta};
}

Attention check_gradient(const OpView& v) {
  need(v.arity() >= 6, "q, k, v, do, lse and delta are needed");
  for (int i = 0; i < 6; ++i) need(v.in(i).dtype == DType::f32, "q, k, v, do, lse and delta must be f32");
  const Attention a = attention_of(v.attrs, v.in(0).shape, v.in(1).shape);
  need(v.in(1) == v.in(2) && v.in(0) == v.in(3), "k and v must have one shape, q and do another");
  const Type by_head = f32({a.batch, a.queries, a.heads});
  need(v.in(4) == by_head && v.in(5) == by_head, "lse and delta must be [N,T,heads]");
  need_lengths(v, 6);
  return a;
}
Types dq_type(const OpView& v) {
  check_gradient(v);
  return {v.in(0)};
}
Types dkv_type(const OpView& v) {
  check_gradient(v);
  return {v.in(1), v.in(1)};
}

void gradient(GradBuilder& g) {
  if (!g.wants(0) && !g.wants(1) && !g.wants(2)) return;
  Values for_delta{g.out(0), g.dout(0)};
  if (g.has_dout(1)) for_delta.push_back(g.dout(1));
  const Value delta = g.emit("attention_delta", for_delta, {{"heads", g.attrs().integer("heads")}});
  Values inputs{g.in(0), g.in(1), g.in(2), g.dout(0), g.out(1), delta};
  if (g.arity() > 3) inputs.push_back(g.in(3));
  if (g.wants(0)) g.add(0, g.emit("attention_dq", inputs, g.attrs()));
  if (!g.wants(1) && !g.wants(2)) return;
  const Values d = g.emit_all("attention_dkv", inputs, g.attrs());
  g.add(1, d[0]);
  g.add(2, d[1]);
}

double products(const OpView& v) {  // multiply-adds of one product, scores or weighted sum
  const Attention a = attention_of(v.attrs, v.in(0).shape, v.in(1).shape);
  const double all = static_cast<double>(v.in(0).count()) * static_cast<double>(a.keys);
  return a.causal ? all / 2 : all;
}
Cost cost(const OpView& v) { return {.flops = 4 * products(v)}; }
Cost dq_cost(const OpView& v) { return {.flops = 6 * products(v)}; }
Cost dkv_cost(const OpView& v) { return {.flops = 8 * products(v)}; }
Cost delta_cost(const OpView& v) { return {.flops = 2 * static_cast<double>(v.in(0).count())}; }

// A query of one head: where it lies in [N,T,heads*D] and [N,T,heads], where its keys start, how many it sees.
struct Query {
  int64_t at, by_head, keys_at, visible;
};
// Calls visit for every query; key j of it lies at keys_at + j * stride(a).
void each_query(const RefCall& c, const Attention& a, size_t lengths, auto visit) {
  for (int64_t n = 0; n < a.batch; ++n)
    for (int64_t t = 0; t < a.queries; ++t)
      for (int64_t head = 0; head < a.heads; ++head) {
        const int64_t length = c.in.size() > lengths ? static_cast<int64_t>(c.in[lengths][n]) : a.keys;
        const int64_t row = n * a.queries + t;
        visit(Query{(row * a.heads + head) * a.width, row * a.heads + head,
                    (n * a.keys * a.kv_heads + head / a.group()) * a.width, a.visible(t, length)});
      }
}
int64_t stride(const Attention& a) { return a.kv_heads * a.width; }

double dot(const double* a, const double* b, int64_t n, bool terms = false) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += terms ? std::fabs(a[i] * b[i]) : a[i] * b[i];
  return sum;
}

// With `terms`: what rounding comes to. A score's error is a relative one of its weight, and through their sum of all.
void forward(const RefCall& c, bool terms) {
  const RefTensor &q = c.in[0], &k = c.in[1], &v = c.in[2], &o = c.out[0], &lse = c.out[1];
  const Attention a = attention_of(c.attrs, q.shape(), k.shape());
  std::fill_n(o.data, o.count(), 0.0);
  std::vector<double> score(static_cast<size_t>(a.keys)), error(score);
  each_query(c, a, 3, [&](const Query& t) {
    lse[t.by_head] = 0;
    if (t.visible == 0) return;
    const auto end = score.begin() + t.visible;
    double sum = 0, through_sum = 0;
    for (int64_t s = 0; s < t.visible; ++s)
      score[static_cast<size_t>(s)] = a.scale * dot(&q[t.at], &k[t.keys_at + s * stride(a)], a.width);
    const double top = *std::max_element(score.begin(), end);
    std::for_each(score.begin(), end, [&](double s) { sum += std::exp(s - top); });
    lse[t.by_head] = top + std::log(sum);
    for (int64_t s = 0; s < t.visible && terms; ++s) {
      error[static_cast<size_t>(s)] =
          std::fabs(a.scale) * dot(&q[t.at], &k[t.keys_at + s * stride(a)], a.width, true) + std::fabs(top) + 1;
      through_sum += std::exp(score[static_cast<size_t>(s)] - lse[t.by_head]) * error[static_cast<size_t>(s)];
    }
    for (int64_t s = 0; s < t.visible; ++s) {
      const double p = std::exp(score[static_cast<size_t>(s)] - lse[t.by_head]);
      for (int64_t d = 0; d < a.width; ++d) {
        const double value = v[t.keys_at + s * stride(a) + d];
        o[t.at + d] += terms ? p * std::fabs(value) * (1 + error[static_cast<size_t>(s)] + through_sum) : p * value;
      }
    }
    if (terms) lse[t.by_head] = std::fabs(lse[t.by_head]) + through_sum;
  });
}
void reference(const RefCall& c) { forward(c, false); }
void magnitude(const RefCall& c) { forward(c, true); }

void delta_sums(const RefCall& c, bool terms) {
  const RefTensor &o = c.in[0], &d_o = c.in[1], &delta = c.out[0];
  const int64_t width = o.count() / delta.count();
  for (int64_t i = 0; i < delta.count(); ++i) {
    delta[i] = dot(&o[i * width], &d_o[i * width], width, terms);
    if (c.in.size() > 2) delta[i] += terms ? std::fabs(c.in[2][i]) : -c.in[2][i];
  }
}
void delta_reference(const RefCall& c) { delta_sums(c, false); }
void delta_magnitude(const RefCall& c) { delta_sums(c, true); }

// Calls visit(query, element of its key, p, ds) for every pair; with `terms` p and ds are what their errors come to.
void each_pair(const RefCall& c, bool terms, auto visit) {
  const RefTensor &q = c.in[0], &k = c.in[1], &v = c.in[2], &d_o = c.in[3], &lse = c.in[4], &delta = c.in[5];
  const Attention a = attention_of(c.attrs, q.shape(), k.shape());
  each_query(c, a, 6, [&](const Query& t) {
    for (int64_t s = 0; s < t.visible; ++s) {
      const int64_t key = t.keys_at + s * stride(a);
      const double score = a.scale * dot(&q[t.at], &k[key], a.width), p = std::exp(score - lse[t.by_head]);
      const double gap = dot(&d_o[t.at], &v[key], a.width) - delta[t.by_head];
      if (!terms) {
        visit(a, t, key, p, p * gap * a.scale);
        continue;
      }
      const double error = std::fabs(a.scale) * dot(&q[t.at], &k[key], a.width, true) + std::fabs(lse[t.by_head]) + 1;
      const double gap_terms = dot(&d_o[t.at], &v[key], a.width, true) + std::fabs(delta[t.by_head]);
      visit(a, t, key, p * error, p * std::fabs(a.scale) * (gap_terms + std::fabs(gap) * error));
    }
  });
}

void dq_sums(const RefCall& c, bool terms) {
  const RefTensor &k = c.in[1], &dq = c.out[0];
  std::fill_n(dq.data, dq.count(), 0.0);
  each_pair(c, terms, [&](const Attention& a, const Query& t, int64_t key, double, double ds) {
    for (int64_t d = 0; d < a.width; ++d) dq[t.at + d] += ds * (terms ? std::fabs(k[key + d]) : k[key + d]);
  });
}
void dq_reference(const RefCall& c) { dq_sums(c, false); }
void dq_magnitude(const RefCall& c) { dq_sums(c, true); }

void dkv_sums(const RefCall& c, bool terms) {
  const RefTensor &q = c.in[0], &d_o = c.in[3], &dk = c.out[0], &dv = c.out[1];
  std::fill_n(dk.data, dk.count(), 0.0);
  std::fill_n(dv.data, dv.count(), 0.0);
  const auto part = [&](double x) { return terms ? std::fabs(x) : x; };
  each_pair(c, terms, [&](const Attention& a, const Query& t, int64_t key, double p, double ds) {
    for (int64_t d = 0; d < a.width; ++d) {
      dk[key + d] += ds * part(q[t.at + d]);
      dv[key + d] += p * part(d_o[t.at + d]);
    }
  });
}
void dkv_reference(const RefCall& c) { dkv_sums(c, false); }
void dkv_magnitude(const RefCall& c) { dkv_sums(c, true); }

constexpr std::string_view kExamples =  // whole and cut blocks of queries and keys; every mask; shared key heads
    "f32[1,1,1], f32[1,1,1], f32[1,1,1] {heads=1}; f32[2,3,8], f32[2,5,8], f32[2,5,8] {heads=1};"
    "f32[2,5,14], f32[2,5,14], f32[2,5,14] {heads=2, causal=1}; f32[1,7,32], f32[1,9,32], f32[1,9,32] {heads=4, "
    "causal=1};"
    "f32[1,9,34], f32[1,4,34], f32[1,4,34] {heads=2, causal=1}; f32[3,4,24], f32[3,6,24], f32[3,6,24], i32[3]<8 "
    "{heads=3};"
    "f32[4,6,32], f32[4,6,16], f32[4,6,16], i32[4]<6 {heads=4, kv_heads=2, causal=1};"
    "f32[2,8,51], f32[2,3,17], f32[2,3,17] {heads=3, kv_heads=1, scale=0.7};"
    "f32[1,17,17]*4, f32[1,33,17]*4, f32[1,33,17] {heads=1, scale=1.0}; f32[1,65,33], f32[1,65,33], f32[1,65,33] "
    "{heads=1, "
    "causal=1}; f32[1,31,66], f32[1,100,66], f32[1,100,66] {heads=2}; f32[2,15,64], f32[2,17,64], f32[2,17,64] "
    "{heads=1};"
    "f32[1,130,8], f32[1,130,8], f32[1,130,8] {heads=1, causal=1}; f32[1,9,33], f32[1,64,33], f32[1,64,33] {heads=1};"
    "f32[1,7,256], f32[1,8,128], f32[1,8,128], i32[1]=5 {heads=2, kv_heads=1, causal=1}";
constexpr std::string_view kDeltaExamples =
    "f32[1,1,1], f32[1,1,1] {heads=1}; f32[2,3,10], f32[2,3,10], f32[2,3,2] {heads=2}; f32[1,7,51], f32[1,7,51] "
    "{heads=3};"
    "f32[3,2,64], f32[3,2,64], f32[3,2,4] {heads=4}; f32[2,5,65], f32[2,5,65], f32[2,5,1] {heads=1};"
    "f32[1,9,256], f32[1,9,256] {heads=2}; f32[2,2,24], f32[2,2,24] {heads=3}; f32[1,3,66], f32[1,3,66] {heads=2}";
constexpr std::string_view kGradExamples =
    "f32[1,1,1], f32[1,1,1], f32[1,1,1], f32[1,1,1], f32[1,1,1], f32[1,1,1] {heads=1};"
    "f32[2,3,8], f32[2,5,8], f32[2,5,8], f32[2,3,8], f32[2,3,1], f32[2,3,1] {heads=1};"
    "f32[2,5,14], f32[2,5,14], f32[2,5,14], f32[2,5,14], f32[2,5,2], f32[2,5,2] {heads=2, causal=1};"
    "f32[1,7,32], f32[1,9,32], f32[1,9,32], f32[1,7,32], f32[1,7,4], f32[1,7,4] {heads=4, causal=1};"
    "f32[1,9,34], f32[1,4,34], f32[1,4,34], f32[1,9,34], f32[1,9,2], f32[1,9,2] {heads=2, causal=1};"
    "f32[3,4,24], f32[3,6,24], f32[3,6,24], f32[3,4,24], f32[3,4,3], f32[3,4,3], i32[3]<8 {heads=3};"
    "f32[4,6,32], f32[4,6,16], f32[4,6,16], f32[4,6,32], f32[4,6,4], f32[4,6,4], i32[4]<6 {heads=4, kv_heads=2, "
    "causal=1};"
    "f32[2,8,51], f32[2,3,17], f32[2,3,17], f32[2,8,51], f32[2,8,3], f32[2,8,3] {heads=3, kv_heads=1, scale=0.7};"
    "f32[1,17,17]*2, f32[1,33,17]*2, f32[1,33,17], f32[1,17,17], f32[1,17,1], f32[1,17,1] {heads=1, scale=1.0};"
    "f32[1,65,33], f32[1,65,33], f32[1,65,33], f32[1,65,33], f32[1,65,1], f32[1,65,1] {heads=1, causal=1};"
    "f32[1,31,66], f32[1,100,66], f32[1,100,66], f32[1,31,66], f32[1,31,2], f32[1,31,2] {heads=2};"
    "f32[2,15,64], f32[2,17,64], f32[2,17,64], f32[2,15,64], f32[2,15,1], f32[2,15,1] {heads=1};"
    "f32[1,130,8], f32[1,130,8], f32[1,130,8], f32[1,130,8], f32[1,130,1], f32[1,130,1] {heads=1, causal=1};"
    "f32[1,9,33], f32[1,64,33], f32[1,64,33], f32[1,9,33], f32[1,9,1], f32[1,9,1] {heads=1};"
    "f32[1,7,256], f32[1,8,128], f32[1,8,128], f32[1,7,256], f32[1,7,2], f32[1,7,2], i32[1]=5 {heads=2, kv_heads=1, "
    "causal=1}";

}  // namespace

OpList attention() {
  static constexpr OpDef defs[] = {{.name = "attention",
                                    .signature = "(q: float, k: float, v: float, lengths: int) -> o, lse",
                                    .type = type,
                                    .grad = gradient,
                                    .cost = cost,
                                    .reference = reference,
                                    .magnitude = magnitude,
                                    .examples = kExamples},
                                   {.name = "attention_delta",
                                    .signature = "(o: float, do: float, dlse: float) -> delta",
                                    .type = delta_type,
                                    .cost = delta_cost,
                                    .reference = delta_reference,
                                    .magnitude = delta_magnitude,
                                    .examples = kDeltaExamples},
                                   {.name = "attention_dq",
                                    .signature = "(q: float, k: float, v: float, do: float, lse: float, delta: float, "
                                                 "lengths: int) -> dq",
                                    .type = dq_type,
                                    .cost = dq_cost,
                                    .reference = dq_reference,
                                    .magnitude = dq_magnitude,
                                    .examples = kGradExamples},
                                   {.name = "attention_dkv",
                                    .signature = "(q: float, k: float, v: float, do: float, lse: float, delta: float, "
                                                 "lengths: int) -> dk, dv",
                                    .type = dkv_type,
                                    .cost = dkv_cost,
                                    .reference = dkv_reference,
                                    .magnitude = dkv_magnitude,
                                    .examples = kGradExamples}};
  return defs;
}
}  // namespace situ::ops::defs
