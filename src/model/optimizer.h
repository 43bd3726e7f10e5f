// optimizer.h -- one update per parameter, from its gradient; slots are states shaped, laid out and named after it.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace situ::model {

struct Optimizer {
  enum Kind { sgd, adam, adamw } kind = sgd;
  double momentum = 0.9;  // sgd
  bool nesterov = false;
  double decay = 0;  // weight decay: added to the gradient, or decoupled (adamw)
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
};

Optimizer::Kind parse_optimizer(std::string_view name);
std::string_view name_of(Optimizer::Kind kind);

// Slots by PyTorch's names: NAME.momentum_buffer; NAME.exp_avg, NAME.exp_avg_sq; and `optimizer.step`, how many updates
// were applied.
std::vector<std::string> slot_names(const Optimizer& optimizer);

// Appends the updates and state writes of these parameters (states, with their gradients).
struct Update {
  std::string parameter;
  ir::Value gradient;
};
void append_updates(ir::Graph& graph, const Optimizer& optimizer, const std::vector<Update>& updates);

}  // namespace situ::model
