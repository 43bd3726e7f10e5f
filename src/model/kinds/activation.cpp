// activation.cpp -- one function per element, and dropout.
#include "base/error.h"
#include "model/kind.h"

namespace situ::model::kinds {
namespace {

using ir::Attrs;
using ir::Value;
using ir::Values;

// Kinds that are one op without attributes have its name.
Value build_op(Build& b, const LayerSpec& spec, const Values& in) { return b.emit(spec.kind, in); }

Value build_leaky(Build& b, const LayerSpec& spec, const Values& in) {
  return b.emit("leaky_relu", {in[0], b.constant(spec.attrs.number("slope"))});
}
Value build_elu(Build& b, const LayerSpec& spec, const Values& in) {
  return b.emit("elu", {in[0], b.constant(spec.attrs.number("alpha"))});
}
Value build_dropout(Build& b, const LayerSpec& spec, const Values& in) {
  const double p = spec.attrs.number("p");
  if (!(p >= 0 && p < 1)) fail("p is the share that is dropped, from 0 to below 1, not {}", p);
  return b.dropout(spec.name, in[0], p);
}

Attrs leaky_defaults() { return {{"slope", 0.01}}; }
Attrs elu_defaults() { return {{"alpha", 1.0}}; }
Attrs dropout_defaults() { return {{"p", 0.5}}; }

}  // namespace

KindList activation() {
  static constexpr Kind list[] = {
      {"relu", "max(x, 0)", 1, 1, "", nullptr, build_op},
      {"relu6", "min(max(x, 0), 6)", 1, 1, "", nullptr, build_op},
      {"leaky_relu", "x, or slope * x below 0", 1, 1, "", leaky_defaults, build_leaky},
      {"elu", "x, or alpha * (exp x - 1) below 0", 1, 1, "", elu_defaults, build_elu},
      {"sigmoid", "1 / (1 + exp -x)", 1, 1, "", nullptr, build_op},
      {"tanh", "tanh x", 1, 1, "", nullptr, build_op},
      {"gelu", "x * normal distribution(x), exact", 1, 1, "", nullptr, build_op},
      {"gelu_tanh", "gelu by the tanh formula", 1, 1, "", nullptr, build_op},
      {"silu", "x * sigmoid(x)", 1, 1, "", nullptr, build_op},
      {"hard_swish", "x * relu6(x + 3) / 6", 1, 1, "", nullptr, build_op},
      {"hard_sigmoid", "relu6(x + 3) / 6", 1, 1, "", nullptr, build_op},
      {"softplus", "log(1 + exp x)", 1, 1, "", nullptr, build_op},
      {"softmax", "over the last axis", 1, 1, "", nullptr, build_op},
      {"dropout", "drops a share p while training", 1, 1, "", dropout_defaults, build_dropout}};
  return list;
}
}  // namespace situ::model::kinds
