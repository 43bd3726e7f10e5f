// layers.h -- layers written with ops: each names its parameters, appends its nodes and returns its result.
//
// Parameters are states. Their attributes say how they start and how files hold them:
//   role="parameter"                      trained, saved
//   init="uniform", bound=b               U(-b, b), PyTorch's default for linear and conv layers; init="zeros", "ones"
//   factors=[..], perm=[..], file=[..]    reshape to factors, permute by perm, reshape to file: PyTorch's order
#pragma once
#include <string>

#include "ir/graph.h"
#include "ops/op.h"

namespace situ::model {

class Layers {
 public:
  Layers(ir::Graph& graph, bool training) : graph_(graph), training_(training) {}

  ir::Value linear(const std::string& name, ir::Value x, int64_t outputs);  // flattens [N,H,W,C] first
  ir::Value conv(const std::string& name, ir::Value x, int64_t channels, int64_t kernel, int64_t stride = 1,
                 int64_t pad = 0);
  ir::Value relu(ir::Value x) { return ops::emit(graph_, "relu", {x}); }
  ir::Value max_pool(ir::Value x, int64_t kernel, int64_t stride);
  ir::Value dropout(const std::string& name, ir::Value x, double p);  // the name keys its random stream

  ir::Graph& graph() { return graph_; }
  bool training() const { return training_; }

 private:
  ir::Value parameter(const std::string& name, const Shape& shape, double bound, const ir::Attrs& file = {});
  ir::Graph& graph_;
  bool training_;
};

}  // namespace situ::model
