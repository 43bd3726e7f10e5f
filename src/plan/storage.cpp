// storage.cpp -- which values of a launch list are stored as half: activations and their gradients.
//
// A value is stored as half if it depends on the batch (or a state that stands for a part of it, `activation`), has at
// least two axes, and the launch that makes it and all that read it take half there. What enters or leaves a program
// (inputs, states, outputs) stays f32, and so does what a kernel does not offer: statistics, losses, gradients of
// parameters, partial sums; and what a launch only moves elsewhere, if it lies there as f32: rounding would be all that
// came of it. Views share memory, so all names of one tensor go together. Kernels convert where they load
// and store: no launch is added.
#include <numeric>

#include "plan/plan.h"

namespace situ::plan {
namespace {

using ir::Node;
using ir::Value;

// The same numbers in another order, as candidates want them.
bool only_moves(const Node& node) {
  return node.op.starts_with("pack") || node.op == "pad" || node.op == "transpose" || node.op == "interleave_images" ||
         node.op == "spread_images";
}

size_t at(Value v) { return static_cast<size_t>(v); }

class Storage {
 public:
  Storage(const ir::Graph& graph, const device::Device& device, const std::vector<bool>& keep)
      : graph_(graph), group_(graph.values.size()), refused_(graph.values.size()), fresh_(graph.values.size()) {
    std::iota(group_.begin(), group_.end(), 0);
    for (const Node& node : graph.nodes)
      if (is_view(node)) join(node);
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      const Node& node = graph.nodes[n];
      if (is_launch(node)) ask(node, device, keep[n]);
      if (ir::is_structural(node.op)) refuse(node.inputs), refuse(node.outputs);
      bool fresh = node.op == "input" ||
                   (node.op == "read" && graph.find_state(node.attrs.text("state"))->attrs.flag("activation"));
      for (Value v : node.inputs) fresh = fresh || fresh_[at(v)];
      for (Value v : node.outputs) fresh_[at(v)] = fresh;
    }
    for (size_t v = 0; v < graph.values.size(); ++v)
      if (!fresh_[v]) refused_[at(root(static_cast<Value>(v)))] = true;
    while (refuse_moved()) {
    }
  }

  bool half(Value v) const { return !refused_[at(root(v))]; }

 private:
  Value root(Value v) const {
    while (group_[at(v)] != v) v = group_[at(v)];
    return v;
  }
  void join(const Node& node) {
    const Value first = root(node.inputs[0]);
    for (const ir::Values* list : {&node.inputs, &node.outputs})
      for (Value v : *list) group_[at(root(v))] = first;
  }
  void refuse(const ir::Values& values) {
    for (Value v : values) refused_[at(root(v))] = true;
  }
  bool refuse_moved() {  // whether anything changed: values that share memory go together, so others may follow
    bool changed = false;
    for (const Node& node : graph_.nodes) {
      if (!is_launch(node) || !only_moves(node) || half(node.inputs[0]) || !half(node.outputs[0])) continue;
      refuse(node.outputs);
      changed = true;
    }
    return changed;
  }
  void ask(const Node& node, const device::Device& device, bool keep) {
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (keep || !device.takes_half(node.op, false, i)) refuse({node.inputs[i]});
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const Type& type = graph_.type(node.outputs[i]);
      if (keep || type.dtype != DType::f32 || type.shape.rank() < 2 || !device.takes_half(node.op, true, i))
        refuse({node.outputs[i]});
    }
  }

  const ir::Graph& graph_;
  ir::Values group_;           // union-find over views
  std::vector<bool> refused_;  // by root
  std::vector<bool> fresh_;    // depends on the batch
};

// Memory of another element size is not taken over.
void drop_aliases(const ir::Graph& graph, Node& node) {
  ir::Ints pairs;
  for (auto [out, in] : pairs_of(node, "may_alias"))
    if (graph.type(node.outputs[static_cast<size_t>(out)]).dtype ==
        graph.type(node.inputs[static_cast<size_t>(in)]).dtype)
      pairs.insert(pairs.end(), {out, in});
  node.attrs.erase("may_alias");
  if (!pairs.empty()) node.attrs.set("may_alias", pairs);
}

}  // namespace

ir::Graph store_halves(ir::Graph graph, const device::Device& device, const std::vector<bool>& keep) {
  const Storage storage(graph, device, keep);
  std::vector<bool> half;
  for (size_t v = 0; v < graph.values.size(); ++v) half.push_back(storage.half(static_cast<Value>(v)));
  for (size_t v = 0; v < graph.values.size(); ++v)
    if (half[v]) graph.values[v].type.dtype = DType::f16;
  for (Node& node : graph.nodes) drop_aliases(graph, node);
  return graph;
}

}  // namespace situ::plan
