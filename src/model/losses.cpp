#include "model/losses.h"

#include "base/error.h"
#include "ops/op.h"

namespace situ::model {
namespace {

using ir::Value;

// Ops over one graph, by name.
class Builder {
 public:
  explicit Builder(ir::Graph& graph) : graph_(graph) {}
  Value operator()(std::string_view op, const ir::Values& inputs, const ir::Attrs& attrs = {}) {
    return ops::emit(graph_, op, inputs, attrs);
  }
  Value number(double value) { return graph_.constant(value, f32({})); }
  Value scaled(Value x, double by) { return (*this)("mul", {x, number(by)}); }
  Value reduced(std::string_view kind, Value x, const ir::Ints& axes, bool keep = false) {
    ir::Attrs attrs{{"kind", std::string(kind)}, {"axes", axes}};
    if (keep) attrs.set("keep", int64_t{1});
    return (*this)("reduce", {x}, attrs);
  }
  Value reshaped(Value x, const ir::Ints& shape) { return (*this)("reshape", {x}, {{"shape", shape}}); }
  const Shape& shape(Value x) const { return graph_.type(x).shape; }

  // The mean over all axes but the first.
  Value per_sample(Value x) {
    ir::Ints axes;
    for (int i = 1; i < shape(x).rank(); ++i) axes.push_back(i);
    return axes.empty() ? x : reduced("mean", x, axes);
  }
  Value weighted(Value loss, const Samples& s) { return (*this)("mul", {loss, (*this)("mul", {s.weight, s.scale})}); }

  // x / |x| for each row; a row of zeros stays zeros.
  Value normalised(Value x) {
    const Value squares = reduced("sum", (*this)("square", {x}), {1}, true);
    return (*this)("mul", {x, (*this)("rsqrt", {(*this)("max", {squares, number(1e-24)})})});
  }
  // log sum exp along an axis of a matrix.
  Value log_sum_exp(Value x, int64_t axis) {
    const Value top = reduced("max", x, {axis}, true);
    const Value sum = reduced("sum", (*this)("exp", {(*this)("sub", {x, top})}), {axis});
    return (*this)("add", {(*this)("log", {sum}), reshaped(top, {shape(sum)[0]})});
  }

 private:
  ir::Graph& graph_;
};

void need_alike(const Builder& b, Value x, Value t, const char* what) {
  if (b.shape(x) != b.shape(t) || b.shape(x).rank() < 1)
    fail("{} needs two tensors of one shape [N,...], not {} and {}", what, to_string(b.shape(x)),
         to_string(b.shape(t)));
}

}  // namespace

Loss::Kind parse_loss(std::string_view name) {
  for (auto kind : {Loss::cross_entropy, Loss::mse, Loss::l1, Loss::huber, Loss::bce})
    if (name == name_of(kind)) return kind;
  fail("there is no loss `{}`: use cross-entropy, mse, l1, huber or bce", name);
}

std::string_view name_of(Loss::Kind kind) {
  switch (kind) {
    case Loss::cross_entropy:
      return "cross-entropy";
    case Loss::mse:
      return "mse";
    case Loss::l1:
      return "l1";
    case Loss::huber:
      return "huber";
    case Loss::bce:
      return "bce";
  }
  return "";
}

Value loss_of(ir::Graph& graph, const Loss& loss, Value outputs, Value labels, const Samples& s) {
  switch (loss.kind) {
    case Loss::cross_entropy:
      return cross_entropy(graph, outputs, labels, s, loss.smoothing);
    case Loss::mse:
      return mse(graph, outputs, labels, s);
    case Loss::l1:
      return l1(graph, outputs, labels, s);
    case Loss::huber:
      return huber(graph, outputs, labels, loss.delta, s);
    case Loss::bce:
      return bce_with_logits(graph, outputs, labels, s);
  }
  return ir::kNoValue;
}

Value cross_entropy(ir::Graph& graph, Value logits, Value labels, const Samples& s, double smoothing) {
  ir::Attrs attrs;
  if (smoothing != 0) attrs.set("smoothing", smoothing);
  return ops::emit_all(graph, "softmax_xent", {logits, labels, s.weight, s.scale}, attrs)[0];
}

Value soft_cross_entropy(ir::Graph& graph, Value logits, Value probabilities, const Samples& s) {
  return ops::emit_all(graph, "softmax_soft_xent", {logits, probabilities, s.weight, s.scale})[0];
}

// max(x, 0) - x t + log(1 + exp(-|x|)). The exponent is min(x, -x), whose slope at 0 is 1: the three slopes then add up
// to sigmoid(x) - t there too, where freshly started networks are.
Value bce_with_logits(ir::Graph& graph, Value x, Value t, const Samples& s) {
  Builder b(graph);
  need_alike(b, x, t, "bce_with_logits");
  const Value small = b("exp", {b("min", {x, b("neg", {x})})});
  const Value rest = b("log", {b("add", {small, b.number(1)})});
  const Value each = b("add", {b("sub", {b("relu", {x}), b("mul", {x, t})}), rest});
  return b.weighted(b.per_sample(each), s);
}

Value mse(ir::Graph& graph, Value x, Value t, const Samples& s) {
  Builder b(graph);
  need_alike(b, x, t, "mse");
  return b.weighted(b.per_sample(b("square", {b("sub", {x, t})})), s);
}

Value l1(ir::Graph& graph, Value x, Value t, const Samples& s) {
  Builder b(graph);
  need_alike(b, x, t, "l1");
  return b.weighted(b.per_sample(b("abs", {b("sub", {x, t})})), s);
}

// With q = min(|e|, delta): q (|e| - q / 2) is e^2 / 2 inside and delta (|e| - delta / 2) outside.
Value huber(ir::Graph& graph, Value x, Value t, double delta, const Samples& s) {
  if (!(delta > 0)) fail("huber: delta is {}, it must be larger than 0", delta);
  Builder b(graph);
  need_alike(b, x, t, "huber");
  const Value size = b("abs", {b("sub", {x, t})});
  const Value q = b("min", {size, b.number(delta)});
  return b.weighted(b.per_sample(b("mul", {q, b("sub", {size, b.scaled(q, 0.5)})})), s);
}

Value info_nce(ir::Graph& graph, Value a, Value c, double temperature, const Samples& s) {
  if (!(temperature > 0)) fail("info_nce: the temperature is {}, it must be larger than 0", temperature);
  Builder b(graph);
  need_alike(b, a, c, "info_nce");
  if (b.shape(a).rank() != 2) fail("info_nce needs matrices [N,D], not {}", to_string(b.shape(a)));
  const int64_t n = b.shape(a)[0];
  const Value left = b.normalised(a), right = b.normalised(c);
  const Value alike = b.scaled(b("matmul", {left, right}, {{"tb", int64_t{1}}}), 1 / temperature);
  const Value own = b.scaled(b.reduced("sum", b("mul", {left, right}), {1}), 1 / temperature);
  const Value nothing = b.number(-1e30);  // padding rows are nobody's opposites
  const Value by_row = b("select", {b.reshaped(s.weight, {1, n}), alike, nothing});
  const Value by_column = b("select", {b.reshaped(s.weight, {n, 1}), alike, nothing});
  const Value both = b("add", {b.log_sum_exp(by_row, 1), b.log_sum_exp(by_column, 0)});
  return b.weighted(b("sub", {b.scaled(both, 0.5), own}), s);
}

// KL(p || q) = cross entropy of q under p minus the entropy of p, which is p's cross entropy with itself: computed by
// the same op, so that equal logits give exactly 0.
Value distillation(ir::Graph& graph, Value student, Value teacher, double temperature, const Samples& s) {
  if (!(temperature > 0)) fail("distillation: the temperature is {}, it must be larger than 0", temperature);
  Builder b(graph);
  need_alike(b, student, teacher, "distillation");
  const Value cool = b.scaled(teacher, 1 / temperature), p = b("softmax", {cool});
  const Samples warm{s.weight, b.scaled(s.scale, temperature * temperature)};
  const Value cross = soft_cross_entropy(graph, b.scaled(student, 1 / temperature), p, warm);
  return b("sub", {cross, soft_cross_entropy(graph, cool, p, warm)});
}

}  // namespace situ::model
