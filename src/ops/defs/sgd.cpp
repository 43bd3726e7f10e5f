// sgd.cpp -- one step of stochastic gradient descent for a whole group of parameters, by PyTorch's rule:
//   g += decay * w;   m = momentum * m + g;   w -= lr * (nesterov ? g + momentum * m : m)
// Operands are lr, then w, g and, if momentum is not 0, m of each member; results are w and m of each. In place.
#include "ops/magnitude.h"

namespace situ::ops::defs {
namespace {

bool has_momentum(const Attrs& attrs) { return attrs.number("momentum", 0) != 0; }
int operands_of(const Attrs& attrs) { return has_momentum(attrs) ? 3 : 2; }

Types type(const OpView& v) {
  const int each = operands_of(v.attrs);
  need(v.arity() >= 1 && v.in(0) == f32({}), "lr must be f32[]");
  if (v.arity() == 1 || (v.arity() - 1) % each) fail("after lr come {} operands for each parameter", each);
  need(has_momentum(v.attrs) || !v.attrs.flag("nesterov"), "nesterov needs a momentum that is not 0");
  Types outs;
  for (int i = 1; i < v.arity(); i += each) {
    const Type& w = v.in(i);
    need(w.dtype == DType::f32, "parameters must be f32");
    for (int k = 1; k < each; ++k)
      if (v.in(i + k) != w)
        fail("gradient and momentum must be {} as the parameter is, not {}", to_string(w), to_string(v.in(i + k)));
    outs.insert(outs.end(), static_cast<size_t>(each - 1), w);
  }
  return outs;
}

std::vector<Alias> aliases(const OpView& v) {
  const int each = operands_of(v.attrs);
  std::vector<Alias> list;
  for (int i = 1, out = 0; i < v.arity(); i += each) {
    list.push_back({out++, i});
    if (each == 3) list.push_back({out++, i + 2});
  }
  return list;
}

Cost cost(const OpView& v) {
  double elements = 0;
  for (int i = 1; i < v.arity(); i += operands_of(v.attrs)) elements += static_cast<double>(v.in(i).count());
  return {.flops = elements * (2 + (has_momentum(v.attrs) ? 2 : 0) + (v.attrs.flag("nesterov") ? 2 : 0) +
                               (v.attrs.number("decay", 0) != 0 ? 2 : 0))};
}

// direction = -1 descends; +1 on absolute values adds up the terms.
void update(const RefCall& c, double direction) {
  const double momentum = c.attrs.number("momentum", 0), decay = c.attrs.number("decay", 0), lr = c.in[0][0];
  const size_t each = static_cast<size_t>(operands_of(c.attrs));
  for (size_t i = 1, out = 0; i < c.in.size(); i += each, out += each - 1) {
    const RefTensor &w = c.in[i], &g = c.in[i + 1];
    for (int64_t e = 0; e < w.count(); ++e) {
      const double slope = g[e] + decay * w[e];
      const double m = each == 3 ? momentum * c.in[i + 2][e] + slope : slope;
      const double step = c.attrs.flag("nesterov") ? slope + momentum * m : m;
      c.out[out][e] = w[e] + direction * lr * step;
      if (each == 3) c.out[out + 1][e] = m;
    }
  }
}

void reference(const RefCall& c) { update(c, -1); }
void magnitude(const RefCall& c) { update(AbsoluteCall(c).call(), +1); }

constexpr std::string_view kExamples =
    "f32[]=0.1, f32[7], f32[7]; f32[]=0.1, f32[1], f32[1] {momentum=0, decay=0.01}; f32[]+, f32[3,65], f32[3,65] "
    "{decay=0.5};"
    "f32[]=0.05, f32[33], f32[33], f32[33] {momentum=0.9}; f32[]=0.05, f32[8,17], f32[8,17], f32[8,17] {momentum=0.9, "
    "decay=0.001};"
    "f32[]=0.1, f32[64], f32[64], f32[64] {momentum=0.5, nesterov=1}; f32[]=0.1, f32[], f32[], f32[] {momentum=0.9, "
    "nesterov=1, decay=0.1};"
    "f32[]=0.1, f32[5,5,1,6], f32[5,5,1,6], f32[6], f32[6], f32[1], f32[1], f32[31,9], f32[31,9], f32[1000], f32[1000] "
    "{decay=0.01};"
    "f32[]=0.1, f32[3,3,4,8], f32[3,3,4,8], f32[3,3,4,8], f32[8], f32[8], f32[8], f32[1], f32[1], f32[1], "
    "f32[65,16], f32[65,16], f32[65,16], f32[15], f32[15], f32[15] {momentum=0.9, nesterov=1, decay=0.0005};"
    "f32[]=0.2, f32[9], f32[9], f32[9], f32[2,3], f32[2,3], f32[2,3] {momentum=0.8}";

}  // namespace

OpList sgd() {
  static constexpr OpDef defs[] = {{.name = "sgd",
                                    .signature = "(lr: float, w: float, g: float, [m: float], ...) -> w, [m], ...",
                                    .type = type,
                                    .cost = cost,
                                    .reference = reference,
                                    .magnitude = magnitude,
                                    .aliases = aliases,
                                    .examples = kExamples,
                                    .dense = true}};
  return defs;
}
}  // namespace situ::ops::defs
