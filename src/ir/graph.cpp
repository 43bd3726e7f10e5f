#include "ir/graph.h"

#include <algorithm>

#include "base/error.h"

namespace situ::ir {

const State* Graph::find_state(std::string_view state) const {
  for (const State& s : states)
    if (s.name == state) return &s;
  return nullptr;
}

void Graph::declare(const State& state) {
  const State* known = find_state(state.name);
  if (!known)
    states.push_back(state);
  else if (!(known->type == state.type))
    fail("state `{}` is declared as {} and as {}: use one shape, or another name", state.name, to_string(known->type),
         to_string(state.type));
}

const Node& Graph::append(std::string_view op, const Values& inputs, const std::vector<Type>& types,
                          const Attrs& attrs) {
  Node node{std::string(op), inputs, {}, attrs, origin};
  for (size_t i = 0; i < types.size(); ++i) {
    node.outputs.push_back(static_cast<Value>(values.size()));
    values.push_back({types[i], static_cast<int>(nodes.size()), static_cast<int>(i)});
  }
  return nodes.emplace_back(std::move(node));
}

Value Graph::input(std::string_view input_name, const Type& type) {
  return append("input", {}, {type}, {{"name", std::string(input_name)}}).outputs[0];
}
Value Graph::control(std::string_view field, DType dtype) {
  return append("control", {}, {Type{dtype, {}}}, {{"name", std::string(field)}}).outputs[0];
}
Value Graph::constant(double value, const Type& type) {
  return append("const", {}, {type}, {{"value", value}}).outputs[0];
}
Value Graph::read(std::string_view state) {
  const State* s = find_state(state);
  SITU_ASSERT(s, "read of undeclared state {}", state);
  return append("read", {}, {s->type}, {{"state", std::string(state)}}).outputs[0];
}
void Graph::write(std::string_view state, Value value) {
  append("write", {value}, {}, {{"state", std::string(state)}});
}
void Graph::output(std::string_view output_name, Value value) {
  append("output", {value}, {}, {{"name", std::string(output_name)}});
}

bool is_source(std::string_view op) { return op == "input" || op == "control" || op == "const" || op == "read"; }
bool is_structural(std::string_view op) { return is_source(op) || op == "write" || op == "output"; }

std::vector<std::vector<int>> users_of(const Graph& graph) {
  std::vector<std::vector<int>> users(graph.values.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    for (Value v : graph.nodes[n].inputs) {
      auto& list = users[static_cast<size_t>(v)];
      if (list.empty() || list.back() != static_cast<int>(n)) list.push_back(static_cast<int>(n));
    }
  return users;
}

void fill_origins(Graph& graph) {
  const auto users = users_of(graph);
  for (size_t n = graph.nodes.size(); n-- > 0;)
    for (Value v : graph.nodes[n].outputs)
      for (int user : users[static_cast<size_t>(v)])
        if (graph.nodes[n].origin.layer.empty()) graph.nodes[n].origin = graph.nodes[static_cast<size_t>(user)].origin;
  for (Node& node : graph.nodes)
    for (Value v : node.inputs)
      if (node.origin.layer.empty()) node.origin = graph.producer(v).origin;
}

void Rebuild::map(Value old, Value fresh) {
  map_[static_cast<size_t>(old)] = fresh;
  Origin& origin = to.nodes[static_cast<size_t>(to.values[static_cast<size_t>(fresh)].producer)].origin;
  if (origin.layer.empty()) origin = from_.producer(old).origin;
}

Value Rebuild::operator()(Value old) const {
  const Value fresh = map_[static_cast<size_t>(old)];
  SITU_ASSERT(fresh != kNoValue, "value %{} is used before it is rebuilt", old);
  return fresh;
}

Values Rebuild::operator()(const Values& olds) const {
  Values result;
  for (Value v : olds) result.push_back((*this)(v));
  return result;
}

void Rebuild::copy(const Node& node) {
  std::vector<Type> types;
  for (Value v : node.outputs) types.push_back(from_.type(v));
  const Values fresh = to.append(node.op, (*this)(node.inputs), types, node.attrs).outputs;
  to.nodes.back().origin = node.origin;
  for (size_t i = 0; i < fresh.size(); ++i) map(node.outputs[i], fresh[i]);
}

}  // namespace situ::ir
