#include "ops/update.h"

#include <algorithm>
#include <cmath>

namespace situ::ops {
namespace {

constexpr std::string_view kUpdates[] = {"sgd", "adam", "rmsprop", "adagrad", "lion", "ema"};

std::string_view without_factors(std::string_view op) {
  return op.ends_with(kFactors) ? op.substr(0, op.size() - kFactors.size()) : op;
}
constexpr int kMostOperands = 2 + 2 + kMostSlots;  // lr, factor, w, g, slots: what is rounded

double clipped(const UpdateSettings& s, double g) {
  return s.clip_value > 0 ? std::clamp(g, -s.clip_value, s.clip_value) : g;
}

struct Sum {
  double value = 0, size = 0;  // of the terms, and of what they amount to without their signs
};
Sum sum_of_terms(const RefTensor& gradient, const Type& parameter, int64_t element) {
  Sum sum;
  const auto add = [&](double term) {
    sum.value += term;
    sum.size += std::fabs(term);
  };
  const int64_t count = parameter.count(), width = gradient.shape().cols();
  if (const int64_t rows = gradient_factors(gradient.type, parameter)) {
    const int64_t n = parameter.shape.cols(), k = element / n;
    const bool bias = parameter.shape.rank() == 1;
    for (int64_t b = 0; b < rows; ++b)
      add((bias ? 1 : gradient[b * width + k]) * gradient[b * width + width - n + element % n]);
    return sum;
  }
  for (int64_t e = element; e < gradient.count(); e += count) add(gradient[e]);
  return sum;
}

// Visits every element: its operands as {lr, factor, w, g, slots...}, the size of the terms of g, and where its results
// belong.
template <typename Visit>
void each_element(const RefCall& c, const UpdateLayout& layout, Visit visit) {
  size_t next = 0;
  UpdateScalars scalars;
  if (layout.lr) scalars.lr = c.in[next++][0];
  if (layout.step) scalars.step = c.in[next++][0];
  if (layout.clipped) scalars.factor = c.in[next++][0];
  const auto each = static_cast<size_t>(layout.each()), results = static_cast<size_t>(layout.results());
  for (size_t i = next, out = 0; i < c.in.size(); i += each, out += results)
    for (int64_t e = 0; e < c.in[i].count(); ++e) {
      double operands[kMostOperands] = {scalars.lr, scalars.factor};
      const Sum g = sum_of_terms(c.in[i + 1], c.in[i].type, e);
      for (size_t k = 0; k < each; ++k) operands[2 + k] = k == 1 ? g.value : c.in[i + k][e];
      double y[1 + kMostSlots];
      visit(operands, scalars.step, g.size, y);
      for (size_t k = 0; k < results; ++k) c.out[out + k][e] = y[k];
    }
}

void apply(UpdateRule rule, const UpdateSettings& settings, const double* operands, double step, double* y) {
  if (settings.guarded && operands[1] == 0) {
    y[0] = operands[2];
    std::copy_n(operands + 4, kMostSlots, y + 1);
    return;
  }
  UpdateElement x{operands[2], clipped(settings, operands[3] * operands[1]), {}};
  std::copy_n(operands + 4, kMostSlots, x.slot);
  rule(settings, {operands[0], step, operands[1]}, x);
  y[0] = x.w;
  std::copy_n(x.slot, kMostSlots, y + 1);
}

}  // namespace

int64_t gradient_parts(const Type& gradient, const Type& parameter) {
  if (gradient == parameter) return 1;
  if (gradient.dtype != parameter.dtype) return 0;
  int64_t parts = 1;
  for (int64_t extent : gradient.shape.dims())  // axes so far number the parts, those behind are a part
    if ((parts *= extent) * parameter.count() == gradient.count()) return parts;
  return 0;
}

int64_t gradient_factors(const Type& gradient, const Type& parameter) {
  const Shape &f = gradient.shape, &w = parameter.shape;
  const bool fits = gradient.dtype == parameter.dtype && f.rank() == 2 &&
                    (w.rank() == 2 ? f[1] == w[0] + w[1] : w.rank() == 1 && f[1] > w[0]);
  return fits && gradient_parts(gradient, parameter) == 0 ? f[0] : 0;
}

bool is_update(std::string_view op) { return std::ranges::find(kUpdates, without_factors(op)) != std::end(kUpdates); }

UpdateLayout update_layout(std::string_view name, const Attrs& attrs) {
  const UpdateSettings s(attrs);
  const std::string_view op = without_factors(name);
  UpdateLayout layout;
  layout.lr = op != "ema";
  layout.step = op == "adam" || op == "adagrad";
  layout.clipped = attrs.flag("clipped");
  if (op == "sgd") layout.slots = s.momentum != 0;
  if (op == "adam") layout.slots = 2;
  if (op == "rmsprop") layout.slots = 1 + (s.momentum != 0) + s.centered;
  if (op == "adagrad" || op == "lion") layout.slots = 1;
  return layout;
}

UpdateSettings::UpdateSettings(const Attrs& attrs)
    : momentum(attrs.number("momentum", 0)),
      decay(attrs.number("decay", 0)),
      beta1(attrs.number("beta1", 0)),
      beta2(attrs.number("beta2", 0)),
      alpha(attrs.number("alpha", 0)),
      eps(attrs.number("eps", 0)),
      lr_decay(attrs.number("lr_decay", 0)),
      clip_value(attrs.number("clip_value", 0)),
      nesterov(attrs.flag("nesterov")),
      decoupled(attrs.flag("decoupled")),
      centered(attrs.flag("centered")),
      guarded(attrs.flag("guarded")) {}

Types update_types(const OpView& v) {
  const UpdateLayout layout = update_layout(v.op, v.attrs);
  for (int i = 0; i < layout.scalars(); ++i)
    need(v.arity() > i && v.in(i) == f32({}), "lr, step and the clipping factor must be f32[]");
  if (v.arity() == layout.scalars() || (v.arity() - layout.scalars()) % layout.each())
    fail("after {} scalars come {} operands for each parameter: w, g and {} slots", layout.scalars(), layout.each(),
         layout.slots);
  need(!v.attrs.flag("guarded") || layout.clipped, "guarded needs the factor that says so: clipped=1");
  need(v.attrs.number("clip_value", 0) >= 0, "clip_value must not be negative");
  Types outs;
  for (int i = layout.scalars(); i < v.arity(); i += layout.each()) {
    const Type& w = v.in(i);
    need(w.dtype == DType::f32, "parameters must be f32");
    const auto is_gradient = [&](const Type& g) {
      return gradient_parts(g, w) > 0 || (v.op.ends_with(kFactors) && gradient_factors(g, w) > 0);
    };
    for (int k = 1; k < layout.each(); ++k)
      if (k == 1 && v.op != "ema" ? !is_gradient(v.in(i + 1)) : v.in(i + k) != w)
        fail("gradient and slots must be {} as the parameter is, not {}", to_string(w), to_string(v.in(i + k)));
    outs.insert(outs.end(), static_cast<size_t>(layout.results()), w);
  }
  return outs;
}

std::vector<Alias> update_aliases(const OpView& v) {
  const UpdateLayout layout = update_layout(v.op, v.attrs);
  std::vector<Alias> list;
  for (int i = layout.scalars(), out = 0; i < v.arity(); i += layout.each()) {
    list.push_back({out++, i});
    for (int k = 0; k < layout.slots; ++k) list.push_back({out++, i + 2 + k});
  }
  return list;
}

void update_reference(const RefCall& call, const UpdateLayout& layout, UpdateRule rule) {
  const UpdateSettings settings(call.attrs);
  each_element(call, layout, [&](const double* operands, double step, double, double* y) {
    apply(rule, settings, operands, step, y);
  });
}

void update_magnitude(const RefCall& call, const UpdateLayout& layout, UpdateRule rule) {
  constexpr double kNudge = 0x1p-20;  // as in magnitude.cpp
  const UpdateSettings settings(call.attrs);
  each_element(call, layout, [&](double* operands, double step, double gradient_size, double* y) {
    double exact[1 + kMostSlots], moved[1 + kMostSlots];
    apply(rule, settings, operands, step, exact);
    for (int k = 0; k <= kMostSlots; ++k) y[k] = std::fabs(exact[k]);
    for (int i = 0; i < kMostOperands; ++i) {
      const double kept = operands[i];
      double change[1 + kMostSlots] = {};
      for (double nudge : {-kNudge, kNudge}) {
        operands[i] = i == 3 ? kept + gradient_size * nudge : kept * (1 + nudge);
        apply(rule, settings, operands, step, moved);
        for (int k = 0; k <= kMostSlots; ++k) change[k] = std::max(change[k], std::fabs(moved[k] - exact[k]));
      }
      operands[i] = kept;
      for (int k = 0; k <= kMostSlots; ++k) y[k] += change[k] / kNudge;
    }
  });
}

}  // namespace situ::ops
