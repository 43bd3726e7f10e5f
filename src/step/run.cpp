#include "step/run.h"

#include <algorithm>

#include "model/init.h"

namespace situ::step {

Tensors run_once(device::Device& device, const ir::Graph& graph, const Tensors& inputs, const SessionOptions& options) {
  SessionOptions dirty = options;
  dirty.dirty_arena = true;
  dirty.self_test = false;  // a self-test is what runs this way
  Session session(device, {graph}, dirty);
  Batch& batch = session.next_batch();
  for (const ir::Node& node : graph.nodes) {
    if (node.op != "input") continue;
    const std::string name = node.attrs.text("name");
    const std::vector<double>& values = inputs.at(name);
    if (graph.type(node.outputs[0]).dtype == DType::f32) {
      const auto to = batch.f32(name);
      for (size_t i = 0; i < values.size(); ++i) to[i] = static_cast<float>(values[i]);
    } else {
      const auto to = batch.i32(name);
      for (size_t i = 0; i < values.size(); ++i) to[i] = static_cast<int32_t>(values[i]);
    }
  }
  session.run(0, batch);
  Tensors outputs;
  for (const ir::Node& node : graph.nodes)
    if (node.op == "output") outputs[node.attrs.text("name")] = session.output_double(0, node.attrs.text("name"));
  return outputs;
}

void set_initial_values(Session& session, uint64_t seed) {
  constexpr int64_t kPiece = 1 << 18;  // elements at a time: a large parameter need not exist twice
  for (const ir::State& state : session.states()) {
    if (state.attrs.flag("derived")) continue;
    for (int64_t first = 0; first < state.type.count(); first += kPiece)
      session.set_part(state.name, first,
                       model::initial_values(state, seed, first, std::min(kPiece, state.type.count() - first)));
  }
}

}  // namespace situ::step
