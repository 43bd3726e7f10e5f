// update.cpp -- the optimizers, a step of a whole group of parameters each, by PyTorch's rules (Lion by its paper).
//   sgd      g += decay * w;  m = momentum * m + g;  w -= lr * (nesterov ? g + momentum * m : m)
//   adam     m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g^2;  t = step + 1
//            w -= lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
//   rmsprop  s = alpha * s + (1 - alpha) * g^2;  centered: a = alpha * a + (1 - alpha) * g, else a = 0
//            d = g / (sqrt(s - a^2) + eps);  m = momentum * m + d;  w -= lr * m
//   adagrad  s += g^2;  w -= lr / (1 + step * lr_decay) * g / (sqrt(s) + eps)
//   lion     w -= lr * sign(beta1 * m + (1 - beta1) * g);  m = beta2 * m + (1 - beta2) * g
//   ema      e = decay * e + (1 - decay) * w
// decay in all but ema: g += decay * w, or first w *= 1 - lr * decay (decoupled=1, and lion). Operands, clipping and
// groups: ops/update.h. `step` counts the updates applied before.
#include "ops/update.h"

#include <algorithm>
#include <cmath>

namespace situ::ops::defs {
namespace {

using Settings = UpdateSettings;
using Scalars = UpdateScalars;
using Element = UpdateElement;

void sgd_rule(const Settings& s, const Scalars& by, Element& x) {
  const double g = x.g + s.decay * x.w;
  const double m = s.momentum * x.slot[0] + g;
  const double step = s.nesterov ? g + s.momentum * m : m;
  x.w -= by.lr * step;
  x.slot[0] = m;
}

void adam_rule(const Settings& s, const Scalars& by, Element& x) {
  const double g = s.decoupled ? x.g : x.g + s.decay * x.w, t = by.step + 1;
  const double m = s.beta1 * x.slot[0] + (1 - s.beta1) * g, v = s.beta2 * x.slot[1] + (1 - s.beta2) * g * g;
  const double correction1 = 1 - std::pow(s.beta1, t), correction2 = 1 - std::pow(s.beta2, t);
  if (s.decoupled) x.w *= 1 - by.lr * s.decay;
  x = {x.w - by.lr * (m / correction1) / (std::sqrt(v / correction2) + s.eps), g, {m, v}};
}

// Slots: s, then m where there is a momentum, then a where it is centered. s - a^2 is a variance: at least 0.
void rmsprop_rule(const Settings& s, const Scalars& by, Element& x) {
  const int of_mean = s.momentum != 0 ? 2 : 1;
  const double g = x.g + s.decay * x.w;
  const double square = x.slot[0] = s.alpha * x.slot[0] + (1 - s.alpha) * g * g;
  double mean = 0;
  if (s.centered) mean = x.slot[of_mean] = s.alpha * x.slot[of_mean] + (1 - s.alpha) * g;
  double step = g / (std::sqrt(std::max(square - mean * mean, 0.0)) + s.eps);
  if (s.momentum != 0) step = x.slot[1] = s.momentum * x.slot[1] + step;
  x.w -= by.lr * step;
}

void adagrad_rule(const Settings& s, const Scalars& by, Element& x) {
  const double g = x.g + s.decay * x.w;
  x.slot[0] += g * g;
  x.w -= by.lr / (1 + by.step * s.lr_decay) * g / (std::sqrt(x.slot[0]) + s.eps);
}

void lion_rule(const Settings& s, const Scalars& by, Element& x) {
  const double towards = s.beta1 * x.slot[0] + (1 - s.beta1) * x.g;
  const double sign = towards > 0 ? 1 : towards < 0 ? -1 : towards;  // a NaN shows
  x.w = x.w * (1 - by.lr * s.decay) - by.lr * sign;
  x.slot[0] = s.beta2 * x.slot[0] + (1 - s.beta2) * x.g;
}

void ema_rule(const Settings& s, const Scalars&, Element& x) { x.w = s.decay * x.w + (1 - s.decay) * x.g; }

void need_share(const OpView& v, const char* name) {
  const double share = v.attrs.number(name);
  if (!(share >= 0 && share < 1)) fail("{} is {}: use at least 0 and less than 1", name, share);
}

Types sgd_type(const OpView& v) {
  need(v.attrs.number("momentum", 0) != 0 || !v.attrs.flag("nesterov"), "nesterov needs a momentum that is not 0");
  return update_types(v);
}
Types adam_type(const OpView& v) {
  for (const char* name : {"beta1", "beta2"}) need_share(v, name);
  need(v.attrs.number("eps") > 0, "eps must be larger than 0");
  return update_types(v);
}
Types rmsprop_type(const OpView& v) {
  need_share(v, "alpha");
  need(v.attrs.number("eps") > 0, "eps must be larger than 0");
  return update_types(v);
}
Types adagrad_type(const OpView& v) {
  need(v.attrs.number("eps") > 0, "eps must be larger than 0");
  need(v.attrs.number("lr_decay", 0) >= 0, "lr_decay must not be negative");
  return update_types(v);
}
Types lion_type(const OpView& v) {
  for (const char* name : {"beta1", "beta2"}) need_share(v, name);
  return update_types(v);
}
Types ema_type(const OpView& v) {
  need_share(v, "decay");
  need(!v.attrs.flag("clipped"), "an average is not clipped");
  return update_types(v);
}

Cost cost(const OpView& v) {
  const UpdateLayout layout = update_layout(v.op, v.attrs);
  double elements = 0, products = 0;
  for (int i = layout.scalars(); i < v.arity(); i += layout.each()) {
    elements += static_cast<double>(v.in(i).count());
    if (v.op.ends_with(kFactors))
      products += static_cast<double>(gradient_factors(v.in(i + 1), v.in(i)) * v.in(i).count());
  }
  const auto is = [&](std::string_view name) { return v.op.starts_with(name); };
  const double rule = is("adam") ? 12 : is("rmsprop") ? 8 : is("adagrad") ? 7 : 2;
  return {.flops = 2 * products +
                   elements * (rule + 2 * layout.slots + layout.clipped + (v.attrs.number("decay", 0) != 0 ? 2 : 0))};
}

constexpr std::string_view kSgd =
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
    "f32[]=0.2, f32[9], f32[9], f32[9], f32[2,3], f32[2,3], f32[2,3] {momentum=0.8};"
    "f32[]=0.2, f32[]=0.25, f32[9], f32[9], f32[2,33], f32[2,33] {clipped=1};"
    "f32[]=0.1, f32[]+, f32[17], f32[17], f32[17], f32[5], f32[5], f32[5] {momentum=0.9, decay=0.1, clipped=1, "
    "clip_value=0.5}; f32[]=0.1, f32[31], f32[31] {clip_value=0.3};"
    "f32[]=0.1, f32[3,3,4,8], f32[5,3,3,4,8], f32[3,3,4,8], f32[17], f32[17], f32[17], f32[1,33], f32[2,33], f32[1,33] "
    "{momentum=0.9}; f32[]=0.1, f32[]=0.25, f32[9,130], f32[3,9,130] {clipped=1, clip_value=0.4};"
    "f32[]=0.1, f32[]=0, f32[17], f32[17], f32[17], f32[5], f32[5], f32[5] {momentum=0.9, decay=0.1, clipped=1, "
    "guarded=1}; f32[]=0.1, f32[]=0.5, f32[17], f32[17] {clipped=1, guarded=1}";
constexpr std::string_view kAdam =
    "f32[]=0.01, f32[]=0, f32[7], f32[7], f32[7]=0, f32[7]=0 {beta1=0.9, beta2=0.999, eps=1.0e-8};"
    "f32[]=0.01, f32[]=3, f32[1], f32[1], f32[1], f32[1]+ {beta1=0.9, beta2=0.999, eps=1.0e-8, decay=0.1};"
    "f32[]=0.1, f32[]=100, f32[3,65], f32[3,65], f32[3,65], f32[3,65]+ {beta1=0.8, beta2=0.99, eps=0.001, decay=0.01, "
    "decoupled=1};"
    "f32[]=0.01, f32[]=9999, f32[], f32[], f32[], f32[]+ {beta1=0, beta2=0.9, eps=1.0e-6};"
    "f32[]=0.1, f32[]=1, f32[3,3,2,8], f32[3,3,2,8], f32[3,3,2,8], f32[3,3,2,8]+, f32[8], f32[8], f32[8], f32[8]+, "
    "f32[1], f32[1], f32[1], f32[1]+, f32[33,9], f32[33,9], f32[33,9], f32[33,9]+, f32[64], f32[64], f32[64], f32[64]+ "
    "{beta1=0.9, beta2=0.999, eps=1.0e-8, decay=0.05, decoupled=1};"
    "f32[]=0.1, f32[]=7, f32[17], f32[17], f32[17], f32[17]+, f32[1000], f32[1000], f32[1000], f32[1000]+ "
    "{beta1=0.9, beta2=0.999, eps=1.0e-8, decay=0.01};"
    "f32[]=0.1, f32[]=7, f32[]=0.125, f32[15], f32[15], f32[15], f32[15]+ {beta1=0.9, beta2=0.99, eps=1.0e-8, "
    "decay=0.01, clipped=1};"
    "f32[]=0.1, f32[]=2, f32[9,31], f32[4,9,31], f32[9,31], f32[9,31]+ {beta1=0.9, beta2=0.99, eps=1.0e-3};"
    "f32[]=0.1, f32[]=2, f32[33], f32[33], f32[33], f32[33]+ {beta1=0.9, beta2=0.99, eps=1.0e-8, clip_value=0.25};"
    "f32[]=0.1, f32[]=7, f32[]=0, f32[15], f32[15], f32[15], f32[15]+ {beta1=0.9, beta2=0.99, eps=1.0e-8, clipped=1, "
    "guarded=1}";
constexpr std::string_view kRmsprop =
    "f32[]=0.01, f32[7], f32[7], f32[7]=0 {alpha=0.99, eps=1.0e-8}; f32[]=0.01, f32[], f32[], f32[]+ {alpha=0.9, "
    "eps=0.001, decay=0.1};"
    "f32[]=0.1, f32[3,65], f32[3,65], f32[3,65]+, f32[3,65] {alpha=0.9, eps=1.0e-8, momentum=0.9};"
    "f32[]=0.1, f32[33], f32[33], f32[33]+, f32[33]*0.5 {alpha=0.99, eps=1.0e-8, centered=1};"
    "f32[]=0.1, f32[17], f32[17], f32[17]+, f32[17], f32[17]*0.5, f32[8,9], f32[8,9], f32[8,9]+, f32[8,9], "
    "f32[8,9]*0.5, f32[1], f32[1], f32[1]+, f32[1], f32[1]*0.5 {alpha=0.9, eps=1.0e-6, momentum=0.5, centered=1, "
    "decay=0.01};"
    "f32[]=0.1, f32[]=0.25, f32[31], f32[31], f32[31]+, f32[1000], f32[1000], f32[1000]+ {alpha=0.9, eps=1.0e-8, "
    "clipped=1, clip_value=0.125}; f32[]=0.1, f32[]=0, f32[17], f32[17], f32[17]+, f32[17], f32[17]*0.5 {alpha=0.9, "
    "eps=1.0e-6, momentum=0.5, centered=1, clipped=1, guarded=1}";
constexpr std::string_view kAdagrad =
    "f32[]=0.01, f32[]=0, f32[7], f32[7], f32[7]=0 {eps=1.0e-10}; f32[]=0.1, f32[]=3, f32[], f32[], f32[]+ "
    "{eps=1.0e-10, lr_decay=0.5, decay=0.1};"
    "f32[]=0.1, f32[]=100, f32[3,65], f32[3,65], f32[3,65]+, f32[64], f32[64], f32[64]+, f32[1], f32[1], f32[1]+ "
    "{eps=0.001, lr_decay=0.01};"
    "f32[]=0.1, f32[]=5, f32[]=0.5, f32[33], f32[33], f32[33]+, f32[15], f32[15], f32[15]+ {eps=1.0e-10, clipped=1};"
    "f32[]=0.1, f32[]=5, f32[9,17], f32[9,17], f32[9,17]+ {eps=1.0e-10, clip_value=0.25, decay=0.01};"
    "f32[]=0.1, f32[]=5, f32[]=0, f32[33], f32[33], f32[33]+ {eps=1.0e-10, clipped=1, guarded=1}";
constexpr std::string_view kLion =
    "f32[]=0.01, f32[7], f32[7], f32[7]=0 {beta1=0.9, beta2=0.99}; f32[]=0.1, f32[], f32[], f32[] {beta1=0.5, "
    "beta2=0.9, decay=0.1}; f32[]=0.1, f32[9], f32[9]=0, f32[9]=0 {beta1=0.9, beta2=0.99};"
    "f32[]=0.1, f32[3,65], f32[3,65], f32[3,65], f32[64], f32[64], f32[64], f32[1], f32[1], f32[1] {beta1=0.9, "
    "beta2=0.99, decay=0.5};"
    "f32[]=0.1, f32[]=0.5, f32[33], f32[33], f32[33], f32[1000], f32[1000], f32[1000] {beta1=0.5, beta2=0.8, "
    "clipped=1}; f32[]=0.1, f32[31], f32[31], f32[31] {beta1=0.5, beta2=0.8, clip_value=0.25};"
    "f32[]=0.1, f32[]=0, f32[33], f32[33], f32[33] {beta1=0.5, beta2=0.8, clipped=1, guarded=1}";
constexpr std::string_view kEma =
    "f32[7], f32[7] {decay=0.5}; f32[], f32[] {decay=0}; f32[3,65], f32[3,65], f32[64], f32[64], f32[1], f32[1], "
    "f32[1000], f32[1000], f32[9,31], f32[9,31] {decay=0.999}; f32[33], f32[33], f32[15], f32[15] {decay=0.9}";

// With a gradient's factors: whole vectors of columns and others, few rows and many, beside plain gradients and parts.
constexpr std::string_view kSgdFactors =
    "f32[]=0.1, f32[9,33], f32[4,42], f32[9,33], f32[33], f32[4,33], f32[33] {momentum=0.9, decay=0.01};"
    "f32[]=0.1, f32[9,33], f32[4,42], f32[33], f32[4,42], f32[7], f32[3,7] {decay=0.01};"
    "f32[]=0.1, f32[6,64], f32[1,70], f32[3], f32[3] {clip_value=0.3}; f32[]=0.1, f32[]=0.25, f32[13,2100], "
    "f32[3,2113] "
    "{clipped=1}; f32[]=0.1, f32[]=0, f32[5,7], f32[2,12] {clipped=1, guarded=1};"
    "f32[]=0.1, f32[40,100], f32[16,140], f32[40,100] {momentum=0.9, nesterov=1}; f32[]=0.1, f32[2,2], f32[3,4]";
constexpr std::string_view kAdamFactors =
    "f32[]=0.1, f32[]=7, f32[17,40], f32[5,57], f32[17,40], f32[17,40]+, f32[9], f32[9], f32[9], f32[9]+ {beta1=0.9, "
    "beta2=0.999, eps=1.0e-3, decay=0.01, decoupled=1}";
constexpr std::string_view kRmspropFactors =
    "f32[]=0.1, f32[17,40], f32[5,57], f32[17,40]+, f32[17,40], f32[17,40]*0.5 {alpha=0.9, eps=1.0e-2, momentum=0.5, "
    "centered=1, decay=0.01}";
constexpr std::string_view kAdagradFactors =
    "f32[]=0.1, f32[]=5, f32[17,40], f32[5,57], f32[17,40]+ {eps=1.0e-3, lr_decay=0.1}";
constexpr std::string_view kLionFactors =
    "f32[]=0.1, f32[17,40], f32[5,57], f32[17,40] {beta1=0.5, beta2=0.8, decay=0.5}";

constexpr char kSgdName[] = "sgd", kAdamName[] = "adam", kRmspropName[] = "rmsprop", kAdagradName[] = "adagrad",
               kLionName[] = "lion", kEmaName[] = "ema";

constexpr char kSgdFactorsName[] = "sgd_factors", kAdamFactorsName[] = "adam_factors",
               kRmspropFactorsName[] = "rmsprop_factors", kAdagradFactorsName[] = "adagrad_factors",
               kLionFactorsName[] = "lion_factors";

// For devices whose updates multiply no factors: the product, then the plain update.
template <const char* name>
Values multiply_first(Graph& graph, const Values& in, const Attrs& attrs) {
  constexpr std::string_view with = name;
  const UpdateLayout layout = update_layout(name, attrs);
  Values inputs = in;
  for (auto i = static_cast<size_t>(layout.scalars()); i < in.size(); i += static_cast<size_t>(layout.each())) {
    const Type w = graph.type(in[i]);
    if (gradient_factors(graph.type(in[i + 1]), w) == 0) continue;
    const int64_t n = w.shape.cols(), k = graph.type(in[i + 1]).shape[1] - n;
    const Values factors = emit_all(graph, "split", {in[i + 1]}, {{"axis", int64_t{1}}, {"sizes", Ints{k, n}}});
    inputs[i + 1] = w.shape.rank() == 1 ? factors[1] : emit(graph, "matmul", factors, {{"ta", int64_t{1}}});
  }
  return emit_all(graph, with.substr(0, with.size() - kFactors.size()), inputs, attrs);
}

template <const char* name, UpdateRule rule>
constexpr OpDef update_op(std::string_view signature, Types (*type)(const OpView&), std::string_view examples) {
  return {.name = name,
          .signature = signature,
          .type = type,
          .cost = cost,
          .reference = [](const RefCall& c) { update_reference(c, update_layout(name, c.attrs), rule); },
          .magnitude = [](const RefCall& c) { update_magnitude(c, update_layout(name, c.attrs), rule); },
          .aliases = update_aliases,
          .examples = examples,
          .dense = true};
}
template <const char* name, UpdateRule rule>
constexpr OpDef factors_op(Types (*type)(const OpView&), std::string_view examples) {
  OpDef op = update_op<name, rule>(
      "(scalars: float..., w: float, g: float, slots: float, ...) -> w, slots, ...; g may be f32[B, K + N] for w "
      "f32[K, N]",
      type, examples);
  op.expand = multiply_first<name>;
  return op;
}

}  // namespace

OpList update() {
  static constexpr OpDef defs[] = {
      update_op<kSgdName, sgd_rule>("(lr: float, [factor: float], w: float, g: float, [m: float], ...) -> w, [m], ...",
                                    sgd_type, kSgd),
      update_op<kAdamName, adam_rule>(
          "(lr: float, step: float, [factor: float], w: float, g: float, m: float, v: float, ...) -> w, m, v, ...",
          adam_type, kAdam),
      update_op<kRmspropName, rmsprop_rule>(
          "(lr: float, [factor: float], w: float, g: float, s: float, [m: float], [a: float], ...) -> w, s, [m], [a], "
          "...",
          rmsprop_type, kRmsprop),
      update_op<kAdagradName, adagrad_rule>(
          "(lr: float, step: float, [factor: float], w: float, g: float, s: float, ...) -> w, s, ...", adagrad_type,
          kAdagrad),
      update_op<kLionName, lion_rule>("(lr: float, [factor: float], w: float, g: float, m: float, ...) -> w, m, ...",
                                      lion_type, kLion),
      update_op<kEmaName, ema_rule>("(e: float, w: float, ...) -> e, ...", ema_type, kEma),
      factors_op<kSgdFactorsName, sgd_rule>(sgd_type, kSgdFactors),
      factors_op<kAdamFactorsName, adam_rule>(adam_type, kAdamFactors),
      factors_op<kRmspropFactorsName, rmsprop_rule>(rmsprop_type, kRmspropFactors),
      factors_op<kAdagradFactorsName, adagrad_rule>(adagrad_type, kAdagradFactors),
      factors_op<kLionFactorsName, lion_rule>(lion_type, kLionFactors)};
  return defs;
}
}  // namespace situ::ops::defs
