// joint_gradients.cpp -- in a launch list, the gradients of a layer's data and of its weights become one launch where a
// device has a kernel for both: each reads dy, and what masks the data's gradient is often what the weights' reads.
//
//   p = dw(x, dy) {joint="k"};  q = dx(dy, w, ..) {joint="k"}  ->  q, p = k(dy, w, x, ..)
// The new launch stands where the first of the two stood if all it reads is known there, else where the second stood if
// nothing has asked for the first's result by then.
#include <map>
#include <string>

#include "pass/pass.h"

namespace situ::pass {
namespace {

struct Pair {
  size_t dx = 0, dw = 0, at = 0;
};

// Of two launches with `joint` the one that is told the size of its result.
bool is_dx(const ir::Graph& graph, const ir::Node& node) {
  return graph.type(node.outputs[0]).shape.rank() == 4 && node.attrs.has("size");
}

class Joint {
 public:
  explicit Joint(const ir::Graph& graph) : graph_(graph), users_(ir::users_of(graph)) {
    std::map<std::pair<std::string, ir::Value>, size_t> waiting;  // by kernel and dy
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      const ir::Node& node = graph.nodes[n];
      for (ir::Value v : node.outputs) made_[v] = n;
      const std::string kernel = node.attrs.text("joint", "");
      if (kernel.empty()) continue;
      const bool dx = is_dx(graph, node);
      const auto [it, fresh] = waiting.try_emplace({kernel, node.inputs[dx ? 0 : 1]}, n);
      if (fresh) continue;
      const size_t other = it->second;
      waiting.erase(it);
      if (is_dx(graph, graph.nodes[other]) == dx) continue;
      Pair pair{.dx = dx ? n : other, .dw = dx ? other : n};
      if (same_window(pair) && place(pair, other, n)) pairs_.push_back(pair);
    }
  }

  ir::Graph run() const {
    std::map<size_t, const Pair*> at;
    std::vector<bool> gone(graph_.nodes.size());
    for (const Pair& pair : pairs_) {
      at[pair.at] = &pair;
      gone[pair.dx] = gone[pair.dw] = true;
    }
    ir::Rebuild rebuild(graph_);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (const auto it = at.find(n); it != at.end()) emit(rebuild, *it->second);
      if (!gone[n]) rebuild.copy(graph_.nodes[n]);
    }
    return std::move(rebuild.to);
  }

 private:
  // Layers whose results are added up share dy, and may differ in all else.
  bool same_window(const Pair& pair) const {
    ir::Attrs dx = graph_.nodes[pair.dx].attrs, dw = graph_.nodes[pair.dw].attrs;
    for (const char* name : {"size", "kernel", "epilogue", "flops", "may_alias"}) {
      dx.erase(name);
      dw.erase(name);
    }
    return dx == dw && graph_.type(graph_.nodes[pair.dw].inputs[0]) == graph_.type(graph_.nodes[pair.dx].outputs[0]);
  }

  bool place(Pair& pair, size_t first, size_t second) const {
    bool known = true, awaited = false;
    for (ir::Value v : graph_.nodes[second].inputs) known = known && made_.at(v) < first;
    for (ir::Value v : graph_.nodes[first].outputs)
      for (int user : users_[static_cast<size_t>(v)]) awaited = awaited || static_cast<size_t>(user) <= second;
    pair.at = known ? first : second;
    return known || !awaited;
  }

  void emit(ir::Rebuild& rebuild, const Pair& pair) const {
    const ir::Node &dx = graph_.nodes[pair.dx], &dw = graph_.nodes[pair.dw];
    ir::Values inputs = dx.inputs;
    inputs.insert(inputs.begin() + 2, dw.inputs[0]);
    ir::Attrs attrs = dx.attrs;
    attrs.erase("joint");
    const ir::Values made = rebuild.to
                                .append(dx.attrs.text("joint"), rebuild(inputs),
                                        {graph_.type(dx.outputs[0]), graph_.type(dw.outputs[0])}, attrs)
                                .outputs;
    rebuild.to.nodes.back().origin = dx.origin;
    rebuild.map(dx.outputs[0], made[0]);
    rebuild.map(dw.outputs[0], made[1]);
  }

  const ir::Graph& graph_;
  const std::vector<std::vector<int>> users_;
  std::map<ir::Value, size_t> made_;
  std::vector<Pair> pairs_;
};

}  // namespace

ir::Graph joint_gradients(const ir::Graph& graph) { return Joint(graph).run(); }

}  // namespace situ::pass
