#include "model/summary.h"

#include <algorithm>

#include "model/init.h"

namespace situ::model {
namespace {

constexpr int64_t kSamples = 2;  // statistics need more than one

double flops_of(const ir::Graph& graph, const BuiltLayer& layer) {
  double flops = 0;
  for (size_t n = layer.first_node; n < layer.end_node; ++n)
    if (!ir::is_structural(graph.nodes[n].op)) flops += ops::cost_of(graph, graph.nodes[n]).flops;
  return flops;
}

Type one_sample(const Type& batch) {
  const std::vector<int64_t> dims = batch.shape.dims();
  return {batch.dtype, Shape(std::vector<int64_t>(dims.begin() + 1, dims.end()))};
}

bool declares(const std::string& state, const std::string& layer) {
  return state == layer || state.starts_with(layer + ".");
}

std::string in_thousands(int64_t value) {
  std::string text = std::to_string(value);
  for (size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, ",");
  return text;
}

}  // namespace

Summary summarise(const Model& model, const Partial& partial) {
  ir::Graph graph;
  const ir::Value x = graph.input("x", batch_of(kSamples, model.input));
  const Built built = build(model, graph, x, {.training = true, .partial = partial});
  Summary summary;
  std::vector<bool> counted(graph.states.size());
  for (const BuiltLayer& layer : built.layers) {
    LayerSummary row{layer.spec.name, layer.spec.kind, one_sample(graph.type(layer.output))};
    row.flops = flops_of(graph, layer) / kSamples;
    const bool view = ops::find(graph.producer(layer.output).op) && ops::get(graph.producer(layer.output).op).view;
    row.activation_bytes = view ? 0 : row.output.count() * 4;
    for (size_t i = 0; i < graph.states.size(); ++i) {
      const ir::State& state = graph.states[i];
      if (counted[i] || !has_role(state, "parameter") || !declares(state.name, row.name)) continue;
      counted[i] = true;
      row.parameters += state.type.count();
      if (is_trained(state)) summary.trained += state.type.count();
    }
    summary.parameters += row.parameters;
    summary.flops += row.flops;
    summary.activation_bytes += row.activation_bytes;
    summary.layers.push_back(std::move(row));
  }
  return summary;
}

std::string table_of(const Model& model, const Summary& summary) {
  size_t name = 5, kind = 4, shape = 6;
  for (const LayerSummary& l : summary.layers) {
    name = std::max(name, l.name.size());
    kind = std::max(kind, l.kind.size());
    shape = std::max(shape, to_string(l.output).size());
  }
  std::string text = fmt::format("{}: input {}, {} classes\n\n{:<{}}  {:<{}}  {:<{}}  {:>13}  {:>10}  {:>10}\n",
                                 model.name, to_string(model.input), model.classes, "layer", name, "kind", kind,
                                 "result", shape, "parameters", "MFLOP", "KiB");
  for (const LayerSummary& l : summary.layers)
    text += fmt::format("{:<{}}  {:<{}}  {:<{}}  {:>13}  {:>10.3f}  {:>10.1f}\n", l.name, name, l.kind, kind,
                        to_string(l.output), shape, l.parameters ? in_thousands(l.parameters) : "", l.flops * 1e-6,
                        static_cast<double>(l.activation_bytes) / 1024);
  text +=
      fmt::format("\n{} parameters, {} of them trained; forward {:.1f} MFLOP and {:.1f} KiB of results per sample\n",
                  in_thousands(summary.parameters), in_thousands(summary.trained), summary.flops * 1e-6,
                  static_cast<double>(summary.activation_bytes) / 1024);
  return text;
}

}  // namespace situ::model
