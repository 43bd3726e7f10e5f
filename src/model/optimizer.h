// optimizer.h -- one update per parameter, from its gradient; slots are states shaped, laid out and named after it.
//
//   clip_norm   all gradients times min(1, clip_norm / (norm of all gradients together + 1e-6))
//   clip_value  then each element clamped to -clip_value..clip_value
//   ema         states ema.NAME: ema = d * ema + (1 - d) * parameter after its update
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace situ::model {

struct Optimizer {
  enum Kind { sgd, adam, adamw, rmsprop, adagrad, lion } kind = sgd;
  double momentum = 0.9;  // sgd, rmsprop
  bool nesterov = false;  // sgd
  double decay = 0;       // weight decay: added to the gradient, or decoupled (adamw, lion)
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double alpha = 0.99;  // rmsprop
  bool centered = false;
  double lr_decay = 0, initial_sum = 0;  // adagrad
  double clip_norm = 0, clip_value = 0;  // 0: off
  bool decay_biases_and_norms = true;    // false: parameters of rank 1 do not decay
  double ema = 0;                        // 0: off
  bool scales_loss = false;              // gradients are stored as half on their way: see scaled_loss
};

// The settings PyTorch starts with (Lion: its paper), but for the decay, which is 0, and the momentum of sgd.
Optimizer default_optimizer(Optimizer::Kind kind);
Optimizer::Kind parse_optimizer(std::string_view name);
std::string_view name_of(Optimizer::Kind kind);

// Slots by PyTorch's names: NAME.momentum_buffer; NAME.exp_avg, NAME.exp_avg_sq; NAME.square_avg, NAME.grad_avg;
// NAME.sum; and `optimizer.step`, how many updates were applied.
std::vector<std::string> slot_names(const Optimizer& optimizer);
inline std::string ema_name(const std::string& parameter) { return "ema." + parameter; }
ir::State ema_state(const ir::State& parameter);

// Appends the updates and state writes of these parameters (states, with their gradients).
struct Update {
  std::string parameter;
  ir::Value gradient;
};
// The loss whose gradients are taken. With scales_loss it is multiplied by the state `loss_scale`, so that small
// gradients do not vanish in half, and the updates divide by it. Where a gradient is no finite number, the step is
// skipped and the scale halved; after many good steps it doubles. All of it happens on the device.
ir::Value scaled_loss(ir::Graph& graph, const Optimizer& optimizer, ir::Value loss);

void append_updates(ir::Graph& graph, const Optimizer& optimizer, const std::vector<Update>& updates);

}  // namespace situ::model
