// resnet.cpp -- residual networks: resnet20 for small images (1x1 projections), resnet18 and resnet50 as in
// torchvision.
#include "model/net.h"

namespace situ::model::zoo {
namespace {

// What is added to a block's result: its input, projected where the shape changes.
std::string shortcut(Net& net, const std::string& block, const std::string& input, int64_t channels, int64_t stride,
                     bool projects) {
  if (!projects) return input;
  return net.from(input).conv_norm(block + ".downsample.0", block + ".downsample.1", channels, {.stride = stride});
}

void basic_block(Net& net, const std::string& name, int64_t channels, int64_t stride, bool projects) {
  const std::string input = net.last();
  net.conv_norm(name + ".conv1", name + ".bn1", channels, {.kernel = 3, .stride = stride, .pad = 1});
  net.op("relu");
  const std::string body = net.conv_norm(name + ".conv2", name + ".bn2", channels, {.kernel = 3, .pad = 1});
  net.sum(body, shortcut(net, name, input, channels, stride, projects));
  net.op("relu");
}

void bottleneck(Net& net, const std::string& name, int64_t channels, int64_t stride, bool projects) {
  const std::string input = net.last();
  net.conv_norm(name + ".conv1", name + ".bn1", channels, {});
  net.op("relu");
  net.conv_norm(name + ".conv2", name + ".bn2", channels, {.kernel = 3, .stride = stride, .pad = 1});
  net.op("relu");
  const std::string body = net.conv_norm(name + ".conv3", name + ".bn3", 4 * channels, {});
  net.sum(body, shortcut(net, name, input, 4 * channels, stride, projects));
  net.op("relu");
}

using Block = void (*)(Net&, const std::string&, int64_t, int64_t, bool);

// Stages of blocks; each stage but the first halves the image. `wide`: the first block of the first stage projects too.
void stages(Net& net, const std::vector<int>& blocks, int64_t channels, Block block, bool wide) {
  for (size_t s = 0; s < blocks.size(); ++s, channels *= 2)
    for (int i = 0; i < blocks[s]; ++i)
      block(net, "layer" + std::to_string(s + 1) + "." + std::to_string(i), channels, s && !i ? 2 : 1,
            !i && (s || wide));
  net.op("global_pool");
  net.classifier("fc");
}

Model resnet20(const Size& size) {
  Net net("resnet20", image_input(size, 32), classes_of(size, 10));
  const int64_t channels = scaled_channels(16, size.width, 4);
  net.conv_norm("conv1", "bn1", channels, {.kernel = 3, .pad = 1});
  net.op("relu");
  stages(net, {3, 3, 3}, channels, basic_block, false);
  return net.take();
}

Model large(const char* name, const Size& size, const std::vector<int>& blocks, Block block, bool wide) {
  Net net(name, image_input(size, 224), classes_of(size, 1000));
  const int64_t channels = scaled_channels(64, size.width);
  net.conv_norm("conv1", "bn1", channels, {.kernel = 7, .stride = 2, .pad = 3});
  net.op("relu");
  net.op("max_pool", {{"kernel", int64_t{3}}, {"stride", int64_t{2}}, {"pad", int64_t{1}}});
  stages(net, blocks, channels, block, wide);
  return net.take();
}

Model resnet18(const Size& size) { return large("resnet18", size, {2, 2, 2, 2}, basic_block, false); }
Model resnet50(const Size& size) { return large("resnet50", size, {3, 4, 6, 3}, bottleneck, true); }

}  // namespace

ZooList resnet() {
  static constexpr ZooEntry list[] = {
      {"resnet20", "nine residual blocks for small images", 272474, resnet20, true, true},
      {"resnet18", "eight residual blocks", 11689512, resnet18, true, true},
      {"resnet50", "sixteen bottleneck blocks", 25557032, resnet50, true, true}};
  return list;
}
}  // namespace situ::model::zoo
