// epilogue_fusion.cpp -- what follows a matmul, convolution or max_pool_grad moves into its registers.
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

bool takes_epilogue(const std::string& op) {
  return op == "matmul" || op == "conv2d" || op == "conv2d_dx" || op == "max_pool_grad";
}

constexpr size_t kMostSteps = 4;  // what kernels hold

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
  if ((node.op == "relu_mask" || node.op == "relu6_mask") && hosted(0) &&
      graph.type(node.inputs[1]) == graph.type(node.inputs[0]))
    return {node.op == "relu_mask" ? "mask" : "mask6", 0, node.inputs[1]};
  if (node.op != "add" || !(graph.type(node.inputs[0]) == graph.type(node.inputs[1]))) return {};
  if (node.inputs[0] == node.inputs[1]) return {};
  if (hosted(1)) return {"residual", 1, node.inputs[0]};  // the later operand is more likely the fresh one
  if (hosted(0)) return {"residual", 0, node.inputs[1]};
  return {};
}

// A node that takes an epilogue, with one more step fused into it; operands are values of the old graph.
ir::Node extended(ir::Node node, const Step& step) {
  const std::string before = node.attrs.text("epilogue", "");
  node.attrs.set("epilogue", before.empty() ? step.word : before + "+" + step.word);
  if (step.operand != ir::kNoValue) node.inputs.push_back(step.operand);
  return node;
}

}  // namespace

ir::Graph epilogue_fusion(const ir::Graph& graph) {
  const auto users = ir::users_of(graph);
  std::vector<ir::Node> chains(graph.values.size());  // by the value a chain computes; no op: none does
  std::vector<bool> open(graph.values.size()), absorbed(graph.values.size());
  for (const ir::Node& node : graph.nodes) {
    const Step step = epilogue_step(graph, node, open);
    if (!step.word && !takes_epilogue(node.op)) continue;
    const auto out = static_cast<size_t>(node.outputs[0]);
    if (step.word) {
      const auto host = static_cast<size_t>(node.inputs[step.host]);
      chains[out] = extended(chains[host], step);
      absorbed[host] = true;
      open[host] = false;
    } else {
      chains[out] = {node.op, node.inputs, {}, node.attrs, node.origin};
    }
    open[out] = users[out].size() == 1 && ops::epilogue_of(chains[out].attrs).size() < kMostSteps;
  }

  ir::Rebuild rebuild(graph);
  for (const ir::Node& node : graph.nodes) {
    const size_t out = node.outputs.empty() ? 0 : static_cast<size_t>(node.outputs[0]);
    if (node.outputs.empty() || chains[out].op.empty()) {
      rebuild.copy(node);
    } else if (!absorbed[out]) {
      const ir::Node& fused = chains[out];
      rebuild.map(
          node.outputs[0],
          rebuild.to.append(fused.op, rebuild(fused.inputs), {graph.type(node.outputs[0])}, fused.attrs).outputs[0]);
      rebuild.to.nodes.back().origin = fused.origin;  // the host's, where the time goes
    }
  }
  return std::move(rebuild.to);
}

}  // namespace situ::pass
