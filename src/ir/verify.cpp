#include "ir/verify.h"

#include <map>
#include <set>

#include "base/error.h"
#include "ir/text.h"

namespace situ::ir {
namespace {

void check_definitions(const Graph& graph) {
  std::vector<bool> defined(graph.values.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    for (Value v : node.inputs) {
      SITU_ASSERT(v >= 0 && static_cast<size_t>(v) < defined.size(), "node {} reads no value", n);
      SITU_ASSERT(defined[static_cast<size_t>(v)], "%{} is used before its definition: {}", v, print(graph, node));
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const auto v = static_cast<size_t>(node.outputs[i]);
      SITU_ASSERT(v < defined.size() && !defined[v], "%{} is defined twice", v);
      SITU_ASSERT(graph.values[v].producer == static_cast<int>(n) && graph.values[v].index == static_cast<int>(i),
                  "%{} does not know its producer", v);
      defined[v] = true;
    }
  }
}

void check_structure(const Graph& graph, const Node& node) {
  if (is_source(node.op)) SITU_ASSERT(node.inputs.empty() && node.outputs.size() == 1, "{}", print(graph, node));
  if (node.op == "input" || node.op == "control" || node.op == "output")
    SITU_ASSERT(node.attrs.has("name"), "{}", print(graph, node));
  if (node.op == "control") SITU_ASSERT(graph.type(node.outputs[0]).shape.rank() == 0, "{}", print(graph, node));
  if (node.op == "output" || node.op == "write")
    SITU_ASSERT(node.inputs.size() == 1 && node.outputs.empty(), "{}", print(graph, node));
  if (node.op == "read" || node.op == "write") {
    const State* state = graph.find_state(node.attrs.text("state"));
    SITU_ASSERT(state, "undeclared state: {}", print(graph, node));
    const Type& type = graph.type(node.op == "read" ? node.outputs[0] : node.inputs[0]);
    SITU_ASSERT(type == state->type, "state {} is {}: {}", state->name, to_string(state->type), print(graph, node));
  }
}

void check_states(const Graph& graph) {
  std::set<std::string> written;
  for (const Node& node : graph.nodes) {
    if (node.op != "read" && node.op != "write") continue;
    const std::string& state = node.attrs.text("state");
    SITU_ASSERT(!written.count(state), "state {} is written, then used again: {}", state, print(graph, node));
    if (node.op == "write") written.insert(state);
  }
}

void check_names(const Graph& graph) {
  std::map<std::string, Type> inputs;
  std::set<std::string> outputs;
  for (const Node& node : graph.nodes) {
    if (node.op == "output")
      SITU_ASSERT(outputs.insert(node.attrs.text("name")).second, "two outputs: {}", print(graph, node));
    if (node.op != "input") continue;
    auto [it, fresh] = inputs.emplace(node.attrs.text("name"), graph.type(node.outputs[0]));
    SITU_ASSERT(fresh || it->second == graph.type(node.outputs[0]), "two types: {}", print(graph, node));
  }
}

}  // namespace

void verify(const Graph& graph) {
  check_definitions(graph);
  for (const Node& node : graph.nodes) check_structure(graph, node);
  check_states(graph);
  check_names(graph);
}

}  // namespace situ::ir
