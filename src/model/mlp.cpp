// mlp.cpp -- mlp:784-256-10: linear layers of these widths with ReLU between them.
#include <charconv>

#include "base/error.h"
#include "base/names.h"
#include "model/net.h"

namespace situ::model {
namespace {

std::vector<int64_t> parse_widths(std::string_view text) {
  std::vector<int64_t> widths;
  for (const std::string& part : split_list(text, '-')) {
    int64_t width = 0;
    const auto [stop, error] = std::from_chars(part.data(), part.data() + part.size(), width);
    if (error != std::errc() || stop != part.data() + part.size() || width < 1 || width > (1 << 20))
      fail("`{}` is no layer width: write mlp:784-256-10, widths from 1 to 1048576", part);
    widths.push_back(width);
  }
  if (widths.size() < 2) fail("an mlp needs at least an input and an output width: write mlp:784-256-10");
  return widths;
}

}  // namespace

Model mlp_model(std::string_view spec) {
  const std::vector<int64_t> widths = parse_widths(spec.substr(4));
  Net net(std::string(spec), f32({widths.front()}), static_cast<int>(widths.back()));
  for (size_t i = 1; i < widths.size(); ++i) {
    net.linear("fc" + std::to_string(i), widths[i]);
    if (i + 1 < widths.size()) net.op("relu");
  }
  return net.take();
}

}  // namespace situ::model
