// pointwise_fusion.cpp -- trees of pointwise ops become one `fused` node with a small expression (ops/expr.h).
//
// A node joins the group of its only user when both have the same result shape (so nothing is computed twice) and the
// group stays small. Scalar constants become literals, so no constant reaches memory.
#include <algorithm>
#include <map>

#include "ops/expr.h"
#include "ops/op.h"
#include "pass/pass.h"

namespace situ::pass {
namespace {

using ir::Value;

constexpr size_t kMaxInputs = 8, kMaxSteps = 24;

bool is_pointwise(const ir::Node& node) {
  const ops::OpDef* op = ops::find(node.op);
  return op && (op->scalar || node.op == "bias");
}

// The op a step prints: bias is an addition that broadcasts along the last axis.
const ops::OpDef* step_op(const ir::Node& node) { return &ops::get(node.op == "bias" ? "add" : node.op); }

class Fusion {
 public:
  explicit Fusion(const ir::Graph& graph) : graph_(graph), users_(ir::users_of(graph)), absorbed_(graph.nodes.size()) {}

  ir::Graph run() {
    for (size_t n = graph_.nodes.size(); n-- > 0;)
      if (!absorbed_[n] && is_pointwise(graph_.nodes[n])) grow(n);
    ir::Rebuild rebuild(graph_);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (absorbed_[n]) continue;
      auto group = groups_.find(n);
      if (group == groups_.end())
        rebuild.copy(graph_.nodes[n]);
      else
        emit(rebuild, graph_.nodes[n], group->second);
    }
    return std::move(rebuild.to);
  }

 private:
  struct Group {
    std::vector<size_t> members;  // node indices, the root among them
  };

  const Type& result(size_t n) const { return graph_.type(graph_.nodes[n].outputs[0]); }

  // Absorbs producers into the group of root, nearest first.
  void grow(size_t root) {
    Group group{{root}};
    for (size_t i = 0; i < group.members.size(); ++i)
      for (Value v : graph_.nodes[group.members[i]].inputs) {
        const auto p = static_cast<size_t>(graph_.values[static_cast<size_t>(v)].producer);
        if (!joins(p, group)) continue;
        group.members.push_back(p);
        if (external_inputs(group).size() > kMaxInputs)
          group.members.pop_back();
        else
          absorbed_[p] = true;
      }
    std::sort(group.members.begin(), group.members.end());
    groups_[root] = std::move(group);
  }

  bool joins(size_t producer, const Group& group) const {
    const ir::Node& node = graph_.nodes[producer];
    if (absorbed_[producer] || groups_.count(producer) || !is_pointwise(node)) return false;
    if (group.members.size() >= kMaxSteps || !(result(producer) == result(group.members[0]))) return false;
    for (int user : users_[static_cast<size_t>(node.outputs[0])])
      if (std::find(group.members.begin(), group.members.end(), static_cast<size_t>(user)) == group.members.end())
        return false;
    return true;
  }

  bool is_literal(Value v) const { return graph_.producer(v).op == "const" && graph_.type(v).dtype == DType::f32; }

  ir::Values external_inputs(const Group& group) const {
    ir::Values inputs;
    for (size_t n : group.members)
      for (Value v : graph_.nodes[n].inputs) {
        const auto p = static_cast<size_t>(graph_.values[static_cast<size_t>(v)].producer);
        const bool inside = std::find(group.members.begin(), group.members.end(), p) != group.members.end();
        if (!inside && !is_literal(v) && std::find(inputs.begin(), inputs.end(), v) == inputs.end())
          inputs.push_back(v);
      }
    return inputs;
  }

  void emit(ir::Rebuild& rebuild, const ir::Node& root, const Group& group) {
    bool literals = false;
    for (Value v : root.inputs) literals = literals || is_literal(v);
    if (group.members.size() == 1 && !literals) return rebuild.copy(root);
    const ir::Values inputs = external_inputs(group);
    if (inputs.empty()) return rebuild.copy(root);
    ops::Expr expr;
    std::map<Value, int> step_of;
    for (size_t n : group.members) {
      const ir::Node& node = graph_.nodes[n];
      ops::ExprStep step{step_op(node), {}};
      for (Value v : node.inputs) step.args.push_back(argument(v, inputs, step_of));
      step_of[node.outputs[0]] = static_cast<int>(expr.steps.size());
      expr.steps.push_back(std::move(step));
    }
    expr.inputs = static_cast<int>(inputs.size());
    const Type& type = graph_.type(root.outputs[0]);
    const ir::Attrs attrs{{"expr", ops::print(expr)}, {"shape", type.shape.dims()}};
    rebuild.map(root.outputs[0], rebuild.to.append("fused", rebuild(inputs), {type}, attrs).outputs[0]);
  }

  ops::ExprArg argument(Value v, const ir::Values& inputs, const std::map<Value, int>& step_of) const {
    if (auto it = step_of.find(v); it != step_of.end()) return {ops::ExprArg::step, it->second, 0};
    if (is_literal(v)) return {ops::ExprArg::literal, 0, graph_.producer(v).attrs.number("value")};
    const auto it = std::find(inputs.begin(), inputs.end(), v);
    return {ops::ExprArg::input, static_cast<int>(it - inputs.begin()), 0};
  }

  const ir::Graph& graph_;
  const std::vector<std::vector<int>> users_;
  std::vector<bool> absorbed_;
  std::map<size_t, Group> groups_;  // by root
};

}  // namespace

ir::Graph pointwise_fusion(const ir::Graph& graph) { return Fusion(graph).run(); }

}  // namespace situ::pass
