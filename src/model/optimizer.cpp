#include "model/optimizer.h"

#include "base/error.h"
#include "ops/op.h"

namespace situ::model {
namespace {

using ir::Value;

Value slot(ir::Graph& graph, const std::string& parameter, const std::string& slot_name) {
  ir::State state = *graph.find_state(parameter);
  state.name = parameter + "." + slot_name;
  state.attrs.set("role", "slot").set("init", "zeros");
  state.attrs.erase("bound");
  graph.declare(state);
  return graph.read(state.name);
}

ir::Attrs sgd_attrs(const Optimizer& o) {
  return {{"momentum", o.momentum}, {"nesterov", int64_t{o.nesterov}}, {"decay", o.decay}};
}
ir::Attrs adam_attrs(const Optimizer& o) {
  return {{"beta1", o.beta1},
          {"beta2", o.beta2},
          {"eps", o.eps},
          {"decay", o.decay},
          {"decoupled", int64_t{o.kind == Optimizer::adamw}}};
}

}  // namespace

Optimizer::Kind parse_optimizer(std::string_view name) {
  for (auto kind : {Optimizer::sgd, Optimizer::adam, Optimizer::adamw})
    if (name == name_of(kind)) return kind;
  fail("there is no optimizer `{}`: use sgd, adam or adamw", name);
}

std::string_view name_of(Optimizer::Kind kind) {
  return kind == Optimizer::sgd ? "sgd" : kind == Optimizer::adam ? "adam" : "adamw";
}

std::vector<std::string> slot_names(const Optimizer& optimizer) {
  if (optimizer.kind != Optimizer::sgd) return {"exp_avg", "exp_avg_sq"};
  if (optimizer.momentum != 0) return {"momentum_buffer"};
  return {};
}

void append_updates(ir::Graph& graph, const Optimizer& optimizer, const std::vector<Update>& updates) {
  const Value lr = graph.control("lr");
  const bool is_sgd = optimizer.kind == Optimizer::sgd;
  graph.declare({"optimizer.step", Type{DType::f32, {}}, {{"role", "counter"}, {"init", "zeros"}}});
  const Value step = graph.read("optimizer.step");
  const std::vector<std::string> slots = slot_names(optimizer);
  for (const auto& [parameter, gradient] : updates) {
    ir::Values inputs = is_sgd ? ir::Values{lr} : ir::Values{lr, step};
    inputs.insert(inputs.end(), {graph.read(parameter), gradient});
    for (const std::string& name : slots) inputs.push_back(slot(graph, parameter, name));
    const ir::Values fresh =
        ops::emit_all(graph, is_sgd ? "sgd" : "adam", inputs, is_sgd ? sgd_attrs(optimizer) : adam_attrs(optimizer));
    graph.write(parameter, fresh[0]);
    for (size_t i = 0; i < slots.size(); ++i) graph.write(parameter + "." + slots[i], fresh[i + 1]);
  }
  if (!is_sgd) graph.write("optimizer.step", ops::emit(graph, "add", {step, graph.constant(1, f32({}))}));
}

}  // namespace situ::model
