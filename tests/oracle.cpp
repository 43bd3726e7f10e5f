#include "oracle.h"

#include "ops/magnitude.h"

namespace situ::oracle {
namespace {

std::vector<ops::RefTensor> refs(const std::vector<Type>& types, Tensors& values) {
  std::vector<ops::RefTensor> tensors;
  for (size_t i = 0; i < types.size(); ++i) tensors.push_back({types[i], values[i].data()});
  return tensors;
}

Tensors call(const ops::OpView& view, Tensors inputs, void (*run_op)(const ops::OpDef&, const ops::RefCall&)) {
  SITU_ASSERT(inputs.size() == view.ins.size(), "{} inputs for {}", inputs.size(), view.op);
  Tensors outputs;
  for (const Type& t : view.outs) outputs.emplace_back(static_cast<size_t>(t.count()));
  const auto in = refs(view.ins, inputs), out = refs(view.outs, outputs);
  run_op(ops::get(view.op), {view.attrs, in, out});
  return outputs;
}

const Tensor& named(const Named& values, const std::string& name, const Type& type) {
  const auto it = values.find(name);
  if (it == values.end()) fail("no values are given for `{}`", name);
  SITU_ASSERT(static_cast<int64_t>(it->second.size()) == type.count(), "values of {}", name);
  return it->second;
}

Tensor source(const ir::Graph& graph, const ir::Node& node, const Named& inputs, const Named& states) {
  const Type& type = graph.type(node.outputs[0]);
  if (node.op == "const") return Tensor(static_cast<size_t>(type.count()), node.attrs.number("value"));
  if (node.op == "read") return named(states, node.attrs.text("state"), type);
  return named(inputs, node.attrs.text("name"), type);
}

}  // namespace

Tensors run(const ops::OpView& view, const Tensors& inputs) {
  return call(view, inputs, [](const ops::OpDef& op, const ops::RefCall& c) { op.reference(c); });
}

Tensors magnitudes(const ops::OpView& view, const Tensors& inputs) { return call(view, inputs, ops::run_magnitude); }

Tensors evaluate(const ir::Graph& graph, const Named& inputs, const Named& states) {
  Tensors values(graph.values.size());
  for (const ir::Node& node : graph.nodes) {
    if (ir::is_source(node.op)) {
      values[static_cast<size_t>(node.outputs[0])] = source(graph, node, inputs, states);
    } else if (!ir::is_structural(node.op)) {
      Tensors operands;
      for (ir::Value v : node.inputs) operands.push_back(values[static_cast<size_t>(v)]);
      Tensors results = run(ops::view_of(graph, node), operands);
      for (size_t i = 0; i < results.size(); ++i) values[static_cast<size_t>(node.outputs[i])] = std::move(results[i]);
    }
  }
  return values;
}

Single single(const ops::OpDef& op, const ops::Example& example, uint64_t seed) {
  Single s;
  s.graph.name = "single";
  ir::Values operands;
  for (size_t i = 0; i < example.inputs.size(); ++i) {
    operands.push_back(s.graph.input(fmt::format("i{}", i), example.inputs[i].type));
    s.inputs.push_back(ops::example_values(example.inputs[i], seed * 1000 + i));
  }
  const ir::Values results = ops::emit_all(s.graph, op.name, operands, example.attrs);
  s.node = static_cast<int>(s.graph.nodes.size()) - 1;
  for (size_t i = 0; i < results.size(); ++i) s.graph.output(fmt::format("o{}", i), results[i]);
  return s;
}

Named Single::named() const {
  Named values;
  for (size_t i = 0; i < inputs.size(); ++i) values[fmt::format("i{}", i)] = inputs[i];
  return values;
}

std::vector<ops::Example> examples_from(std::string_view op, std::string_view text) {
  ops::OpDef def = ops::get(op);
  def.examples = text;
  return ops::examples(def);
}

}  // namespace situ::oracle
