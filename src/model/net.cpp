#include "model/net.h"

#include <fmt/format.h>

#include <algorithm>

namespace situ::model {

const std::string& Net::add(std::string name, std::string kind, ir::Attrs attrs, std::vector<std::string> inputs) {
  if (name.empty()) {
    auto it = std::find_if(numbers_.begin(), numbers_.end(), [&](const auto& n) { return n.first == kind; });
    if (it == numbers_.end()) it = numbers_.insert(numbers_.end(), {kind, 0});
    name = fmt::format("{}{}", kind, ++it->second);
  }
  const std::string before = model_.layers.empty() ? "x" : model_.layers.back().name;
  if (inputs.empty()) inputs = {last_};
  if (inputs.size() == 1 && inputs[0] == before) inputs.clear();  // the layer before: need not be said
  model_.layers.push_back({name, std::move(kind), std::move(inputs), std::move(attrs), 0});
  return last_ = std::move(name);
}

const std::string& Net::conv(const std::string& name, int64_t channels, const ConvShape& shape,
                             const std::string& init) {
  ir::Attrs attrs{{"channels", channels}};
  auto set = [&](const char* key, int64_t value, int64_t otherwise) {
    if (value != otherwise) attrs.set(key, value);
  };
  set("kernel", shape.kernel, 1);
  set("stride", shape.stride, 1);
  set("pad", shape.pad, 0);
  set("groups", shape.groups, 1);
  set("bias", shape.bias ? 1 : 0, 1);
  if (init != "default") attrs.set("init", init);
  return add(name, "conv", attrs);
}

const std::string& Net::conv_norm(const std::string& conv_name, const std::string& norm_name, int64_t channels,
                                  const ConvShape& shape, const ir::Attrs& norm) {
  conv(conv_name, channels, shape, "kaiming");
  return add(norm_name, "batch_norm", norm);
}

const std::string& Net::linear(const std::string& name, int64_t channels, const std::string& init) {
  ir::Attrs attrs{{"channels", channels}};
  if (init != "default") attrs.set("init", init);
  return add(name, "linear", attrs);
}

Type image_input(const Size& size, int64_t resolution, int64_t channels) {
  if (size.input.rank() == 3) return f32(size.input);
  const int64_t side = size.resolution ? size.resolution : resolution;
  return f32({side, side, channels});
}

int64_t scaled_channels(double channels, double width, int64_t divisor) {
  const double wanted = channels * width;
  int64_t rounded =
      std::max(divisor, static_cast<int64_t>(wanted + static_cast<double>(divisor) / 2) / divisor * divisor);
  if (static_cast<double>(rounded) < 0.9 * wanted) rounded += divisor;
  return rounded;
}

}  // namespace situ::model
