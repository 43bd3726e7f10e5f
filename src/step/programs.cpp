#include "step/programs.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "grad/reverse.h"
#include "model/init.h"

namespace situ::step {
namespace {

using ir::Value;

Value logits_of(ir::Graph& graph, const ProgramSpec& spec, bool training) {
  const Value x = graph.input("x", model::batch_of(spec.batch, spec.model.input));
  return model::build(spec.model, graph, x, {training, spec.partial}).logits;
}

// The forward pass with its loss and metrics; what train, micro and evaluate share.
struct Forward {
  ir::Graph graph;
  Value total_loss = ir::kNoValue;

  Forward(const ProgramSpec& spec, const char* name, bool training, const char* metrics) {
    graph.name = name;
    Value logits = logits_of(graph, spec, training);
    const int64_t rows = graph.type(logits).shape.rows(), classes = graph.type(logits).shape.cols();
    if (graph.type(logits).shape.rank() != 2)
      logits = ops::emit(graph, "reshape", {logits}, {{"shape", ir::Ints{rows, classes}}});
    graph.origin = {kLossLayer};
    const bool of_classes = spec.loss.of_classes();
    if (!of_classes && classes != 1) fail("a loss over numbers needs a model with one output, not {}", classes);
    const Value labels = graph.input("labels", of_classes ? i32({rows}) : f32({rows, 1}));
    const Value weight = graph.input("weight", f32({rows}));
    const Value scale = graph.control("scale");
    model::Loss chosen = spec.loss;
    if (!training) chosen.smoothing = 0;
    const Value loss = model::loss_of(graph, chosen, logits, labels, {weight, scale});
    const Value answer = chosen.kind == model::Loss::bce ? ops::emit(graph, "sigmoid", {logits}) : logits;
    const Value correct = of_classes ? ops::emit(graph, "accuracy", {logits, labels, weight})
                                     : model::l1(graph, answer, labels, {weight, graph.constant(1, f32({}))});
    total_loss = ops::emit(graph, "reduce", {loss}, {{"kind", "sum"}, {"axes", ir::Ints{0}}});
    graph.declare({metrics, f32({4}), {{"role", "metric"}, {"init", "zeros"}}});
    const Value seen = graph.read(metrics);
    metrics_value = ops::emit(graph, "metrics", {seen, loss, correct, weight, scale});
    metrics_state = metrics;
    if (!training && !of_classes) keep_errors(answer, labels, weight);
    if (!training && of_classes && spec.detailed) keep_details(logits, labels, weight);
  }
  void write_metrics() { graph.write(metrics_state, metrics_value); }

  // Of every trained parameter; one that is read in several places (a tied table) gets the sum.
  std::vector<model::Update> gradients(const model::Optimizer& optimizer) {
    ir::Values reads;
    std::vector<std::string> names;
    for (const ir::Node& node : graph.nodes)
      if (node.op == "read" && model::is_trained(*graph.find_state(node.attrs.text("state")))) {
        reads.push_back(node.outputs[0]);
        names.push_back(node.attrs.text("state"));
      }
    const ir::Values d = grad::gradients(graph, model::scaled_loss(graph, optimizer, total_loss), reads);
    std::vector<model::Update> result;
    for (size_t i = 0; i < d.size(); ++i) {
      const auto known =
          std::find_if(result.begin(), result.end(), [&](const model::Update& u) { return u.parameter == names[i]; });
      if (known == result.end())
        result.push_back({names[i], d[i]});
      else
        known->gradient = ops::emit(graph, "add", {known->gradient, d[i]});
    }
    return result;
  }

 private:
  void keep_errors(Value answer, Value targets, Value weight) {
    graph.declare({kErrors, f32({4}), {{"role", "metric"}, {"init", "zeros"}}});
    graph.write(kErrors, ops::emit(graph, "regression_metrics", {graph.read(kErrors), answer, targets, weight}));
  }
  void keep_details(Value logits, Value labels, Value weight) {
    const int64_t classes = graph.type(logits).shape.cols();
    const ir::Attrs attrs{{"role", "metric"}, {"init", "zeros"}};
    graph.declare({kConfusion, f32({classes, classes}), attrs});
    graph.write(kConfusion, ops::emit(graph, "confusion", {graph.read(kConfusion), logits, labels, weight}));
    graph.declare({kTop5, f32({}), attrs});
    const Value among =
        ops::emit(graph, "accuracy", {logits, labels, weight}, {{"top", std::min<int64_t>(5, classes)}});
    const Value sum = ops::emit(graph, "reduce", {among}, {{"kind", "sum"}, {"axes", ir::Ints{0}}});
    graph.write(kTop5, ops::emit(graph, "add", {graph.read(kTop5), sum}));
  }

  Value metrics_value = ir::kNoValue;
  std::string metrics_state;
};

std::string accumulator(const std::string& parameter) { return "accum." + parameter; }

ir::State accumulator_state(const ir::State& parameter) {
  ir::State state{accumulator(parameter.name), parameter.type, {{"role", "accumulator"}, {"init", "zeros"}}};
  return state;
}

// The averages of the trained parameters stand in for them.
void read_averages(ir::Graph& graph) {
  std::set<std::string> averaged;
  for (ir::State& state : graph.states)
    if (model::is_trained(state)) {
      averaged.insert(state.name);
      state = model::ema_state(state);
    }
  for (ir::Node& node : graph.nodes)
    if (node.op == "read" && averaged.contains(node.attrs.text("state")))
      node.attrs.set("state", model::ema_name(node.attrs.text("state")));
}

}  // namespace

ir::Graph train_program(const ProgramSpec& spec) {
  Forward forward(spec, "train", true, kTrainMetrics);
  const std::vector<model::Update> updates = forward.gradients(spec.optimizer);
  forward.graph.origin = {kOptimizerLayer};
  model::append_updates(forward.graph, spec.optimizer, updates);
  forward.write_metrics();
  return std::move(forward.graph);
}

ir::Graph micro_program(const ProgramSpec& spec) {
  Forward forward(spec, "micro", true, kTrainMetrics);
  ir::Graph& graph = forward.graph;
  const auto gradients = forward.gradients(spec.optimizer);
  graph.origin = {kOptimizerLayer};
  const Value keep = graph.control("keep");
  for (const auto& [parameter, gradient] : gradients) {
    graph.declare(accumulator_state(*graph.find_state(parameter)));
    const Value sum = graph.read(accumulator(parameter));
    // select, not a product with 0: what an overflow left behind must not survive into the next step
    const Value next = ops::emit(graph, "select", {keep, ops::emit(graph, "add", {sum, gradient}), gradient});
    graph.write(accumulator(parameter), next);
  }
  forward.write_metrics();
  return std::move(graph);
}

ir::Graph apply_program(const ProgramSpec& spec) {
  const Forward forward(spec, "apply", true, kTrainMetrics);  // only for its parameters
  ir::Graph graph;
  graph.name = "apply";
  graph.origin = {kOptimizerLayer};
  std::vector<model::Update> updates;
  for (const ir::State& state : forward.graph.states) {
    if (!model::is_trained(state)) continue;
    graph.declare(state);
    graph.declare(accumulator_state(state));
    updates.push_back({state.name, graph.read(accumulator(state.name))});
  }
  model::append_updates(graph, spec.optimizer, updates);
  return graph;
}

ir::Graph evaluate_program(const ProgramSpec& spec) {
  Forward forward(spec, "evaluate", false, kEvalMetrics);
  forward.write_metrics();
  if (spec.optimizer.ema > 0) read_averages(forward.graph);
  return std::move(forward.graph);
}

ir::Graph infer_program(const ProgramSpec& spec) {
  ir::Graph graph;
  graph.name = "infer";
  const Value logits = logits_of(graph, spec, false);
  graph.output("logits", logits);
  if (spec.loss.of_classes()) graph.output("probabilities", ops::emit(graph, "softmax", {logits}));
  if (spec.optimizer.ema > 0) read_averages(graph);
  return graph;
}

ir::Graph program_by_name(const ProgramSpec& spec, std::string_view name) {
  if (name == "train") return train_program(spec);
  if (name == "micro") return micro_program(spec);
  if (name == "apply") return apply_program(spec);
  if (name == "evaluate") return evaluate_program(spec);
  if (name == "infer") return infer_program(spec);
  fail("there is no program `{}`: use train, micro, apply, evaluate or infer", name);
}

}  // namespace situ::step
