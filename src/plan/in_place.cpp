// in_place.cpp -- a result takes over the memory of an operand that dies with it, where the kernel allows (may_alias).
#include <algorithm>

#include "base/error.h"
#include "plan/plan.h"

namespace situ::plan {
namespace {

using ir::Node;
using ir::Value;

size_t at(Value v) { return static_cast<size_t>(v); }

class InPlace {
 public:
  explicit InPlace(const ir::Graph& graph)
      : graph_(graph), parts_(parts_of(graph)), last_use_(graph.values.size(), -1), state_(graph.values.size()) {
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      const Node& node = graph.nodes[n];
      for (Value v : node.inputs) {
        int& last = last_use_[at(root(v))];
        last = std::max(last, node.op == "output" ? kEnd : static_cast<int>(n));
        if (node.op == "write") state_[at(v)] = node.attrs.text("state");
      }
    }
  }

  ir::Graph run() {
    ir::Graph result = graph_;
    for (size_t n = 0; n < result.nodes.size(); ++n) {
      ir::Ints chosen;
      std::vector<bool> out_used(result.nodes[n].outputs.size());
      ir::Values taken;
      for (auto [out, in] : pairs_of(result.nodes[n], "may_alias")) {
        const Node& node = result.nodes[n];
        const Value source = root(node.inputs[static_cast<size_t>(in)]);
        if (out_used[static_cast<size_t>(out)] || std::count(taken.begin(), taken.end(), source)) continue;
        if (!allowed(static_cast<int>(n), node, out, in)) continue;
        chosen.insert(chosen.end(), {out, in});
        out_used[static_cast<size_t>(out)] = true;
        taken.push_back(source);
      }
      result.nodes[n].attrs.erase("may_alias");
      if (!chosen.empty()) result.nodes[n].attrs.set("alias", chosen);
    }
    return result;
  }

 private:
  static constexpr int kEnd = 1 << 30;

  Value root(Value v) const { return parts_[at(v)].root; }

  bool allowed(int n, const Node& node, int out, int in) const {
    const Value y = node.outputs[static_cast<size_t>(out)], x = node.inputs[static_cast<size_t>(in)];
    if (root(y) != y) return false;  // part of a concat: it has its place already
    const Node& source = graph_.producer(root(x));
    if (!state_[at(y)].empty()) return source.op == "read" && source.attrs.text("state") == state_[at(y)];
    if (ir::is_source(source.op) || !state_[at(root(x))].empty()) return false;
    const Part& part = parts_[at(x)];
    const Type& whole = graph_.type(part.root);
    if (part.offset != 0 || graph_.type(x).count() != whole.count() || part.pitch != graph_.type(x).shape.cols())
      return false;  // only a whole, dense tensor is taken over
    if (last_use_[at(part.root)] > n) return false;
    return others_agree(node, out, in);
  }

  // Another operand in the same memory must be the very same value and overwritable too.
  bool others_agree(const Node& node, int out, int in) const {
    const auto pairs = pairs_of(node, "may_alias");
    const Value x = node.inputs[static_cast<size_t>(in)];
    for (size_t j = 0; j < node.inputs.size(); ++j) {
      if (static_cast<int>(j) == in || root(node.inputs[j]) != root(x)) continue;
      if (node.inputs[j] != x) return false;
      if (std::find(pairs.begin(), pairs.end(), ops::Alias{out, static_cast<int>(j)}) == pairs.end()) return false;
    }
    return true;
  }

  const ir::Graph& graph_;
  const std::vector<Part> parts_;
  std::vector<int> last_use_;       // by root: the last node that reads it
  std::vector<std::string> state_;  // the state a value is written to
};

}  // namespace

std::vector<ops::Alias> pairs_of(const Node& node, std::string_view attr) {
  std::vector<ops::Alias> result;
  const ir::Ints list = node.attrs.ints(attr, {});
  for (size_t i = 0; i + 1 < list.size(); i += 2)
    result.emplace_back(static_cast<int>(list[i]), static_cast<int>(list[i + 1]));
  return result;
}

ir::Graph in_place(const ir::Graph& graph) { return InPlace(graph).run(); }

}  // namespace situ::plan
