// update_grouping.cpp -- the updates of all parameters that share settings and scalars become one node, so one launch:
// sgd(lr, w0, g0, m0) and sgd(lr, w1, g1, m1) -> sgd(lr, w0, g0, m0, w1, g1, m1).
//
// The group stands where its last member stood; writes move to the end, since nothing may read what they replace, and
// averages of updated parameters (ema) right before them, since those come from any group.
#include <map>

#include "ops/update.h"
#include "pass/pass.h"

namespace situ::pass {
namespace {

// How many leading operands all members share: the scalars.
size_t shared_operands(const ir::Node& node) {
  return static_cast<size_t>(ops::update_layout(node.op, node.attrs).scalars());
}

std::string group_key(const ir::Node& node) {
  std::string key = node.op + ir::to_string(node.attrs);
  for (size_t i = 0; i < shared_operands(node); ++i) key += " %" + std::to_string(node.inputs[i]);
  return key;
}

void emit_group(ir::Rebuild& rebuild, const ir::Graph& graph, const std::vector<const ir::Node*>& members) {
  const ir::Node& first = *members[0];
  const size_t shared = shared_operands(first);
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

// The updates that may move: their results are only written, or averaged by an ema that may move too. Any other reader
// keeps an update in its place.
std::vector<bool> movable_updates(const ir::Graph& graph) {
  const auto users = ir::users_of(graph);
  std::vector<bool> movable(graph.nodes.size());
  for (size_t n = graph.nodes.size(); n-- > 0;) {  // readers come before what they read
    const ir::Node& node = graph.nodes[n];
    movable[n] = ops::is_update(node.op);
    for (ir::Value v : node.outputs)
      for (int user : users[static_cast<size_t>(v)]) {
        const auto u = static_cast<size_t>(user);
        if (graph.nodes[u].op != "write" && !(graph.nodes[u].op == "ema" && node.op != "ema" && movable[u]))
          movable[n] = false;
      }
  }
  return movable;
}

}  // namespace

ir::Graph update_grouping(const ir::Graph& graph) {
  using Members = std::vector<const ir::Node*>;
  const std::vector<bool> movable = movable_updates(graph);
  std::map<std::string, Members> groups;
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    if (movable[n]) groups[group_key(graph.nodes[n])].push_back(&graph.nodes[n]);

  ir::Rebuild rebuild(graph);
  Members writes;
  std::vector<const Members*> averages;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const ir::Node& node = graph.nodes[n];
    if (node.op == "write") {
      writes.push_back(&node);
    } else if (!movable[n]) {
      rebuild.copy(node);
    } else if (const Members& members = groups.at(group_key(node)); members.back() == &node) {
      if (node.op == "ema")
        averages.push_back(&members);
      else
        emit_group(rebuild, graph, members);
    }
  }
  for (const Members* members : averages) emit_group(rebuild, graph, *members);
  for (const ir::Node* node : writes) rebuild.copy(*node);
  return std::move(rebuild.to);
}

}  // namespace situ::pass
