// net.h -- how the zoo writes a model down: layer after layer, each reading the one before unless told otherwise.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/model.h"

namespace situ::model {

// How a convolution differs from 1x1, stride 1, no padding, no bias.
struct ConvShape {
  int64_t kernel = 1, stride = 1, pad = 0, groups = 1;
  bool bias = false;
};

class Net {
 public:
  Net(std::string name, const Type& input, int classes) : model_{std::move(name), input, classes, {}} {}

  // Appends a layer and makes it the one the next layer reads; returns its name. Without a name it is numbered.
  const std::string& add(std::string name, std::string kind, ir::Attrs attrs = {},
                         std::vector<std::string> inputs = {});
  const std::string& op(std::string kind, ir::Attrs attrs = {}, std::vector<std::string> inputs = {}) {
    return add("", std::move(kind), std::move(attrs), std::move(inputs));
  }
  const std::string& last() const { return last_; }
  Net& from(const std::string& layer) {  // the next layer reads this one
    last_ = layer;
    return *this;
  }

  const std::string& conv(const std::string& name, int64_t channels, const ConvShape& shape = {},
                          const std::string& init = "default");
  const std::string& conv_norm(const std::string& conv_name, const std::string& norm_name, int64_t channels,
                               const ConvShape& shape, const ir::Attrs& norm = {});  // kaiming, without bias
  const std::string& linear(const std::string& name, int64_t channels, const std::string& init = "default");
  const std::string& sum(const std::string& a, const std::string& b) { return op("add", {}, {a, b}); }
  const std::string& concat(const std::vector<std::string>& parts) { return op("concat", {}, parts); }
  const std::string& classifier(const std::string& name, const std::string& init = "default") {
    return linear(name, model_.classes, init);
  }

  int classes() const { return model_.classes; }
  Model take() { return std::move(model_); }

 private:
  Model model_;
  std::string last_ = "x";
  std::vector<std::pair<std::string, int>> numbers_;  // of unnamed layers, by kind
};

// The input an image model gets: what the data has, or resolution x resolution x channels.
Type image_input(const Size& size, int64_t resolution, int64_t channels = 3);
inline int classes_of(const Size& size, int otherwise) { return size.classes ? size.classes : otherwise; }

// Channels times width, rounded to a multiple of 8 but never below 90% (MobileNet's rule).
int64_t scaled_channels(double channels, double width = 1, int64_t divisor = 8);

}  // namespace situ::model
