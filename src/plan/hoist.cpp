// hoist.cpp -- what depends only on states this program does not write (packed weights in evaluation, panels while
// gradients accumulate, anything of frozen layers) is computed once, by the prepare program, into derived states.
//
// A derived state is named after the expression that makes it, so programs that need the same panel share it.
#include <map>

#include "base/error.h"
#include "base/hash.h"
#include "ir/dead_code.h"
#include "plan/plan.h"

namespace situ::plan {
namespace {

using ir::Node;
using ir::Value;

size_t at(Value v) { return static_cast<size_t>(v); }

class Hoist {
 public:
  explicit Hoist(const ir::Graph& graph) : graph_(graph), keys_(graph.values.size()), hoisted_(graph.nodes.size()) {
    for (const Node& node : graph.nodes)
      if (node.op == "write") written_[node.attrs.text("state")] = true;
    for (const ir::State& state : graph.states)
      if (state.attrs.flag("changing")) written_[state.name] = true;
    for (size_t n = 0; n < graph.nodes.size(); ++n) name(n);
  }

  std::vector<bool> steady_values() const {
    std::vector<bool> steady;
    for (const std::string& key : keys_) steady.push_back(!key.empty());
    return steady;
  }

  Hoisted run() {
    ir::Rebuild prepare(graph_), program(graph_);
    prepare.to.name = "prepare";
    std::map<Value, std::string> derived;
    const auto users = ir::users_of(graph_);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (!node.outputs.empty() && steady(node)) prepare.copy(node);
      if (!hoisted_[n]) {
        program.copy(node);
        continue;
      }
      for (Value v : node.outputs)
        if (used_outside(users[at(v)])) derived[v] = declare(prepare.to, program, v);
    }
    if (derived.empty()) return {graph_, {}};
    for (const auto& [v, state] : derived) prepare.to.write(state, prepare(v));
    return {ir::dead_code(program.to), ir::dead_code(prepare.to)};
  }

 private:
  // keys_[v]: the expression of v over steady states; empty if it changes while this program runs.
  void name(size_t n) {
    const Node& node = graph_.nodes[n];
    std::string key = node.op + ir::to_string(node.attrs);
    bool is_steady = node.op == "const" || (node.op == "read" && !written_.count(node.attrs.text("state")));
    bool from_state = node.op == "read";
    if (!ir::is_structural(node.op)) {
      is_steady = !node.inputs.empty();
      for (Value v : node.inputs) {
        is_steady = is_steady && !keys_[at(v)].empty();
        from_state = from_state || state_based_[v];
        key += "(" + keys_[at(v)] + to_string(graph_.type(v)) + ")";
      }
    }
    if (!is_steady) return;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      keys_[at(node.outputs[i])] = key.size() < 200 ? key + std::to_string(i) : shorten(key) + std::to_string(i);
      state_based_[node.outputs[i]] = from_state;
    }
    hoisted_[n] = is_launch(node) && from_state;
  }

  static std::string shorten(const std::string& key) {
    return fmt::format("{:016x}{:016x}", hash_of(key), hash_of(key, 1));
  }

  bool steady(const Node& node) const { return !keys_[at(node.outputs[0])].empty(); }

  bool used_outside(const std::vector<int>& users) const {
    for (int user : users)
      if (!hoisted_[static_cast<size_t>(user)]) return true;
    return false;
  }

  std::string declare(ir::Graph& prepare, ir::Rebuild& program, Value v) {
    const std::string state = "prepared." + shorten(keys_[at(v)]);
    const ir::State declaration{state, graph_.type(v), {{"derived", int64_t{1}}}};
    prepare.declare(declaration);
    program.to.declare(declaration);
    program.map(v, program.to.read(state));
    return state;
  }

  const ir::Graph& graph_;
  std::vector<std::string> keys_;
  std::map<Value, bool> state_based_;
  std::vector<bool> hoisted_;
  std::map<std::string, bool> written_;
};

}  // namespace

Hoisted hoist(const ir::Graph& graph) { return Hoist(graph).run(); }

std::vector<bool> steady_values(const ir::Graph& graph) { return Hoist(graph).steady_values(); }

}  // namespace situ::plan
