// expansion.cpp -- ops that a device has no kernel for, and that say what they consist of, become their parts.
//
//   batch_norm(x, gamma, beta) -> moments(x), normalize(x, mean, rstd, gamma, beta)
// The pass stands before fusion, so that the parts fuse with their neighbours; what fusion makes (OpDef::fused) stays
// whole where there is a candidate for it. The oracle has every op, and expands none.
#include "ops/op.h"
#include "pass/pass.h"

namespace situ::pass {

ir::Graph expansion(const ir::Graph& graph, const device::Device& device) {
  ir::Rebuild rebuild(graph);
  for (const ir::Node& node : graph.nodes) {
    const ops::OpDef* op = ops::find(node.op);
    if (!op || !op->expand || device.has_kernel(op->name) || (op->fused && device.has_candidate(op->name))) {
      rebuild.copy(node);
      continue;
    }
    const ir::Values parts = op->expand(rebuild.to, rebuild(node.inputs), node.attrs);
    for (size_t i = 0; i < node.outputs.size(); ++i) rebuild.map(node.outputs[i], parts[i]);
  }
  return std::move(rebuild.to);
}

}  // namespace situ::pass
