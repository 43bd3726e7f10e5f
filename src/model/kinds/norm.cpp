// norm.cpp -- normalisation layers. A batch norm whose parameters are trained uses the statistics of the batch and
// keeps running ones; otherwise it is an affine map, and goes into the weights of a convolution before it.
#include "base/error.h"
#include "model/kind.h"

namespace situ::model::kinds {
namespace {

using ir::Attrs;
using ir::Value;
using ir::Values;

struct Affine {
  Value gamma, beta;
};
Affine affine(Build& b, const LayerSpec& spec, int64_t channels) {
  return {b.parameter(spec.name + ".weight", Shape{channels}, {"ones", 0}),
          b.parameter(spec.name + ".bias", Shape{channels}, {"zeros", 0})};
}

// running = (1 - momentum) * running + momentum * fresh
void keep_running(Build& b, const std::string& name, Value running, Value fresh, double momentum) {
  b.graph().write(name, b.emit("ema", {running, fresh}, {{"decay", 1 - momentum}}));
}

// y = x * scale + shift with running statistics. conv(x, w) * scale = conv(x, w * scale): the product depends on
// states alone, so it is made once and not in every run.
Value frozen(Build& b, Value x, const Affine& a, Value mean, Value var, double eps) {
  const Value rstd = b.emit("rsqrt", {b.emit("add", {var, b.constant(eps)})});
  const Value scale = b.emit("mul", {a.gamma, rstd});
  const Value shift = b.emit("sub", {a.beta, b.emit("mul", {mean, scale})});
  const ir::Node producer = b.graph().producer(x);  // a copy: the graph grows
  if (producer.op == "conv2d" && producer.inputs.size() == 2) {
    const Value weight = b.emit("mul", {producer.inputs[1], scale});
    return b.emit("bias", {b.emit("conv2d", {producer.inputs[0], weight}, producer.attrs), shift});
  }
  return b.emit("add", {b.emit("mul", {x, scale}), shift});
}

Value build_batch_norm(Build& b, const LayerSpec& spec, const Values& in) {
  const Shape s = b.shape(in[0]);
  const int64_t channels = s.cols(), count = s.rows();
  const double eps = spec.attrs.number("eps"), momentum = spec.attrs.number("momentum");
  const Affine a = affine(b, spec, channels);
  const std::string mean_name = spec.name + ".running_mean", var_name = spec.name + ".running_var";
  const Value mean = b.statistic(mean_name, Shape{channels}, {"zeros", 0});
  const Value var = b.statistic(var_name, Shape{channels}, {"ones", 0});
  const bool fresh = b.training() && (b.trains(spec.name + ".weight") || b.trains(spec.name + ".bias"));
  if (!fresh) return frozen(b, in[0], a, mean, var, eps);
  if (count < 2) fail("statistics need at least two elements per channel: use a larger batch");
  const Values y = b.emit_all("batch_norm", {in[0], a.gamma, a.beta}, {{"eps", eps}});
  keep_running(b, mean_name, mean, y[1], momentum);
  keep_running(b, var_name, var, y[2], momentum);
  return y[0];
}

Value build_layer_norm(Build& b, const LayerSpec& spec, const Values& in) {
  const Affine a = affine(b, spec, b.shape(in[0]).cols());
  return b.emit_all("layer_norm", {in[0], a.gamma, a.beta}, {{"eps", spec.attrs.number("eps")}})[0];
}

Value build_rms_norm(Build& b, const LayerSpec& spec, const Values& in) {
  const Value gamma = b.parameter(spec.name + ".weight", Shape{b.shape(in[0]).cols()}, {"ones", 0});
  return b.emit_all("rms_norm", {in[0], gamma}, {{"eps", spec.attrs.number("eps")}})[0];
}

Value build_group_norm(Build& b, const LayerSpec& spec, const Values& in) {
  const Affine a = affine(b, spec, b.shape(in[0]).cols());
  return b.emit_all("group_norm", {in[0], a.gamma, a.beta},
                    {{"groups", spec.attrs.integer("groups")}, {"eps", spec.attrs.number("eps")}})[0];
}

Attrs batch_defaults() { return {{"eps", 1e-5}, {"momentum", 0.1}}; }
Attrs row_defaults() { return {{"eps", 1e-5}}; }
Attrs rms_defaults() { return {{"eps", 1e-6}}; }

}  // namespace

KindList norm() {
  static constexpr Kind list[] = {
      {"batch_norm", "normalises channels over the batch", 1, 1, "", batch_defaults, build_batch_norm},
      {"layer_norm", "normalises each row", 1, 1, "", row_defaults, build_layer_norm},
      {"rms_norm", "divides each row by its root mean square", 1, 1, "", rms_defaults, build_rms_norm},
      {"group_norm", "normalises groups of channels per sample", 1, 1, "groups", row_defaults, build_group_norm}};
  return list;
}
}  // namespace situ::model::kinds
