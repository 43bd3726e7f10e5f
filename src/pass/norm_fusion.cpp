// norm_fusion.cpp -- statistics of columns and the pointwise node that reads them become one node (ops/norm_fused.h),
// for devices that may run both in one launch: a work-item that owns columns has their statistics at hand.
//
//   mean, var, rstd = moments(x); y = fused(x, mean, rstd, gamma, beta, residual)
//     -> y, mean, var, rstd = moments_fused(x, gamma, beta, residual)
// The new node stands where the pointwise one stood; so nothing before that may read the statistics.
#include <algorithm>
#include <map>

#include "ops/expr.h"
#include "ops/norm_fused.h"
#include "pass/pass.h"

namespace situ::pass {
namespace {

using ir::Value;

bool is_function(const ir::Graph& graph, const ir::Node& node, const Type& type) {
  const ops::OpDef* op = ops::find(node.op);
  return op && (op->scalar || node.op == "fused") && graph.type(node.outputs[0]) == type;
}

// Where v stands among the node's inputs; their number if it is none of them.
int place_of(const ir::Values& values, Value v) {
  return static_cast<int>(std::find(values.begin(), values.end(), v) - values.begin());
}

class Fusion {
 public:
  Fusion(const ir::Graph& graph, const device::Device& device) : graph_(graph), users_(ir::users_of(graph)) {
    for (const ops::NormFused& form : ops::norm_fused_forms())
      if (device.has_candidate(form.name)) forms_.push_back(&form);
  }

  ir::Graph run() {
    std::map<size_t, size_t> statistics_of;  // by the pointwise node that takes them in
    std::vector<bool> moved(graph_.nodes.size());
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      if (const size_t f = function_of(n); f && !statistics_of.count(f)) {
        statistics_of[f] = n;
        moved[n] = true;
      }
    ir::Rebuild rebuild(graph_);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (moved[n]) continue;
      if (const auto it = statistics_of.find(n); it != statistics_of.end())
        emit(rebuild, graph_.nodes[it->second], graph_.nodes[n]);
      else
        rebuild.copy(graph_.nodes[n]);
    }
    return std::move(rebuild.to);
  }

 private:
  const ops::NormFused* form_of(const ir::Node& statistics) const {
    for (const ops::NormFused* form : forms_)
      if (form->statistics == statistics.op) return form;
    return nullptr;
  }

  // The pointwise node to join statistics n with: the first that reads them, x-shaped, reading x; 0: there is none.
  size_t function_of(size_t n) const {
    const ir::Node& statistics = graph_.nodes[n];
    const ops::NormFused* form = form_of(statistics);
    if (!form) return 0;
    size_t first = graph_.nodes.size();
    for (Value v : statistics.outputs)
      for (int user : users_[static_cast<size_t>(v)]) first = std::min(first, static_cast<size_t>(user));
    if (first == graph_.nodes.size()) return 0;
    const ir::Node& node = graph_.nodes[first];
    const Value x = statistics.inputs[0];
    const bool fits = is_function(graph_, node, graph_.type(x)) && std::ranges::count(node.inputs, x) > 0 &&
                      operands(*form, statistics, node).size() + 2 <= ops::kMostExprInputs &&
                      sees(*form, statistics, node);
    return fits ? first : 0;
  }

  // The function reads none of the statistics but those the form gives it.
  static bool sees(const ops::NormFused& form, const ir::Node& statistics, const ir::Node& node) {
    for (int i = 0; i < form.results; ++i)
      if (form.input_of_result(i) < 0 && std::ranges::count(node.inputs, statistics.outputs[static_cast<size_t>(i)]))
        return false;
    return true;
  }

  // Of the joined node: the statistics' own, then what else the function reads.
  static ir::Values operands(const ops::NormFused& form, const ir::Node& statistics, const ir::Node& node) {
    ir::Values list(statistics.inputs.begin(), statistics.inputs.begin() + form.operands);
    for (Value v : node.inputs)
      if (!std::ranges::count(list, v) && !std::ranges::count(statistics.outputs, v)) list.push_back(v);
    return list;
  }

  void emit(ir::Rebuild& rebuild, const ir::Node& statistics, const ir::Node& node) const {
    const ops::NormFused& form = *form_of(statistics);
    const ir::Values inputs = operands(form, statistics, node);
    ops::Expr expr = ops::expr_of(node.op, node.attrs, static_cast<int>(node.inputs.size()));
    for (ops::ExprStep& step : expr.steps)
      for (ops::ExprArg& arg : step.args) {
        if (arg.kind != ops::ExprArg::input) continue;
        const Value v = node.inputs[static_cast<size_t>(arg.index)];
        const int result = place_of(statistics.outputs, v);
        arg.index = result < form.results ? form.input_of_result(result) : form.input_of_operand(place_of(inputs, v));
      }
    std::vector<Type> types{graph_.type(node.outputs[0])};
    for (Value v : statistics.outputs) types.push_back(graph_.type(v));
    ir::Attrs attrs = statistics.attrs;
    attrs.set("expr", ops::print(expr));
    const ir::Values made = rebuild.to.append(form.name, rebuild(inputs), types, attrs).outputs;
    rebuild.to.nodes.back().origin = statistics.origin;  // the norm, not the activation behind it
    rebuild.map(node.outputs[0], made[0]);
    for (size_t i = 0; i < statistics.outputs.size(); ++i) rebuild.map(statistics.outputs[i], made[i + 1]);
  }

  const ir::Graph& graph_;
  const std::vector<std::vector<int>> users_;
  std::vector<const ops::NormFused*> forms_;
};

}  // namespace

ir::Graph norm_fusion(const ir::Graph& graph, const device::Device& device) { return Fusion(graph, device).run(); }

}  // namespace situ::pass
