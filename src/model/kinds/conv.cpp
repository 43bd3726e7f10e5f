// conv.cpp -- convolutions over images [N,H,W,C] and sequences [N,T,C], and transposed ones.
#include <cmath>

#include "base/error.h"
#include "model/kind.h"

namespace situ::model::kinds {
namespace {

using ir::Attrs;
using ir::Ints;
using ir::Value;
using ir::Values;

// A sequence is an image of height 1.
struct Image {
  Value x;
  bool sequence;
  Ints kernel, stride, pad, dilation;
};

Image image_of(Build& b, Value x, const Attrs& attrs) {
  const Shape& s = b.shape(x);
  const bool sequence = s.rank() == 3;
  if (s.rank() != 4 && !sequence) fail("it needs images [H,W,C] or sequences [T,C], not {}", to_string(s));
  Image image{x, sequence, pair_of(attrs, "kernel"), pair_of(attrs, "stride"), padding_of(attrs), {1, 1}};
  if (attrs.has("dilation")) image.dilation = pair_of(attrs, "dilation");
  if (sequence) {
    image.x = b.reshape(x, {s[0], 1, s[1], s[2]});
    image.kernel[0] = image.stride[0] = image.dilation[0] = 1;
    image.pad[0] = image.pad[2] = 0;
  }
  return image;
}

Value back(Build& b, const Image& image, Value y) {
  const Shape& s = b.shape(y);
  return image.sequence ? b.reshape(y, {s[0], s[2], s[3]}) : y;
}

// Ours is [kh, kw, in, out]; files hold [out, in, kh, kw], transposed convolutions [in, out, kh, kw].
Attrs file_order(const Image& image, int64_t in, int64_t out, bool transposed) {
  const int64_t kh = image.kernel[0], kw = image.kernel[1];
  Ints file = transposed ? Ints{in, out} : Ints{out, in};
  if (!image.sequence) file.push_back(kh);
  file.push_back(kw);
  return {{"factors", transposed ? Ints{kh, kw, out, in} : Ints{kh, kw, in, out}},
          {"perm", Ints{3, 2, 0, 1}},
          {"file", file}};
}

Value with_bias(Build& b, const LayerSpec& spec, Value y, int64_t channels, int64_t fan_in) {
  if (!spec.attrs.flag("bias")) return y;
  return b.emit("bias", {y, b.parameter(spec.name + ".bias", Shape{channels}, bias_init(spec.attrs, fan_in))});
}

// Low-rank matrices beside a 1x1 convolution: y + alpha / rank * (x A) B.
Value with_lora(Build& b, const LayerSpec& spec, const Image& image, Value y, int64_t in, int64_t out) {
  const bool pointwise = image.kernel == Ints{1, 1} && spec.attrs.integer("groups") == 1;
  if (!pointwise || !b.partial().adapts(spec.name)) return y;
  const LoraMatrices low = b.lora(spec.name, in, out, {1, 1});
  const Value narrow = b.emit("conv2d", {image.x, low.a}, {{"stride", image.stride}, {"pad", image.pad}});
  return b.emit("add", {y, b.emit("conv2d", {b.emit("mul", {narrow, b.constant(low.scale)}), low.b})});
}

Value build_conv(Build& b, const LayerSpec& spec, const Values& in) {
  const Attrs& a = spec.attrs;
  const Image image = image_of(b, in[0], a);
  const int64_t inputs = b.shape(image.x)[3], channels = a.integer("channels"), groups = a.integer("groups");
  if (groups < 1 || inputs % groups || channels % groups)
    fail("{} groups do not divide {} input and {} output channels", groups, inputs, channels);
  const int64_t taps = image.kernel[0] * image.kernel[1], fan_in = inputs / groups * taps;
  const Value weight = b.parameter(
      spec.name + ".weight", Shape{image.kernel[0], image.kernel[1], inputs / groups, channels},
      weight_init(a, fan_in, channels * taps / groups), file_order(image, inputs / groups, channels, false));
  Attrs attrs{{"stride", image.stride}, {"pad", image.pad}};
  if (image.dilation != Ints{1, 1}) attrs.set("dilation", image.dilation);
  if (groups != 1) attrs.set("groups", groups);
  const Value y = with_lora(b, spec, image, b.emit("conv2d", {image.x, weight}, attrs), inputs, channels);
  return back(b, image, with_bias(b, spec, y, channels, fan_in));
}

// The data gradient of a convolution, run forwards.
Value build_transposed(Build& b, const LayerSpec& spec, const Values& in) {
  const Attrs& a = spec.attrs;
  const Image image = image_of(b, in[0], a);
  const Shape& s = b.shape(image.x);
  const int64_t inputs = s[3], channels = a.integer("channels");
  const Ints extra = pair_of(a, "output_pad");
  auto size = [&](size_t axis) {
    const int64_t given = s[static_cast<int>(axis) + 1];
    if (image.sequence && axis == 0) return int64_t{1};
    return (given - 1) * image.stride[axis] - image.pad[axis] - image.pad[axis + 2] + image.kernel[axis] + extra[axis];
  };
  const int64_t fan = channels * image.kernel[0] * image.kernel[1];  // PyTorch counts the second axis of its weight
  const Value weight = b.parameter(spec.name + ".weight", Shape{image.kernel[0], image.kernel[1], channels, inputs},
                                   weight_init(a, fan, fan), file_order(image, inputs, channels, true));
  const Value y = b.emit("conv2d_dx", {image.x, weight},
                         {{"stride", image.stride}, {"pad", image.pad}, {"size", Ints{size(0), size(1)}}});
  return back(b, image, with_bias(b, spec, y, channels, fan));
}

Attrs conv_defaults() {
  return {{"kernel", int64_t{1}}, {"stride", int64_t{1}}, {"pad", int64_t{0}}, {"dilation", int64_t{1}},
          {"groups", int64_t{1}}, {"bias", int64_t{1}},   {"init", "default"}};
}
Attrs transposed_defaults() {
  return {{"kernel", int64_t{2}},     {"stride", int64_t{2}}, {"pad", int64_t{0}},
          {"output_pad", int64_t{0}}, {"bias", int64_t{1}},   {"init", "default"}};
}

}  // namespace

KindList conv() {
  static constexpr Kind list[] = {
      {"conv", "convolution over images or sequences", 1, 1, "channels", conv_defaults, build_conv},
      {"conv_transpose", "transposed convolution, for decoders", 1, 1, "channels", transposed_defaults,
       build_transposed}};
  return list;
}
}  // namespace situ::model::kinds
