#include "model/model.h"

#include <charconv>

#include "base/error.h"

namespace situ::model {
namespace {

using ir::Value;

Value lenet5_logits(Layers& net, Value x) {
  x = net.max_pool(net.relu(net.conv("conv1", x, 6, 5, 1, 2)), 2, 2);
  x = net.max_pool(net.relu(net.conv("conv2", x, 16, 5)), 2, 2);
  x = net.relu(net.linear("fc1", x, 120));
  x = net.relu(net.linear("fc2", x, 84));
  return net.linear("fc3", x, 10);
}

std::vector<int64_t> parse_widths(std::string_view text) {
  std::vector<int64_t> widths;
  while (!text.empty()) {
    const size_t end = std::min(text.find('-'), text.size());
    int64_t width = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + end, width);
    if (error != std::errc() || stop != text.data() + end || width < 1 || width > (1 << 20))
      fail("`{}` is no layer width: write mlp:784-256-10, widths from 1 to 1048576", text.substr(0, end));
    widths.push_back(width);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (widths.size() < 2) fail("an mlp needs at least an input and an output width: write mlp:784-256-10");
  return widths;
}

Model mlp(std::string_view spec) {
  const std::vector<int64_t> widths = parse_widths(spec.substr(4));
  auto logits = [widths](Layers& net, Value x) {
    for (size_t i = 1; i < widths.size(); ++i) {
      x = net.linear("fc" + std::to_string(i), x, widths[i]);
      if (i + 1 < widths.size()) x = net.relu(x);
    }
    return x;
  };
  return {std::string(spec), Shape{widths.front()}, static_cast<int>(widths.back()), logits};
}

}  // namespace

Model find_model(std::string_view spec) {
  if (spec == "lenet5") return {"lenet5", Shape{28, 28, 1}, 10, lenet5_logits};
  if (spec.starts_with("mlp:")) return mlp(spec);
  fail("there is no model `{}`: use lenet5, or mlp:WIDTH-..-WIDTH such as mlp:784-256-128-16", spec);
}

std::vector<std::string> model_names() { return {"lenet5", "mlp:784-256-128-16"}; }

}  // namespace situ::model
