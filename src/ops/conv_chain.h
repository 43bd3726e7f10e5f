// conv_chain.h -- the stages of a chain of convolutions (defs/conv_chain.cpp) and where their operands stand.
//
//     x, [w, operands of the epilogue] of expand, of depthwise, of project; expand and project may be missing
#pragma once
#include <string>
#include <vector>

#include "ops/op.h"

namespace situ::ops {

struct ChainStage {
  bool there = false;
  int w = 0, end = 0;  // among the node's inputs: the weights, then what the epilogue takes, up to `end`
  Attrs attrs;         // of the conv2d that it is
  int operands() const { return w + 1; }
};
struct ChainStages {
  ChainStage expand, depthwise, project;
  int arity = 0;
  std::vector<const ChainStage*> in_order() const {
    std::vector<const ChainStage*> list;
    for (const ChainStage* stage : {&expand, &depthwise, &project})
      if (stage->there) list.push_back(stage);
    return list;
  }
};
// `channels`: of the depthwise convolution.
ChainStages chain_stages(const Attrs& attrs, int64_t channels);
// Channels of the depthwise convolution of a node with these inputs.
int64_t chain_channels(const OpView& view);

// A convolution of an image with few channels, as a network's first: the floats that a kernel's row meets lie side by
// side, at most kMostChainRun of them, and the rows behind a row of results are few enough to be copied.
inline constexpr int64_t kMostChainRun = 32, kMostChainCopies = 8192, kMostChainRows = 8;
bool is_conv_of_few_channels(const Attrs& conv2d, const Shape& x, const Shape& w);
// Whether a chain may begin with this convolution: 1x1, or of few channels.
bool chain_begins(const Attrs& conv2d, const Shape& x, const Shape& w);

// Whether chains take this depthwise convolution, as a window over images of this size: 3 x 3 taps, every pixel or
// every second one.
bool chain_takes(const Attrs& conv2d, const Ints& size, const Ints& kernel);
// Epilogues inside a chain: a bias, then relu or relu6, or less.
bool chain_takes_inside(const Attrs& conv2d);

}  // namespace situ::ops
