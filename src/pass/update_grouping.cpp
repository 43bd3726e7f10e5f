// update_grouping.cpp -- the updates of all parameters that share settings and scalars become one node, so one launch:
// sgd(lr, w0, g0, m0) and sgd(lr, w1, g1, m1) -> sgd(lr, w0, g0, m0, w1, g1, m1).
//
// Gradients live until they are used, so a large model gets several groups: each stands where the last of its gradients
// is known, and its gradients' memory is free from there on. The last group (of a small model: the only one) stands
// where its last member stood; writes move to the end, since nothing may read what they replace, and averages of
// updated parameters (ema) right before them, since those come from any group.
#include <algorithm>
#include <map>

#include "ops/update.h"
#include "pass/pass.h"

namespace situ::pass {
namespace {

using Members = std::vector<const ir::Node*>;
struct Group {
  Members members;
  size_t ready = 0;  // the node after which all operands are known
};
constexpr int64_t kGroupBytes = int64_t{8} << 20;  // of parameters: worth a launch

// How many leading operands all members share: the scalars.
size_t shared_operands(const ir::Node& node) {
  return static_cast<size_t>(ops::update_layout(node.op, node.attrs).scalars());
}

std::string group_key(const ir::Node& node) {
  std::string key = node.op + ir::to_string(node.attrs);
  for (size_t i = 0; i < shared_operands(node); ++i) key += " %" + std::to_string(node.inputs[i]);
  return key;
}

// For each node: the last node it waits for that depends on the batch, itself if it does; 0: none. What depends on
// states and scalars alone can be had at any time.
std::vector<size_t> known_after(const ir::Graph& graph) {
  std::vector<size_t> known(graph.nodes.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    bool waits = graph.nodes[n].op == "input";
    for (ir::Value v : graph.nodes[n].inputs)
      waits |= known[static_cast<size_t>(graph.values[static_cast<size_t>(v)].producer)] > 0;
    known[n] = waits ? std::max<size_t>(n, 1) : 0;
  }
  return known;
}

std::vector<Group> cut(const ir::Graph& graph, const Members& members, const std::vector<size_t>& known) {
  const auto ready = [&](const ir::Node* node) {
    size_t last = 0;
    for (ir::Value v : node->inputs)
      last = std::max(last, known[static_cast<size_t>(graph.values[static_cast<size_t>(v)].producer)]);
    return last;
  };
  int64_t bytes = 0;
  for (const ir::Node* node : members) bytes += 4 * graph.type(node->outputs[0]).count();
  if (bytes <= kGroupBytes) return {{members, 0}};
  Members sorted = members;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const ir::Node* a, const ir::Node* b) { return ready(a) < ready(b); });
  std::vector<Group> groups(1);
  bytes = 0;
  for (const ir::Node* node : sorted) {
    if (bytes >= kGroupBytes && ready(node) > groups.back().ready) {
      groups.emplace_back();
      bytes = 0;
    }
    groups.back().members.push_back(node);
    groups.back().ready = ready(node);
    bytes += 4 * graph.type(node->outputs[0]).count();
  }
  return groups;
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
  const std::vector<bool> movable = movable_updates(graph);
  const std::vector<size_t> known = known_after(graph);
  std::map<std::string, Members> by_key;
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    if (movable[n]) by_key[group_key(graph.nodes[n])].push_back(&graph.nodes[n]);
  std::vector<Members> averages;
  std::multimap<size_t, Members> early;            // by the node that they follow
  std::map<const ir::Node*, const Members*> late;  // by the member in whose place they stand
  std::vector<Group> last_groups;
  last_groups.reserve(by_key.size());
  for (const auto& [key, members] : by_key) {
    std::vector<Group> groups = members[0]->op == "ema" ? std::vector<Group>{{members, 0}} : cut(graph, members, known);
    for (size_t i = 0; i + 1 < groups.size(); ++i) early.emplace(groups[i].ready, std::move(groups[i].members));
    last_groups.push_back(std::move(groups.back()));
    late[members.back()] = &last_groups.back().members;
  }

  ir::Rebuild rebuild(graph);
  std::vector<bool> done(graph.nodes.size());
  const auto copy = [&](const auto& self, size_t n) -> void {  // with what it needs, as far as that is not there
    if (done[n]) return;
    done[n] = true;
    for (ir::Value v : graph.nodes[n].inputs)
      self(self, static_cast<size_t>(graph.values[static_cast<size_t>(v)].producer));
    rebuild.copy(graph.nodes[n]);
  };
  const auto emit = [&](const Members& members) {
    for (const ir::Node* member : members)
      for (ir::Value v : member->inputs) copy(copy, static_cast<size_t>(graph.values[static_cast<size_t>(v)].producer));
    emit_group(rebuild, graph, members);
  };
  Members writes;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const ir::Node& node = graph.nodes[n];
    if (node.op == "write")
      writes.push_back(&node);
    else if (!movable[n])
      copy(copy, n);
    else if (const auto group = late.find(&node); group != late.end() && node.op == "ema")
      averages.push_back(*group->second);
    else if (group != late.end())
      emit(*group->second);
    const auto [first, last] = early.equal_range(n);
    for (auto it = first; it != last; ++it) emit(it->second);
  }
  for (const Members& members : averages) emit_group(rebuild, graph, members);
  for (const ir::Node* node : writes) rebuild.copy(*node);
  return std::move(rebuild.to);
}

}  // namespace situ::pass
