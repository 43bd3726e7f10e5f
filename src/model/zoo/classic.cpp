// classic.cpp -- LeNet-5, AlexNet, VGG-11 and SqueezeNet 1.1, as in torchvision, whose names the layers have.
#include "model/net.h"

namespace situ::model::zoo {
namespace {

Model lenet5(const Size& size) {
  Net net("lenet5", image_input(size, 28, 1), classes_of(size, 10));
  net.conv("conv1", 6, {.kernel = 5, .pad = 2, .bias = true});
  net.op("relu");
  net.op("max_pool", {{"kernel", int64_t{2}}});
  net.conv("conv2", 16, {.kernel = 5, .bias = true});
  net.op("relu");
  net.op("max_pool", {{"kernel", int64_t{2}}});
  net.op("flatten");
  net.linear("fc1", 120);
  net.op("relu");
  net.linear("fc2", 84);
  net.op("relu");
  net.classifier("fc3");
  return net.take();
}

void max_pool(Net& net, int64_t kernel, int64_t stride) {
  net.op("max_pool", {{"kernel", kernel}, {"stride", stride}});
}

Model alexnet(const Size& size) {
  Net net("alexnet", image_input(size, 224), classes_of(size, 1000));
  net.conv("features.0", 64, {.kernel = 11, .stride = 4, .pad = 2, .bias = true});
  net.op("relu");
  max_pool(net, 3, 2);
  net.conv("features.3", 192, {.kernel = 5, .pad = 2, .bias = true});
  net.op("relu");
  max_pool(net, 3, 2);
  for (auto [name, channels] : {std::pair{"features.6", 384}, {"features.8", 256}, {"features.10", 256}}) {
    net.conv(name, channels, {.kernel = 3, .pad = 1, .bias = true});
    net.op("relu");
  }
  max_pool(net, 3, 2);
  net.op("flatten");
  for (const char* name : {"classifier.1", "classifier.4"}) {
    net.op("dropout");
    net.linear(name, 4096);
    net.op("relu");
  }
  net.classifier("classifier.6");
  return net.take();
}

Model vgg11(const Size& size) {
  Net net("vgg11", image_input(size, 224), classes_of(size, 1000));
  int index = 0;
  for (int64_t channels : {64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0}) {  // 0: a pool
    if (channels == 0) {
      max_pool(net, 2, 2);
      ++index;
      continue;
    }
    net.conv("features." + std::to_string(index), channels, {.kernel = 3, .pad = 1, .bias = true}, "kaiming");
    net.op("relu");
    index += 2;
  }
  net.op("flatten");
  for (const char* name : {"classifier.0", "classifier.3"}) {
    net.linear(name, 4096, "normal:0.01");
    net.op("relu");
    net.op("dropout");
  }
  net.classifier("classifier.6", "normal:0.01");
  return net.take();
}

void fire(Net& net, const std::string& name, int64_t squeeze, int64_t expand) {
  net.conv(name + ".squeeze", squeeze, {.bias = true});
  const std::string narrow = net.op("relu");
  net.conv(name + ".expand1x1", expand, {.bias = true});
  const std::string one = net.op("relu");
  net.from(narrow).conv(name + ".expand3x3", expand, {.kernel = 3, .pad = 1, .bias = true});
  const std::string three = net.op("relu");
  net.concat({one, three});
}

Model squeezenet(const Size& size) {
  Net net("squeezenet1.1", image_input(size, 224), classes_of(size, 1000));
  const auto pool = [&] { net.op("max_pool", {{"kernel", int64_t{3}}, {"stride", int64_t{2}}, {"ceil", int64_t{1}}}); };
  net.conv("features.0", 64, {.kernel = 3, .stride = 2, .bias = true});
  net.op("relu");
  pool();
  fire(net, "features.3", 16, 64);
  fire(net, "features.4", 16, 64);
  pool();
  fire(net, "features.6", 32, 128);
  fire(net, "features.7", 32, 128);
  pool();
  fire(net, "features.9", 48, 192);
  fire(net, "features.10", 48, 192);
  fire(net, "features.11", 64, 256);
  fire(net, "features.12", 64, 256);
  net.op("dropout");
  net.conv("classifier.1", net.classes(), {.bias = true}, "normal:0.01");
  net.op("relu");
  net.op("global_pool");
  return net.take();
}

}  // namespace

ZooList classic() {
  static constexpr ZooEntry list[] = {
      {"lenet5", "two convolutions, three linear layers; 28x28 grey", 61706, lenet5, true},
      {"alexnet", "five convolutions, three wide linear layers", 61100840, alexnet, true},
      {"vgg11", "eight 3x3 convolutions, three wide linear layers", 132863336, vgg11, true},
      {"squeezenet1.1", "fire modules, small and without linear layers", 1235496, squeezenet, true}};
  return list;
}
}  // namespace situ::model::zoo
