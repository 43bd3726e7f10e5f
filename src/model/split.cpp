#include "model/split.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "model/build.h"
#include "model/init.h"

namespace situ::model {
namespace {

// Whether training changes what this layer does from one step to the next: its parameters, its statistics, its dice.
bool changes(const ir::Graph& graph, const BuiltLayer& layer) {
  for (size_t i = layer.first_node; i < layer.end_node; ++i) {
    const ir::Node& node = graph.nodes[i];
    if (node.op == "write" || node.op == "dropout") return true;
    if (node.op == "read" && is_trained(*graph.find_state(node.attrs.text("state")))) return true;
  }
  return false;
}

std::set<std::string> states_read(const ir::Graph& graph, const BuiltLayer& layer) {
  std::set<std::string> names;
  for (size_t i = layer.first_node; i < layer.end_node; ++i)
    if (graph.nodes[i].op == "read") names.insert(graph.nodes[i].attrs.text("state"));
  return names;
}

// Whether the layers from `cut` on read nothing of those before it but the result of the last one.
bool one_value_crosses(const Model& model, const ir::Graph& graph, const Built& built, size_t cut) {
  std::set<std::string> before{"x"}, states;
  for (size_t i = 0; i < cut; ++i) {
    if (i + 1 < cut) before.insert(model.layers[i].name);
    states.merge(states_read(graph, built.layers[i]));
  }
  for (size_t i = cut; i < model.layers.size(); ++i) {
    for (const std::string& input : model.layers[i].inputs)
      if (before.contains(input)) return false;
    for (const std::string& state : states_read(graph, built.layers[i]))
      if (states.contains(state)) return false;  // a tied table
  }
  return true;
}

}  // namespace

Split split_frozen(const Model& model, const Partial& partial) {
  ir::Graph graph;
  const Built built = build(model, graph, graph.input("x", batch_of(1, model.input)), {true, partial});
  size_t frozen = 0;
  while (frozen < built.layers.size() && !changes(graph, built.layers[frozen])) ++frozen;
  size_t cut = std::min(frozen, model.layers.size() - 1);
  while (cut > 0 && !one_value_crosses(model, graph, built, cut)) --cut;
  if (cut == 0)
    fail("model {} has no frozen part in front of what is trained: freeze one, such as with --train last", model.name);

  Split split{model, model};
  split.front.layers.resize(cut);
  const Shape across = graph.type(built.layers[cut - 1].output).shape;
  split.front.classes = static_cast<int>(across.cols());
  split.rest.layers.erase(split.rest.layers.begin(), split.rest.layers.begin() + static_cast<long>(cut));
  const std::vector<int64_t> dims = across.dims();
  split.rest.input = f32(Shape(std::vector<int64_t>(dims.begin() + 1, dims.end())));
  for (LayerSpec& layer : split.rest.layers)
    std::replace(layer.inputs.begin(), layer.inputs.end(), model.layers[cut - 1].name, std::string("x"));
  return split;
}

}  // namespace situ::model
