// norm.cpp -- normalisation layers. A batch norm whose parameters are trained uses the statistics of the batch and
// keeps running ones, and goes into the weights of a 1x1 convolution of a narrow image; otherwise it is an affine map,
// and goes into the weights of any convolution before it.
#include "base/error.h"
#include "model/kind.h"
#include "ops/window.h"

namespace situ::model::kinds {
namespace {

using ir::Attrs;
using ir::Value;
using ir::Values;

// A batch norm behind a 1x1 convolution takes its statistics from the convolution's image if that has at most so many
// channels, the result so many times more, and the image so many pixels per channel.
constexpr int64_t kMostNarrow = 64, kWider = 4, kPixelsPerChannel = 16;

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

// Whether x comes from a 1x1 convolution that meets each pixel of a narrow image once, and there are many more pixels
// than channels: the statistics of x's channels follow from those of the image, and cost less than a look at x.
// Backward it needs the gradient of the weights, so they must be trained anyway.
bool from_narrow_image(Build& b, Value x) {
  const ir::Node& conv = b.graph().producer(x);
  if (conv.op != "conv2d" || conv.inputs.size() != 2) return false;
  const ir::Node& weight = b.graph().producer(conv.inputs[1]);
  if (weight.op != "read" || !b.trains(weight.attrs.text("state"))) return false;
  const Shape image = b.shape(conv.inputs[0]), w = b.shape(conv.inputs[1]);
  if (!ops::is_pointwise(ops::window_of(conv.attrs, {image[1], image[2]}, {w[0], w[1]}))) return false;
  const int64_t channels = image.cols();
  return w[2] == channels && channels <= kMostNarrow && w.cols() >= kWider * channels &&
         image.rows() >= kPixelsPerChannel * channels;
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
  const auto keep = [&](Value batch_mean, Value batch_var) {
    keep_running(b, mean_name, mean, batch_mean, momentum);
    keep_running(b, var_name, var, batch_var, momentum);
  };
  if (from_narrow_image(b, in[0])) {
    const ir::Node conv = b.graph().producer(in[0]);
    const Values image = b.emit_all("covariance", {conv.inputs[0]});
    const Values n = b.emit_all("norm_weights", {image[0], image[1], conv.inputs[1], a.gamma, a.beta},
                                {{"eps", eps}, {"rows", count}});
    keep(n[2], n[3]);
    return b.emit("bias", {b.emit("conv2d", {conv.inputs[0], n[0]}, conv.attrs), n[1]});
  }
  const Values y = b.emit_all("batch_norm", {in[0], a.gamma, a.beta}, {{"eps", eps}});
  keep(y[1], y[2]);
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
