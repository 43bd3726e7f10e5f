#include "ops/conv_chain.h"

#include <algorithm>

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
  for (const char* name : {"stride", "pad"})
    if (const auto* value = attrs.find(name)) stages.depthwise.attrs.set(name, *value);
  stages.depthwise.attrs.set("groups", channels);
  return stages;
}

int64_t chain_channels(const OpView& v) {
  const int w = chain_stages(v.attrs, 1).depthwise.w;
  if (w >= v.arity() || v.in(w).shape.rank() != 4)
    fail("weights f32[3,3,1,C] of the depthwise convolution are missing");
  return v.in(w).shape[3];
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
