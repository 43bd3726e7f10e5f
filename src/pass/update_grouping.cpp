// update_grouping.cpp -- the updates of all parameters that share settings and scalars become one node, so one launch:
// sgd(lr, w0, g0, m0) and sgd(lr, w1, g1, m1) -> sgd(lr, w0, g0, m0, w1, g1, m1).
//
// The group stands where its last member stood; writes move to the end, since nothing may read what they replace.
#include <map>

#include "ops/op.h"
#include "pass/pass.h"

namespace situ::pass {
namespace {

// How many leading operands all members share (the scalars); 0: no update op.
size_t shared_operands(const std::string& op) { return op == "sgd" ? 1 : op == "adam" ? 2 : 0; }

std::string group_key(const ir::Node& node) {
  std::string key = node.op + ir::to_string(node.attrs);
  for (size_t i = 0; i < shared_operands(node.op); ++i) key += " %" + std::to_string(node.inputs[i]);
  return key;
}

void emit_group(ir::Rebuild& rebuild, const ir::Graph& graph, const std::vector<const ir::Node*>& members) {
  const ir::Node& first = *members[0];
  const size_t shared = shared_operands(first.op);
  ir::Values inputs = rebuild(ir::Values(first.inputs.begin(), first.inputs.begin() + static_cast<long>(shared)));
  std::vector<Type> types;
  for (const ir::Node* member : members) {
    for (size_t i = shared; i < member->inputs.size(); ++i) inputs.push_back(rebuild(member->inputs[i]));
    for (ir::Value v : member->outputs) types.push_back(graph.type(v));
  }
  const ir::Values fresh = rebuild.to.append(first.op, inputs, types, first.attrs).outputs;
  size_t next = 0;
  for (const ir::Node* member : members)
    for (ir::Value v : member->outputs) rebuild.map(v, fresh[next++]);
}

}  // namespace

ir::Graph update_grouping(const ir::Graph& graph) {
  std::map<std::string, std::vector<const ir::Node*>> groups;
  const auto users = ir::users_of(graph);
  auto only_written = [&](const ir::Node& node) {  // a result read inside the program keeps its own place
    for (ir::Value v : node.outputs)
      for (int user : users[static_cast<size_t>(v)])
        if (graph.nodes[static_cast<size_t>(user)].op != "write") return false;
    return true;
  };
  for (const ir::Node& node : graph.nodes)
    if (shared_operands(node.op) && only_written(node)) groups[group_key(node)].push_back(&node);

  ir::Rebuild rebuild(graph);
  std::vector<const ir::Node*> writes;
  for (const ir::Node& node : graph.nodes) {
    if (node.op == "write") {
      writes.push_back(&node);
      continue;
    }
    const auto group = shared_operands(node.op) && only_written(node) ? groups.find(group_key(node)) : groups.end();
    if (group == groups.end())
      rebuild.copy(node);
    else if (group->second.back() == &node)
      emit_group(rebuild, graph, group->second);
  }
  for (const ir::Node* node : writes) rebuild.copy(*node);
  return std::move(rebuild.to);
}

}  // namespace situ::pass
