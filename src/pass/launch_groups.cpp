// launch_groups.cpp -- in a launch list, small launches of one kind that wait for nothing in the program become one.
//
//   p = pack(w) {joins, nv=[4]}; .. q = pack(v) {joins, nv=[2]}; ..  ->  p, q = pack(w, v) {joins, nv=[4,2]}; ..
// A launch with the attribute `joins` takes any number of operands and gives as many results; the lists among its
// attributes have an entry for each. Those that read only what the program starts with, which are the panels of weights
// for the backward pass, may be launched where the first of a group is. Their results live longer then, so groups are
// small.
#include <algorithm>

#include "pass/pass.h"
#include "pass/result_bytes.h"

namespace situ::pass {
namespace {

constexpr size_t kMostMembers = 4;          // with two tensors each they lie in eight slabs at most
constexpr int64_t kMostBytes = 512 * 1024;  // of a group's results

struct Group {
  std::vector<size_t> nodes;
  int64_t bytes = 0;
};

bool may_join(const ir::Graph& graph, const ir::Node& node) {
  return node.attrs.flag("joins") &&
         std::ranges::all_of(node.inputs, [&](ir::Value v) { return ir::is_source(graph.producer(v).op); });
}

bool fits(const ir::Graph& graph, const Group& group, const ir::Node& node) {
  const ir::Node& first = graph.nodes[group.nodes.front()];
  return first.op == node.op && group.nodes.size() < kMostMembers &&
         group.bytes + result_bytes(graph, node) <= kMostBytes;
}

std::vector<Group> groups_of(const ir::Graph& graph) {
  std::vector<Group> groups;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const ir::Node& node = graph.nodes[n];
    if (!may_join(graph, node)) continue;
    if (groups.empty() || !fits(graph, groups.back(), node)) groups.emplace_back();
    groups.back().nodes.push_back(n);
    groups.back().bytes += result_bytes(graph, node);
  }
  return groups;
}

// Appends the group as one node.
void emit(ir::Rebuild& rebuild, const ir::Graph& graph, const Group& group) {
  const ir::Node& first = graph.nodes[group.nodes.front()];
  ir::Attrs attrs = first.attrs;
  ir::Values inputs, outputs;
  std::vector<Type> types;
  for (size_t n : group.nodes) {
    const ir::Node& node = graph.nodes[n];
    if (n != group.nodes.front())
      for (const auto& [name, value] : node.attrs.entries())
        if (const auto* list = std::get_if<ir::Ints>(&value)) {
          ir::Ints joined = attrs.ints(name);
          joined.insert(joined.end(), list->begin(), list->end());
          attrs.set(name, joined);
        }
    inputs.insert(inputs.end(), node.inputs.begin(), node.inputs.end());
    outputs.insert(outputs.end(), node.outputs.begin(), node.outputs.end());
  }
  for (ir::Value v : outputs) types.push_back(graph.type(v));
  const ir::Values joined = rebuild.to.append(first.op, rebuild(inputs), types, attrs).outputs;
  for (size_t i = 0; i < outputs.size(); ++i) rebuild.map(outputs[i], joined[i]);
}

}  // namespace

ir::Graph launch_groups(const ir::Graph& graph) {
  const std::vector<Group> groups = groups_of(graph);
  std::vector<const Group*> leads(graph.nodes.size());
  std::vector<bool> done(graph.nodes.size());
  ir::Rebuild rebuild(graph);
  for (const Group& group : groups) {
    leads[group.nodes.front()] = &group;
    for (size_t n : group.nodes) done[n] = true;
  }
  // What a group reads may stand behind its first member: all that comes first.
  for (const Group& group : groups)
    for (size_t n : group.nodes)
      for (ir::Value v : graph.nodes[n].inputs) {
        const auto source = static_cast<size_t>(graph.values[static_cast<size_t>(v)].producer);
        if (!done[source]) rebuild.copy(graph.nodes[source]);
        done[source] = true;
      }
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (leads[n]) emit(rebuild, graph, *leads[n]);
    if (!done[n]) rebuild.copy(graph.nodes[n]);
  }
  return std::move(rebuild.to);
}

}  // namespace situ::pass
