// programs.h -- the programs of a training session, from a model and an optimizer.
//
// A sample has one label, or one per place (text, segmentation): labels and weights are rows of the logits.
//   train     x, labels, weight -> loss, gradients, update, train.metrics       one step, one program
//   micro     the same up to the gradients, added into accum.*  (control field `keep` = 0 on the first)
//   apply     the update from accum.*
//   evaluate  x, labels, weight -> eval.metrics
//   infer     x -> outputs `logits`, and `probabilities` where it tells classes apart
// With a loss over numbers, labels are targets f32[rows, 1]; `correct` is the absolute error, and evaluate keeps
// eval.errors. With averages (optimizer.ema), evaluate and infer read them in place of the trained parameters.
// Control fields: lr, scale (1 / sum of weights of the whole step), keep, seed, step, micro.
// Metrics are [sum of losses, sum of correct, sum of weights, loss of the last run] since they were last set to zero.
#pragma once
#include <string>
#include <vector>

#include "ir/graph.h"
#include "model/build.h"
#include "model/losses.h"
#include "model/optimizer.h"

namespace situ::step {

struct ProgramSpec {
  const model::Model& model;
  int64_t batch = 64;
  model::Optimizer optimizer;
  model::Partial partial = {};  // what is trained
  model::Loss loss = {};
  bool detailed = false;  // evaluate keeps eval.confusion [classes, classes] and eval.top5 too
};

ir::Graph train_program(const ProgramSpec& spec);
ir::Graph micro_program(const ProgramSpec& spec);
ir::Graph apply_program(const ProgramSpec& spec);
ir::Graph evaluate_program(const ProgramSpec& spec);
ir::Graph infer_program(const ProgramSpec& spec);
ir::Graph program_by_name(const ProgramSpec& spec, std::string_view name);

// Origins of nodes that serve no layer of the model.
inline constexpr const char* kLossLayer = "(loss)";
inline constexpr const char* kOptimizerLayer = "(optimizer)";

inline constexpr const char* kTrainMetrics = "train.metrics";
inline constexpr const char* kEvalMetrics = "eval.metrics";
inline constexpr const char* kConfusion = "eval.confusion";
inline constexpr const char* kTop5 = "eval.top5";
inline constexpr const char* kErrors = "eval.errors";  // as op `regression_metrics` keeps them

}  // namespace situ::step
