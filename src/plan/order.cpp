// order.cpp -- launch order: the given one where possible, moved only so that every reader of a state comes before the
// launch that overwrites it. Where two states each need the other's old value (a swap), one is produced aside and
// copied.
#include <algorithm>
#include <map>
#include <queue>
#include <set>

#include "base/error.h"
#include "plan/plan.h"

namespace situ::plan {
namespace {

using ir::Node;
using ir::Value;
using Edges = std::vector<std::vector<int>>;  // node -> nodes that come later

// For each state: the launches that read it (through views too) and the one that produces its new value.
struct StateUse {
  std::vector<int> readers;
  int producer = -1, write = -1;
};

std::map<std::string, StateUse> state_uses(const ir::Graph& graph) {
  const std::vector<Part> parts = parts_of(graph);
  std::map<std::string, StateUse> uses;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (node.op == "write") {
      StateUse& use = uses[node.attrs.text("state")];
      use.write = static_cast<int>(n);
      use.producer = graph.values[static_cast<size_t>(node.inputs[0])].producer;
      continue;
    }
    for (Value v : node.inputs) {
      const Node& root = graph.producer(parts[static_cast<size_t>(v)].root);
      if (root.op == "read") uses[root.attrs.text("state")].readers.push_back(static_cast<int>(n));
    }
  }
  return uses;
}

Edges edges_of(const ir::Graph& graph, const std::map<std::string, StateUse>& uses) {
  Edges later(graph.nodes.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    for (Value v : graph.nodes[n].inputs)
      later[static_cast<size_t>(graph.values[static_cast<size_t>(v)].producer)].push_back(static_cast<int>(n));
  for (const auto& [state, use] : uses) {
    if (use.producer < 0) continue;
    for (int reader : use.readers)
      if (reader != use.producer) later[static_cast<size_t>(reader)].push_back(use.producer);
  }
  return later;
}

// Topological order, smallest index first; shorter than the graph if there is a cycle.
std::vector<int> sorted(const Edges& later) {
  std::vector<int> waiting(later.size());
  for (const auto& list : later)
    for (int n : list) ++waiting[static_cast<size_t>(n)];
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (size_t n = 0; n < later.size(); ++n)
    if (!waiting[n]) ready.push(static_cast<int>(n));
  std::vector<int> result;
  while (!ready.empty()) {
    const int n = ready.top();
    ready.pop();
    result.push_back(n);
    for (int next : later[static_cast<size_t>(n)])
      if (--waiting[static_cast<size_t>(next)] == 0) ready.push(next);
  }
  return result;
}

ir::Graph copy_instead(const ir::Graph& graph, int write) {
  ir::Rebuild rebuild(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (static_cast<int>(n) != write) {
      rebuild.copy(graph.nodes[n]);
      continue;
    }
    const Value v = rebuild(graph.nodes[n].inputs[0]);
    const Value copy = rebuild.to.append("copy", {v}, {rebuild.to.type(v)}).outputs[0];
    rebuild.to.write(graph.nodes[n].attrs.text("state"), copy);
  }
  return std::move(rebuild.to);
}

// A write whose producer is stuck in a cycle although it is not itself a copy made for this purpose.
int write_to_demote(const ir::Graph& graph, const std::map<std::string, StateUse>& uses, const std::vector<int>& done) {
  const std::set<int> finished(done.begin(), done.end());
  for (const auto& [state, use] : uses) {
    if (use.producer < 0 || finished.count(use.producer)) continue;
    const bool blocked = std::any_of(use.readers.begin(), use.readers.end(),
                                     [&](int r) { return r != use.producer && !finished.count(r); });
    const Node& producer = graph.nodes[static_cast<size_t>(use.producer)];
    const bool copies_launch = producer.op == "copy" && is_launch(graph.producer(producer.inputs[0]));
    if (blocked && !copies_launch) return use.write;
  }
  return -1;
}

}  // namespace

ir::Graph order(const ir::Graph& given) {
  ir::Graph graph = given;
  while (true) {
    const auto uses = state_uses(graph);
    const std::vector<int> sequence = sorted(edges_of(graph, uses));
    if (sequence.size() == graph.nodes.size()) {
      ir::Rebuild rebuild(graph);
      for (int n : sequence)
        if (graph.nodes[static_cast<size_t>(n)].op != "write") rebuild.copy(graph.nodes[static_cast<size_t>(n)]);
      for (int n : sequence)
        if (graph.nodes[static_cast<size_t>(n)].op == "write") rebuild.copy(graph.nodes[static_cast<size_t>(n)]);
      return std::move(rebuild.to);
    }
    const int write = write_to_demote(graph, uses, sequence);
    SITU_ASSERT(write >= 0, "the graph of {} has a cycle", graph.name);
    graph = copy_instead(graph, write);
  }
}

}  // namespace situ::plan
