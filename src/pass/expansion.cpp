// expansion.cpp -- ops that a device has no kernel for, and that say what they consist of, become their parts.
//
//   batch_norm(x, gamma, beta) -> moments(x), normalize(x, mean, rstd, gamma, beta)
// A device has an op if it has a kernel of that name or a candidate. The pass stands before fusion, so that the parts
// fuse with their neighbours. The oracle has every op, and expands none.
#include <algorithm>

#include "ops/op.h"
#include "pass/pass.h"

namespace situ::pass {

namespace {

bool has_op(const device::Device& device, std::string_view op) {
  if (device.has_kernel(op)) return true;
  for (device::CandidateList list : device.candidates())
    if (std::ranges::any_of(list, [&](const device::Candidate& c) { return c.op == op; })) return true;
  return false;
}

}  // namespace

ir::Graph expansion(const ir::Graph& graph, const device::Device& device) {
  ir::Rebuild rebuild(graph);
  for (const ir::Node& node : graph.nodes) {
    const ops::OpDef* op = ops::find(node.op);
    if (!op || !op->expand || has_op(device, node.op)) {
      rebuild.copy(node);
      continue;
    }
    const ir::Values parts = op->expand(rebuild.to, rebuild(node.inputs), node.attrs);
    for (size_t i = 0; i < node.outputs.size(); ++i) rebuild.map(node.outputs[i], parts[i]);
  }
  return std::move(rebuild.to);
}

}  // namespace situ::pass
