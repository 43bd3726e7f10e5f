// mobile.cpp -- networks made of depthwise and 1x1 convolutions: MobileNet v1, v2, v3-small, EfficientNet-B0 and
// ShuffleNet v2, the last four with torchvision's names.
#include "model/net.h"

namespace situ::model::zoo {
namespace {

std::string join(const std::string& a, int64_t b) { return a + "." + std::to_string(b); }

// conv, batch norm, activation as PREFIX.0, PREFIX.1; "" for no activation.
void unit(Net& net, const std::string& prefix, int64_t channels, const ConvShape& shape, const char* activation,
          const ir::Attrs& norm = {}) {
  net.conv_norm(prefix + ".0", prefix + ".1", channels, shape, norm);
  if (*activation) net.op(activation);
}
ConvShape around(int64_t kernel, int64_t stride = 1, int64_t groups = 1) {
  return {.kernel = kernel, .stride = stride, .pad = kernel / 2, .groups = groups};
}

Model mobilenetv1(const Size& size) {
  Net net("mobilenetv1", image_input(size, 224), classes_of(size, 1000));
  auto channels = [&](double c) { return scaled_channels(c, size.width); };
  unit(net, "features.0", channels(32), around(3, 2), "relu");
  int64_t width = channels(32), index = 0;
  for (auto [c, stride] : {std::pair{64, 1},
                           {128, 2},
                           {128, 1},
                           {256, 2},
                           {256, 1},
                           {512, 2},
                           {512, 1},
                           {512, 1},
                           {512, 1},
                           {512, 1},
                           {512, 1},
                           {1024, 2},
                           {1024, 1}}) {
    const std::string name = join("features", ++index);
    unit(net, name + ".depthwise", width, around(3, stride, width), "relu");
    width = channels(c);
    unit(net, name + ".pointwise", width, {}, "relu");
  }
  net.op("global_pool");
  net.classifier("fc");
  return net.take();
}

void inverted_residual(Net& net, const std::string& name, int64_t in, int64_t out, int64_t stride, int64_t expand) {
  const std::string input = net.last();
  const int64_t hidden = in * expand;
  int64_t i = 0;
  if (expand != 1) unit(net, join(name + ".conv", i++), hidden, {}, "relu6");
  unit(net, join(name + ".conv", i++), hidden, around(3, stride, hidden), "relu6");
  const std::string body = net.conv_norm(join(name + ".conv", i), join(name + ".conv", i + 1), out, {});
  if (stride == 1 && in == out) net.sum(input, body);
}

Model mobilenetv2(const Size& size) {
  Net net("mobilenetv2", image_input(size, 224), classes_of(size, 1000));
  int64_t width = scaled_channels(32, size.width), index = 0;
  unit(net, "features.0", width, around(3, 2), "relu6");
  struct Stage {
    int64_t expand, channels, blocks, stride;
  };
  for (const Stage& s :
       {Stage{1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2}, {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}})
    for (int64_t i = 0; i < s.blocks; ++i) {
      const int64_t out = scaled_channels(static_cast<double>(s.channels), size.width);
      inverted_residual(net, join("features", ++index), width, out, i ? 1 : s.stride, s.expand);
      width = out;
    }
  unit(net, join("features", ++index), size.width > 1 ? scaled_channels(1280, size.width) : 1280, {}, "relu6");
  net.op("global_pool");
  net.op("dropout", {{"p", 0.2}});
  net.classifier("classifier.1", "normal:0.01");
  return net.take();
}

// Squeeze and excitation: the input times a gate per channel.
void squeeze(Net& net, const std::string& name, int64_t channels, int64_t narrow, const char* inner, const char* gate) {
  const std::string input = net.last();
  net.op("global_pool", {{"keep", int64_t{1}}});
  net.conv(name + ".fc1", narrow, {.bias = true});
  net.op(inner);
  net.conv(name + ".fc2", channels, {.bias = true});
  net.op("mul", {}, {input, net.op(gate)});
}

struct Bneck {
  int64_t kernel, hidden, channels;
  bool squeezes, hard;
  int64_t stride;
};

Model mobilenetv3_small(const Size& size) {
  Net net("mobilenetv3-small", image_input(size, 224), classes_of(size, 1000));
  const ir::Attrs norm{{"eps", 1e-3}, {"momentum", 0.01}};
  auto channels = [&](int64_t c) { return scaled_channels(static_cast<double>(c), size.width); };
  int64_t width = channels(16), index = 0;
  unit(net, "features.0", width, around(3, 2), "hard_swish", norm);
  for (const Bneck& s : {Bneck{3, 16, 16, true, false, 2},
                         {3, 72, 24, false, false, 2},
                         {3, 88, 24, false, false, 1},
                         {5, 96, 40, true, true, 2},
                         {5, 240, 40, true, true, 1},
                         {5, 240, 40, true, true, 1},
                         {5, 120, 48, true, true, 1},
                         {5, 144, 48, true, true, 1},
                         {5, 288, 96, true, true, 2},
                         {5, 576, 96, true, true, 1},
                         {5, 576, 96, true, true, 1}}) {
    const std::string input = net.last(), name = join("features", ++index) + ".block";
    const char* activation = s.hard ? "hard_swish" : "relu";
    const int64_t hidden = channels(s.hidden), out = channels(s.channels);
    int64_t i = 0;
    if (hidden != width) unit(net, join(name, i++), hidden, {}, activation, norm);
    unit(net, join(name, i++), hidden, around(s.kernel, s.stride, hidden), activation, norm);
    if (s.squeezes)
      squeeze(net, join(name, i++), hidden, scaled_channels(static_cast<double>(hidden) / 4), "relu", "hard_sigmoid");
    unit(net, join(name, i), out, {}, "", norm);
    if (s.stride == 1 && width == out) net.sum(net.last(), input);
    width = out;
  }
  unit(net, join("features", ++index), 6 * width, {}, "hard_swish", norm);
  net.op("global_pool");
  net.linear("classifier.0", channels(1024), "normal:0.01");
  net.op("hard_swish");
  net.op("dropout", {{"p", 0.2}});
  net.classifier("classifier.3", "normal:0.01");
  return net.take();
}

void mbconv(Net& net, const std::string& prefix, int64_t in, int64_t out, int64_t kernel, int64_t stride,
            int64_t expand) {
  const std::string input = net.last(), name = prefix + ".block";
  const int64_t hidden = in * expand;
  int64_t i = 0;
  if (expand != 1) unit(net, join(name, i++), hidden, {}, "silu");
  unit(net, join(name, i++), hidden, around(kernel, stride, hidden), "silu");
  squeeze(net, join(name, i++), hidden, std::max<int64_t>(1, in / 4), "silu", "sigmoid");
  unit(net, join(name, i), out, {}, "");
  if (stride == 1 && in == out) net.sum(net.last(), input);
}

Model efficientnet_b0(const Size& size) {
  Net net("efficientnet-b0", image_input(size, 224), classes_of(size, 1000));
  auto channels = [&](int64_t c) { return scaled_channels(static_cast<double>(c), size.width); };
  int64_t width = channels(32), stage = 0;
  unit(net, "features.0", width, around(3, 2), "silu");
  struct Stage {
    int64_t expand, kernel, stride, channels, blocks;
  };
  for (const Stage& s : {Stage{1, 3, 1, 16, 1},
                         {6, 3, 2, 24, 2},
                         {6, 5, 2, 40, 2},
                         {6, 3, 2, 80, 3},
                         {6, 5, 1, 112, 3},
                         {6, 5, 2, 192, 4},
                         {6, 3, 1, 320, 1}}) {
    ++stage;
    for (int64_t i = 0; i < s.blocks; ++i) {
      mbconv(net, join(join("features", stage), i), width, channels(s.channels), s.kernel, i ? 1 : s.stride, s.expand);
      width = channels(s.channels);
    }
  }
  unit(net, "features.8", 4 * width, {}, "silu");
  net.op("global_pool");
  net.op("dropout", {{"p", 0.2}});
  net.classifier("classifier.1");
  return net.take();
}

// Half of the channels pass; the other half, or with stride 2 both copies, go through 1x1, depthwise, 1x1.
void shuffle_unit(Net& net, const std::string& name, int64_t in, int64_t out, int64_t stride) {
  const std::string input = net.last();
  const int64_t half = out / 2;
  const std::string branch = name + ".branch";
  auto conv = [&](const std::string& b, int64_t i, int64_t channels, const ConvShape& shape) {
    net.conv_norm(join(b, i), join(b, i + 1), channels, shape);
  };
  std::string left;
  if (stride == 1) {
    const ir::Ints sizes{in / 2, in / 2};
    left = net.op("split", {{"sizes", sizes}, {"part", int64_t{0}}});
    net.from(input).op("split", {{"sizes", sizes}, {"part", int64_t{1}}});
  } else {
    conv(branch + "1", 0, in, around(3, 2, in));
    conv(branch + "1", 2, half, {});
    left = net.op("relu");
    net.from(input);
  }
  conv(branch + "2", 0, half, {});
  net.op("relu");
  conv(branch + "2", 3, half, around(3, stride, half));
  conv(branch + "2", 5, half, {});
  const std::string right = net.op("relu");
  net.concat({left, right});
  net.op("channel_shuffle", {{"groups", int64_t{2}}});
}

Model shufflenetv2(const Size& size) {
  Net net("shufflenetv2", image_input(size, 224), classes_of(size, 1000));
  unit(net, "conv1", 24, around(3, 2), "relu");
  net.op("max_pool", {{"kernel", int64_t{3}}, {"stride", int64_t{2}}, {"pad", int64_t{1}}});
  int64_t width = 24, stage = 2;
  for (auto [channels, blocks] : {std::pair<int64_t, int64_t>{116, 4}, {232, 8}, {464, 4}}) {
    for (int64_t i = 0; i < blocks; ++i) {
      shuffle_unit(net, join("stage" + std::to_string(stage), i), width, channels, i ? 1 : 2);
      width = channels;
    }
    ++stage;
  }
  unit(net, "conv5", 1024, {}, "relu");
  net.op("global_pool");
  net.classifier("fc");
  return net.take();
}

}  // namespace

ZooList mobile() {
  static constexpr ZooEntry list[] = {
      {"mobilenetv1", "depthwise separable convolutions", 4231976, mobilenetv1, true, true},
      {"mobilenetv2", "inverted residuals", 3504872, mobilenetv2, true, true},
      {"mobilenetv3-small", "inverted residuals with squeeze and hard swish", 2542856, mobilenetv3_small, true, true},
      {"efficientnet-b0", "inverted residuals with squeeze and swish", 5288548, efficientnet_b0, true, true},
      {"shufflenetv2", "split, 1x1, depthwise, shuffle", 2278604, shufflenetv2, true}};
  return list;
}
}  // namespace situ::model::zoo
