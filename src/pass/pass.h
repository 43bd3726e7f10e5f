// pass.h -- the rewrites of the graph, one per file; pipeline.cpp is their order and nothing else.
//
// Each takes a graph and returns one that computes the same; ir::verify holds before and after.
#pragma once
#include <vector>

#include "device/device.h"
#include "ir/graph.h"

namespace situ::pass {

ir::Graph expansion(const ir::Graph& graph, const device::Device& device);  // ops without a kernel into their parts
ir::Graph common_subexpressions(const ir::Graph& graph);                    // computes equal nodes once
ir::Graph common_launches(const ir::Graph& graph);                          // the same in a launch list, if near
ir::Graph constant_folding(const ir::Graph& graph);                         // splats, and x*1, x+0, x/1, x-0
ir::Graph transpose_folding(const ir::Graph& graph);  // into matmul's flags; reshape of reshape; no-ops
ir::Graph epilogue_fusion(const ir::Graph& graph);    // bias, activation, residual, backward mask into matmul, conv
ir::Graph pointwise_fusion(const ir::Graph& graph);   // chains and trees of pointwise ops into one `fused` node
ir::Graph norm_fusion(const ir::Graph& graph, const device::Device& device);  // column statistics and their reader
ir::Graph conv_chains(const ir::Graph& graph, const device::Tuning& tuning);  // a depthwise convolution, its neighbours
ir::Graph gradient_order(const ir::Graph& graph);   // a large weight's gradient after that of the data
ir::Graph update_grouping(const ir::Graph& graph);  // one update node for all parameters that share its settings
ir::Graph gradient_factors(const ir::Graph& graph, const device::Tuning& tuning);  // updates multiply gradients out
ir::Graph gradient_rows(const ir::Graph& graph);  // updates of biases add up the rows of their gradients

// In launch lists:
ir::Graph gradient_parts(const ir::Graph& graph);   // updates add up what a split sum left
ir::Graph joint_gradients(const ir::Graph& graph);  // of data and weights in one launch, where there is a kernel
ir::Graph image_sheaves(const ir::Graph& graph);    // what lies between launches whose lanes are images stays so
ir::Graph launch_groups(const ir::Graph& graph);    // small launches of one kind that wait for nothing become one

struct Options {
  bool fuse = true;  // false: the unfused graph, one node per op, as the naive residency runs it
};
struct Stage {
  const char* name;
  ir::Graph (*run)(const ir::Graph&);
};
std::vector<Stage> pipeline(const Options& options);
ir::Graph optimise(ir::Graph graph, const Options& options);

}  // namespace situ::pass
