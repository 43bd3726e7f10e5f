#include "ops/conv_chain.h"

#include <string>

#include "ops/epilogue.h"
#include "ops/window.h"

namespace situ::ops {
namespace {

ChainStage stage_of(const Attrs& attrs, const char* name, int& next) {
  ChainStage stage;
  if (!attrs.has(name)) return stage;
  stage.there = true;
  stage.attrs.set("epilogue", attrs.text(name));
  stage.w = next++;
  for (Epilogue e : epilogue_of(stage.attrs)) next += takes_operand(e) ? 1 : 0;
  stage.end = next;
  return stage;
}

}  // namespace

ChainStages chain_stages(const Attrs& attrs, int64_t channels) {
  ChainStages stages;
  stages.arity = 1;
  stages.expand = stage_of(attrs, "expand", stages.arity);
  stages.depthwise = stage_of(attrs, "depthwise", stages.arity);
  stages.project = stage_of(attrs, "project", stages.arity);
  for (const char* name : {"stride", "pad"}) {
    if (const auto* value = attrs.find(name)) stages.depthwise.attrs.set(name, *value);
    if (const auto* value = attrs.find(std::string("expand_") + name)) stages.expand.attrs.set(name, *value);
  }
  stages.depthwise.attrs.set("groups", channels);
  return stages;
}

int64_t chain_channels(const OpView& v) {
  const int w = chain_stages(v.attrs, 1).depthwise.w;
  if (w >= v.arity() || v.in(w).shape.rank() != 4)
    fail("weights f32[3,3,1,C] of the depthwise convolution are missing");
  return v.in(w).shape[3];
}

bool is_conv_of_few_channels(const Attrs& conv2d, const Shape& x, const Shape& w) {
  if (conv2d.integer("groups", 1) != 1 || w[0] * w[1] == 1) return false;
  const Window window = window_of(conv2d, {x[1], x[2]}, {w[0], w[1]});
  const int64_t line = ((window.x.out - 1) * window.x.stride + w[1]) * x[3];
  return window.x.dilation == 1 && window.y.dilation == 1 && window.x.before >= 0 && w[0] <= kMostChainRows &&
         w[1] * x[3] <= kMostChainRun && w[0] * line <= kMostChainCopies;
}

bool chain_begins(const Attrs& conv2d, const Shape& x, const Shape& w) {
  if (conv2d.integer("groups", 1) != 1) return false;
  return is_pointwise(window_of(conv2d, {x[1], x[2]}, {w[0], w[1]})) || is_conv_of_few_channels(conv2d, x, w);
}

bool chain_takes(const Attrs& conv2d, const Ints& size, const Ints& kernel) {
  if (kernel != Ints{3, 3}) return false;
  const Window window = window_of(conv2d, size, kernel);
  const auto plain = [](const WindowAxis& a) {
    return a.dilation == 1 && a.stride <= 2 && a.before >= 0 && a.before <= 2;
  };
  return plain(window.y) && plain(window.x) && window.y.stride == window.x.stride;
}

bool chain_takes_inside(const Attrs& conv2d) {
  std::vector<Epilogue> words = epilogue_of(conv2d);
  if (!words.empty() && words.front() == Epilogue::bias) words.erase(words.begin());
  return words.empty() || (words.size() == 1 && (words[0] == Epilogue::relu || words[0] == Epilogue::relu6));
}

}  // namespace situ::ops
