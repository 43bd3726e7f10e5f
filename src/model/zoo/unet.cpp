// unet.cpp -- a small U-Net: every pixel gets a class. Encoder and decoder meet in concatenations.
#include "model/net.h"

namespace situ::model::zoo {
namespace {

void twice(Net& net, const std::string& name, int64_t channels) {
  for (const char* i : {"1", "2"}) {
    net.conv_norm(name + ".conv" + i, name + ".bn" + i, channels, {.kernel = 3, .pad = 1});
    net.op("relu");
  }
}

Model unet_small(const Size& size) {
  Net net("unet-small", image_input(size, 64), classes_of(size, 2));
  auto channels = [&](int level) { return scaled_channels(16 << level, size.width); };
  std::vector<std::string> skips;
  for (int level = 0; level < 3; ++level) {
    twice(net, "down" + std::to_string(level), channels(level));
    skips.push_back(net.last());
    net.op("max_pool", {{"kernel", int64_t{2}}});
  }
  twice(net, "bottom", channels(3));
  for (int level = 2; level >= 0; --level) {
    const std::string name = "up" + std::to_string(level);
    net.add(name + ".up", "conv_transpose", {{"channels", channels(level)}});
    net.concat({skips[static_cast<size_t>(level)], net.last()});
    twice(net, name, channels(level));
  }
  net.conv("head", net.classes(), {.bias = true});
  return net.take();
}

}  // namespace

ZooList unet() {
  static constexpr ZooEntry list[] = {{"unet-small", "three levels, a class per pixel", 0, unet_small, true, true}};
  return list;
}
}  // namespace situ::model::zoo
