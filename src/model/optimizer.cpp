#include "model/optimizer.h"

#include <string>

#include "base/error.h"
#include "ops/op.h"

namespace situ::model {
namespace {

using ir::Value;

constexpr Optimizer::Kind kKinds[] = {Optimizer::sgd,     Optimizer::adam,    Optimizer::adamw,
                                      Optimizer::rmsprop, Optimizer::adagrad, Optimizer::lion};

std::string_view op_of(Optimizer::Kind kind) { return kind == Optimizer::adamw ? "adam" : name_of(kind); }
bool counts_steps(Optimizer::Kind kind) {
  return kind == Optimizer::adam || kind == Optimizer::adamw || kind == Optimizer::adagrad;
}

Value slot(ir::Graph& graph, const Optimizer& o, const std::string& parameter, const std::string& slot_name) {
  ir::State state = *graph.find_state(parameter);
  state.name = parameter + "." + slot_name;
  state.attrs.set("role", "slot").set("init", "zeros");
  state.attrs.erase("bound");
  if (o.kind == Optimizer::adagrad && o.initial_sum != 0)
    state.attrs.set("init", "constant").set("value", o.initial_sum);
  graph.declare(state);
  return graph.read(state.name);
}

ir::Attrs rule_attrs(const Optimizer& o) {
  switch (o.kind) {
    case Optimizer::sgd:
      return {{"momentum", o.momentum}, {"nesterov", int64_t{o.nesterov}}};
    case Optimizer::adam:
    case Optimizer::adamw:
      return {
          {"beta1", o.beta1}, {"beta2", o.beta2}, {"eps", o.eps}, {"decoupled", int64_t{o.kind == Optimizer::adamw}}};
    case Optimizer::rmsprop:
      return {{"alpha", o.alpha}, {"eps", o.eps}, {"momentum", o.momentum}, {"centered", int64_t{o.centered}}};
    case Optimizer::adagrad:
      return {{"eps", o.eps}, {"lr_decay", o.lr_decay}};
    case Optimizer::lion:
      return {{"beta1", o.beta1}, {"beta2", o.beta2}};
  }
  return {};
}

ir::Attrs attrs_for(const Optimizer& o, const Type& parameter) {
  ir::Attrs attrs = rule_attrs(o);
  const bool decays = o.decay_biases_and_norms || parameter.shape.rank() != 1;
  attrs.set("decay", decays ? o.decay : 0.0);
  if (o.clip_norm > 0 || o.scales_loss) attrs.set("clipped", int64_t{1});
  if (o.scales_loss) attrs.set("guarded", int64_t{1});
  if (o.clip_value > 0) attrs.set("clip_value", o.clip_value);
  return attrs;
}

Value square_sum(ir::Graph& graph, const std::vector<Update>& updates) {
  ir::Values gradients;
  for (const Update& u : updates) gradients.push_back(u.gradient);
  return ops::emit(graph, "square_sum", gradients);
}

// What all gradients are multiplied by, as PyTorch's clip_grad_norm_ has it. In this order a NaN stays one.
Value clip_factor(ir::Graph& graph, double most, Value norm) {
  auto constant = [&](double value) { return graph.constant(value, f32({})); };
  const Value ratio = ops::emit(graph, "div", {constant(most), ops::emit(graph, "add", {norm, constant(1e-6)})});
  return ops::emit(graph, "min", {constant(1), ratio});
}

// --- loss scaling ---------------------------------------------------------------------------------------------------
constexpr const char *kLossScale = "loss_scale", *kGoodSteps = "loss_scale.good";
constexpr double kFirstScale = 4096;  // powers of two: scaling rounds nothing
constexpr double kGoodRun = 500;      // steps without an overflow, after which it doubles
constexpr double kLargest = 0x1p127;  // a sum of squares beyond it counts as an overflow

Value read_scale(ir::Graph& graph, const char* name) {
  const double first = name == kLossScale ? kFirstScale : 0;
  graph.declare({name, f32({}), {{"role", "counter"}, {"init", "constant"}, {"value", first}}});
  return graph.read(name);
}

// Decides on the device whether the step counts, and what the next one's scale is.
struct Scaled {
  Value ok;      // 1, or 0 where a gradient is no finite number
  Value factor;  // of all gradients: what undoes the scale, times what clips them; 0 skips the step
};
Scaled unscale(ir::Graph& graph, const Optimizer& o, const std::vector<Update>& updates) {
  auto constant = [&](double value) { return graph.constant(value, f32({})); };
  auto emit = [&](const char* op, const ir::Values& inputs) { return ops::emit(graph, op, inputs); };
  const Value scale = read_scale(graph, kLossScale), good = read_scale(graph, kGoodSteps);
  const Value squares = square_sum(graph, updates);
  const Value ok = emit("greater", {constant(kLargest), squares});  // a NaN is not below it
  Value factor = emit("reciprocal", {scale});
  if (o.clip_norm > 0)
    factor = emit("mul", {factor, clip_factor(graph, o.clip_norm, emit("mul", {emit("sqrt", {squares}), factor}))});
  const Value run = emit("add", {good, constant(1)});
  const Value grows = emit("greater", {run, constant(kGoodRun - 0.5)});
  const Value larger = emit("select", {grows, emit("mul", {scale, constant(2)}), scale});
  const Value smaller = emit("max", {emit("mul", {scale, constant(0.5)}), constant(1)});
  graph.write(kLossScale, emit("select", {ok, larger, smaller}));
  graph.write(kGoodSteps, emit("mul", {ok, emit("select", {grows, constant(0), run})}));
  return {ok, emit("select", {ok, factor, constant(0)})};
}

void append_average(ir::Graph& graph, double decay, const std::string& parameter, Value fresh) {
  const ir::State state = ema_state(*graph.find_state(parameter));
  graph.declare(state);
  graph.write(state.name, ops::emit(graph, "ema", {graph.read(state.name), fresh}, {{"decay", decay}}));
}

}  // namespace

// The average starts as the parameter does: its attributes, and its random stream.
ir::State ema_state(const ir::State& parameter) {
  ir::State state = parameter;
  state.name = ema_name(parameter.name);
  state.attrs.set("role", "ema");
  if (!state.attrs.has("stream")) state.attrs.set("stream", parameter.name);
  return state;
}

Optimizer default_optimizer(Optimizer::Kind kind) {
  Optimizer o;
  o.kind = kind;
  if (kind == Optimizer::rmsprop) o.momentum = 0;
  if (kind == Optimizer::adagrad) o.eps = 1e-10;
  if (kind == Optimizer::lion) o.beta2 = 0.99;
  return o;
}

Optimizer::Kind parse_optimizer(std::string_view name) {
  for (auto kind : kKinds)
    if (name == name_of(kind)) return kind;
  fail("there is no optimizer `{}`: use sgd, adam, adamw, rmsprop, adagrad or lion", name);
}

std::string_view name_of(Optimizer::Kind kind) {
  switch (kind) {
    case Optimizer::sgd:
      return "sgd";
    case Optimizer::adam:
      return "adam";
    case Optimizer::adamw:
      return "adamw";
    case Optimizer::rmsprop:
      return "rmsprop";
    case Optimizer::adagrad:
      return "adagrad";
    case Optimizer::lion:
      return "lion";
  }
  return "";
}

std::vector<std::string> slot_names(const Optimizer& o) {
  std::vector<std::string> names;
  if (o.kind == Optimizer::adam || o.kind == Optimizer::adamw) names = {"exp_avg", "exp_avg_sq"};
  if (o.kind == Optimizer::lion) names = {"exp_avg"};
  if (o.kind == Optimizer::adagrad) names = {"sum"};
  if (o.kind == Optimizer::rmsprop) names = {"square_avg"};
  if ((o.kind == Optimizer::sgd || o.kind == Optimizer::rmsprop) && o.momentum != 0) names.push_back("momentum_buffer");
  if (o.kind == Optimizer::rmsprop && o.centered) names.push_back("grad_avg");
  return names;
}

Value scaled_loss(ir::Graph& graph, const Optimizer& optimizer, Value loss) {
  if (!optimizer.scales_loss) return loss;
  return ops::emit(graph, "mul", {loss, read_scale(graph, kLossScale)});
}

void append_updates(ir::Graph& graph, const Optimizer& optimizer, const std::vector<Update>& updates) {
  graph.declare({"optimizer.step", Type{DType::f32, {}}, {{"role", "counter"}, {"init", "zeros"}}});
  ir::Values scalars{graph.control("lr")};
  const Value step = graph.read("optimizer.step");
  if (counts_steps(optimizer.kind)) scalars.push_back(step);
  Value counted = ir::kNoValue;  // 1 for a step that is applied
  if (optimizer.scales_loss) {
    const Scaled scaled = unscale(graph, optimizer, updates);
    counted = scaled.ok;
    scalars.push_back(scaled.factor);
  } else if (optimizer.clip_norm > 0) {
    const Value norm = ops::emit(graph, "sqrt", {square_sum(graph, updates)});
    scalars.push_back(clip_factor(graph, optimizer.clip_norm, norm));
  }
  const std::vector<std::string> slots = slot_names(optimizer);
  ir::Values fresh_parameters;
  for (const auto& [parameter, gradient] : updates) {
    ir::Values inputs = scalars;
    inputs.insert(inputs.end(), {graph.read(parameter), gradient});
    for (const std::string& name : slots) inputs.push_back(slot(graph, optimizer, parameter, name));
    const ir::Values fresh =
        ops::emit_all(graph, op_of(optimizer.kind), inputs, attrs_for(optimizer, graph.find_state(parameter)->type));
    graph.write(parameter, fresh[0]);
    for (size_t i = 0; i < slots.size(); ++i) graph.write(parameter + "." + slots[i], fresh[i + 1]);
    fresh_parameters.push_back(fresh[0]);
  }
  if (optimizer.ema > 0)
    for (size_t i = 0; i < updates.size(); ++i)
      append_average(graph, optimizer.ema, updates[i].parameter, fresh_parameters[i]);
  if (!counts_steps(optimizer.kind)) return;
  if (counted == ir::kNoValue) counted = graph.constant(1, f32({}));
  graph.write("optimizer.step", ops::emit(graph, "add", {step, counted}));
}

}  // namespace situ::model
