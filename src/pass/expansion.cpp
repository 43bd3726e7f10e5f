// expansion.cpp -- ops that a device has no kernel for, and that say what they consist of, become their parts.
//
//   batch_norm(x, gamma, beta) -> moments(x), normalize(x, mean, rstd, gamma, beta)
// The pass stands before fusion, so that the parts fuse with their neighbours; what fusion makes (OpDef::fused) stays
// whole where there is a candidate for it. The oracle has every op, and expands none.
#include <algorithm>

#include "ops/op.h"
#include "pass/pass.h"

namespace situ::pass {

namespace {

bool has_op(const device::Device& device, const ops::OpDef& op) {
  if (device.has_kernel(op.name)) return true;
  const auto runs = [&](const device::Candidate& c) { return c.op == op.name; };
  return op.fused && std::ranges::any_of(device.candidates(),
                                         [&](device::CandidateList list) { return std::ranges::any_of(list, runs); });
}

}  // namespace

ir::Graph expansion(const ir::Graph& graph, const device::Device& device) {
  ir::Rebuild rebuild(graph);
  for (const ir::Node& node : graph.nodes) {
    const ops::OpDef* op = ops::find(node.op);
    if (!op || !op->expand || has_op(device, *op)) {
      rebuild.copy(node);
      continue;
    }
    const ir::Values parts = op->expand(rebuild.to, rebuild(node.inputs), node.attrs);
    for (size_t i = 0; i < node.outputs.size(); ++i) rebuild.map(node.outputs[i], parts[i]);
  }
  return std::move(rebuild.to);
}

}  // namespace situ::pass
