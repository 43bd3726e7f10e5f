// adam.cpp -- one step of Adam, or AdamW with decoupled=1, for a whole group of parameters, by PyTorch's rule:
//   decoupled: w *= 1 - lr * decay;    else: g += decay * w
//   m = beta1 * m + (1 - beta1) * g;   v = beta2 * v + (1 - beta2) * g^2;   t = step + 1
//   w -= lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
// Operands are lr, step (how many were applied before), then w, g, m, v of each member; results are w, m, v. In place.
#include <cmath>

#include "ops/op.h"

namespace situ::ops::defs {
namespace {

constexpr int kEach = 4;  // w, g, m, v

Types type(const OpView& v) {
  need(v.arity() >= 2 && v.in(0) == f32({}) && v.in(1) == f32({}), "lr and step must be f32[]");
  need(v.arity() > 2 && (v.arity() - 2) % kEach == 0, "after lr and step come w, g, m and v of each parameter");
  for (const char* name : {"beta1", "beta2"}) {
    const double beta = v.attrs.number(name);
    if (!(beta >= 0 && beta < 1)) fail("{} is {}: use at least 0 and less than 1", name, beta);
  }
  need(v.attrs.number("eps") > 0, "eps must be larger than 0");
  Types outs;
  for (int i = 2; i < v.arity(); i += kEach) {
    const Type& w = v.in(i);
    need(w.dtype == DType::f32, "parameters must be f32");
    for (int k = 1; k < kEach; ++k)
      if (v.in(i + k) != w)
        fail("gradient and moments must be {} as the parameter is, not {}", to_string(w), to_string(v.in(i + k)));
    outs.insert(outs.end(), {w, w, w});
  }
  return outs;
}

std::vector<Alias> aliases(const OpView& v) {
  std::vector<Alias> list;
  for (int i = 2, out = 0; i < v.arity(); i += kEach, out += 3)
    for (Alias a : {Alias{out, i}, Alias{out + 1, i + 2}, Alias{out + 2, i + 3}}) list.push_back(a);
  return list;
}

Cost cost(const OpView& v) {
  double elements = 0;
  for (int i = 2; i < v.arity(); i += kEach) elements += static_cast<double>(v.in(i).count());
  return {.flops = elements * (12 + (v.attrs.number("decay", 0) != 0 ? 2 : 0))};
}

struct Rule {
  double lr, beta1, beta2, eps, coupled, decoupled;  // the last two: decay, where it applies
  double correction1, correction2;                   // 1 - beta^t
  explicit Rule(const RefCall& c)
      : lr(c.in[0][0]),
        beta1(c.attrs.number("beta1")),
        beta2(c.attrs.number("beta2")),
        eps(c.attrs.number("eps")),
        coupled(c.attrs.flag("decoupled") ? 0 : c.attrs.number("decay", 0)),
        decoupled(c.attrs.flag("decoupled") ? c.attrs.number("decay", 0) : 0),
        correction1(1 - std::pow(beta1, c.in[1][0] + 1)),
        correction2(1 - std::pow(beta2, c.in[1][0] + 1)) {}
};
struct Element {
  double w, g, m, v;
};

Element updated(const Rule& r, const Element& x) {
  const double g = x.g + r.coupled * x.w;
  const double m = r.beta1 * x.m + (1 - r.beta1) * g, v = r.beta2 * x.v + (1 - r.beta2) * g * g;
  const double w = x.w * (1 - r.lr * r.decoupled);
  return {w - r.lr * (m / r.correction1) / (std::sqrt(v / r.correction2) + r.eps), g, m, v};
}

// Each sum with positive terms. The error of v enters w through the root: d sqrt(v) = dv / (2 sqrt(v)).
Element magnitude_of(const Rule& r, const Element& x) {
  const Element y = updated(r, x);
  const double g = std::fabs(x.g) + r.coupled * std::fabs(x.w);
  const double m = r.beta1 * std::fabs(x.m) + (1 - r.beta1) * g, v = r.beta2 * x.v + (1 - r.beta2) * g * g;
  const double root = std::sqrt(y.v / r.correction2), below = root + r.eps;
  const double of_root = y.v > 0 ? root * v / (2 * y.v) : 0;
  const double step = m / r.correction1 / below + std::fabs(y.m) / r.correction1 / below * (of_root / below + 1);
  return {std::fabs(x.w) * (1 + r.lr * r.decoupled) + r.lr * step, g, m, v};
}

template <Element (*element)(const Rule&, const Element&)>
void each_element(const RefCall& c) {
  const Rule rule(c);
  for (size_t i = 2, out = 0; i < c.in.size(); i += kEach, out += 3)
    for (int64_t e = 0; e < c.in[i].count(); ++e) {
      const Element y = element(rule, {c.in[i][e], c.in[i + 1][e], c.in[i + 2][e], c.in[i + 3][e]});
      c.out[out][e] = y.w, c.out[out + 1][e] = y.m, c.out[out + 2][e] = y.v;
    }
}

constexpr std::string_view kExamples =
    "f32[]=0.01, f32[]=0, f32[7], f32[7], f32[7]=0, f32[7]=0 {beta1=0.9, beta2=0.999, eps=1.0e-8};"
    "f32[]=0.01, f32[]=3, f32[1], f32[1], f32[1], f32[1]+ {beta1=0.9, beta2=0.999, eps=1.0e-8, decay=0.1};"
    "f32[]=0.1, f32[]=100, f32[3,65], f32[3,65], f32[3,65], f32[3,65]+ {beta1=0.8, beta2=0.99, eps=0.001, decay=0.01, "
    "decoupled=1};"
    "f32[]=0.01, f32[]=9999, f32[], f32[], f32[], f32[]+ {beta1=0, beta2=0.9, eps=1.0e-6};"
    "f32[]=0.1, f32[]=1, f32[3,3,2,8], f32[3,3,2,8], f32[3,3,2,8], f32[3,3,2,8]+, f32[8], f32[8], f32[8], f32[8]+, "
    "f32[1], f32[1], f32[1], f32[1]+, f32[33,9], f32[33,9], f32[33,9], f32[33,9]+, f32[64], f32[64], f32[64], f32[64]+ "
    "{beta1=0.9, beta2=0.999, eps=1.0e-8, decay=0.05, decoupled=1};"
    "f32[]=0.1, f32[]=7, f32[17], f32[17], f32[17], f32[17]+, f32[1000], f32[1000], f32[1000], f32[1000]+ "
    "{beta1=0.9, beta2=0.999, eps=1.0e-8, decay=0.01}";

}  // namespace

OpList adam() {
  static constexpr OpDef defs[] = {
      {.name = "adam",
       .signature = "(lr: float, step: float, w: float, g: float, m: float, v: float, ...) -> w, m, v, ...",
       .type = type,
       .cost = cost,
       .reference = each_element<updated>,
       .magnitude = each_element<magnitude_of>,
       .aliases = aliases,
       .examples = kExamples,
       .dense = true}};
  return defs;
}
}  // namespace situ::ops::defs
