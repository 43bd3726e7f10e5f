// epilogue_fusion.cpp -- what follows a matmul or convolution moves into its registers.
//
//   bias(matmul(a, b), c)      -> matmul(a, b, c) {epilogue="bias"}
//   relu(conv2d(..){bias})     -> conv2d(..) {epilogue="bias+relu"}
//   relu_mask(conv2d_dx(..),y) -> conv2d_dx(.., y) {epilogue="mask"}
//   add(conv2d(..), r)         -> conv2d(.., r) {epilogue="residual"}
// Only when nothing else reads the intermediate. The fused node takes the place of the last one, where every operand
// exists already.
#include "ops/epilogue.h"
#include "ops/op.h"
#include "pass/pass.h"

namespace situ::pass {
namespace {

using ir::Value;

bool takes_epilogue(const std::string& op) { return op == "matmul" || op == "conv2d" || op == "conv2d_dx"; }

struct Step {
  const char* word = nullptr;    // of the epilogue; null: this node is none
  size_t host = 0;               // operand that carries the result to extend
  Value operand = ir::kNoValue;  // the extra operand
};

// How `node` would continue an epilogue, given which of its operands can host it.
Step epilogue_step(const ir::Graph& graph, const ir::Node& node, const std::vector<bool>& hosts) {
  auto hosted = [&](size_t i) { return hosts[static_cast<size_t>(node.inputs[i])]; };
  if (node.op == "bias" && hosted(0)) return {"bias", 0, node.inputs[1]};
  if (node.op == "relu" && hosted(0)) return {"relu", 0, ir::kNoValue};
  if (node.op == "relu6" && hosted(0)) return {"relu6", 0, ir::kNoValue};
  if (node.op == "relu_mask" && hosted(0) && graph.type(node.inputs[1]) == graph.type(node.inputs[0]))
    return {"mask", 0, node.inputs[1]};
  if (node.op != "add" || !(graph.type(node.inputs[0]) == graph.type(node.inputs[1]))) return {};
  if (node.inputs[0] == node.inputs[1]) return {};
  if (hosted(1)) return {"residual", 1, node.inputs[0]};  // the later operand is more likely the fresh one
  if (hosted(0)) return {"residual", 0, node.inputs[1]};
  return {};
}

}  // namespace

ir::Graph epilogue_fusion(const ir::Graph& graph) {
  const auto users = ir::users_of(graph);
  // pending[v]: the node that will compute v once we know nothing more can be fused into it.
  std::vector<ir::Node> pending(graph.values.size());
  std::vector<bool> hosts(graph.values.size());
  ir::Rebuild rebuild(graph);

  auto flush = [&](Value v) {  // emit a pending node: somebody else needs its value now
    const auto i = static_cast<size_t>(v);
    if (!hosts[i]) return;
    const ir::Node& node = pending[i];
    rebuild.map(v, rebuild.to.append(node.op, node.inputs, {graph.type(v)}, node.attrs).outputs[0]);
    hosts[i] = false;
  };

  for (const ir::Node& node : graph.nodes) {
    const Step step = epilogue_step(graph, node, hosts);
    const size_t host = step.word ? static_cast<size_t>(node.inputs[step.host]) : 0;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (!step.word || i != step.host) flush(node.inputs[i]);
    if (!step.word && !takes_epilogue(node.op)) {
      rebuild.copy(node);
      continue;
    }
    ir::Node fused;
    if (step.word) {
      fused = pending[host];
      hosts[host] = false;
      const std::string before = fused.attrs.text("epilogue", "");
      fused.attrs.set("epilogue", before.empty() ? step.word : before + "+" + step.word);
      if (step.operand != ir::kNoValue) fused.inputs.push_back(rebuild(step.operand));
    } else {
      fused = {node.op, rebuild(node.inputs), {}, node.attrs};
    }
    const Value out = node.outputs[0];
    pending[static_cast<size_t>(out)] = std::move(fused);
    hosts[static_cast<size_t>(out)] = true;
    if (users[static_cast<size_t>(out)].size() != 1) flush(out);
  }
  return std::move(rebuild.to);
}

}  // namespace situ::pass
