#include "grad/reverse.h"

#include "base/error.h"
#include "ops/op.h"

namespace situ::grad {
namespace {

using ir::kNoValue;
using ir::Value;

// For every value: does it depend on a wanted one?
std::vector<bool> depends_on(const ir::Graph& graph, const ir::Values& wanted) {
  std::vector<bool> depends(graph.values.size());
  for (Value v : wanted) depends[static_cast<size_t>(v)] = true;
  for (const ir::Node& node : graph.nodes) {
    bool any = false;
    for (Value v : node.inputs) any = any || depends[static_cast<size_t>(v)];
    for (Value v : node.outputs) depends[static_cast<size_t>(v)] = depends[static_cast<size_t>(v)] || any;
  }
  return depends;
}

class Reverse {
 public:
  Reverse(ir::Graph& graph, const ir::Values& wanted)
      : graph_(graph), depends_(depends_on(graph, wanted)), d_(graph.values.size(), kNoValue) {}

  ir::Values run(Value loss, const ir::Values& wanted) {
    const ir::Origin before = graph_.origin;
    at(loss) = graph_.constant(1, graph_.type(loss));
    for (size_t n = graph_.nodes.size(); n-- > 0;)
      if (n < nodes_before_) visit(graph_.nodes[n]);
    graph_.origin = before;
    ir::Values result;
    for (Value v : wanted) result.push_back(at(v) == kNoValue ? graph_.constant(0, graph_.type(v)) : at(v));
    return result;
  }

 private:
  Value& at(Value v) { return d_[static_cast<size_t>(v)]; }

  void visit(const ir::Node node) {  // by value: the rule appends nodes
    ir::Values douts;
    std::vector<bool> wants;
    bool arrived = false, wanted = false;
    for (Value v : node.outputs) {
      douts.push_back(at(v));
      arrived = arrived || at(v) != kNoValue;
    }
    for (Value v : node.inputs) {
      wants.push_back(depends_[static_cast<size_t>(v)]);
      wanted = wanted || wants.back();
    }
    if (!arrived || !wanted) return;
    const ops::OpDef& op = ops::get(node.op);
    if (!op.grad) fail("op `{}` lies between a trained parameter and the loss, but has no gradient rule", node.op);
    graph_.origin = {node.origin.layer, true};
    ops::GradBuilder builder(graph_, node, douts, wants);
    op.grad(builder);
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (builder.dins()[i] != kNoValue) accumulate(node.inputs[i], builder.dins()[i]);
  }

  void accumulate(Value v, Value dv) { at(v) = at(v) == kNoValue ? dv : ops::emit(graph_, "add", {at(v), dv}); }

  ir::Graph& graph_;
  const size_t nodes_before_ = graph_.nodes.size();
  std::vector<bool> depends_;
  ir::Values d_;  // gradient of each value of the forward graph
};

}  // namespace

ir::Values gradients(ir::Graph& graph, Value loss, const ir::Values& wanted) {
  return Reverse(graph, wanted).run(loss, wanted);
}

}  // namespace situ::grad
