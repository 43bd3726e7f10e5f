#include "step/probe.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "plan/plan.h"

namespace situ::step {
namespace {

constexpr double kQuick = 1e6;  // operations of the oracle that nobody notices
constexpr double kMost = 1e8;   // about what one more compilation costs
constexpr int64_t kSmallBatch = 2, kSmallExtent = 9;

// Kinds of values that the op's examples have at this place. Random signs where one example has them: what a kernel
// must not see (a negative variance, a label beyond the classes) is never written that way.
ops::ExampleInput values_like(const std::vector<ops::Example>& examples, size_t place, size_t arity, const Type& type) {
  ops::ExampleInput input{type, ops::ExampleInput::positive, 1};
  if (type.dtype == DType::i32) return {type, ops::ExampleInput::integer, 2};  // two classes or rows there always are
  bool seen = false;
  for (const ops::Example& example : examples) {
    if (example.inputs.size() != arity || example.inputs[place].type.dtype != type.dtype) continue;
    const ops::ExampleInput& other = example.inputs[place];
    if (other.kind == ops::ExampleInput::signed_unit) return {type, ops::ExampleInput::signed_unit, 1};
    if (!seen) input = {type, other.kind, other.bound};
    seen = true;
  }
  return input;
}

bool legal(const Probe& probe) {
  try {
    graph_of(probe);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// The candidate takes these operands too; the op's own kernel takes any.
bool taken(device::Device& device, const Probe& probe) {
  if (probe.candidate.empty()) return true;
  const ir::Graph graph = graph_of(probe);
  const auto list = plan::candidates_for(device, ops::view_of(graph, op_node(graph, *probe.op)));
  return std::any_of(list.begin(), list.end(), [&](const auto* c) { return c->name == probe.candidate; });
}

// A change of extents: those equal to `from`, along one axis or (-1) along all of them and in attributes that hold
// extents. Whether the result makes sense is for the op's type rule to say.
struct Move {
  int axis = 0;
  int64_t from = 0, to = 0;
};

Probe moved(Probe probe, const Move& move) {
  for (ops::ExampleInput& input : probe.example.inputs)
    for (int axis = 0; axis < input.type.shape.rank(); ++axis)
      if ((move.axis < 0 || axis == move.axis) && input.type.shape[axis] == move.from) input.type.shape[axis] = move.to;
  for (const char* name : {"shape", "size"})
    if (const ir::Attr* attr = probe.example.attrs.find(name))
      if (const auto* ints = std::get_if<ir::Ints>(attr)) {
        ir::Ints changed = *ints;
        for (size_t i = 0; i < changed.size(); ++i)
          if ((move.axis < 0 || i == static_cast<size_t>(move.axis)) && changed[i] == move.from) changed[i] = move.to;
        probe.example.attrs.set(name, changed);
      }
  return probe;
}

std::vector<Move> moves_of(const Probe& probe) {
  std::set<int64_t, std::greater<>> first, all;
  for (const ops::ExampleInput& input : probe.example.inputs)
    for (int axis = 0; axis < input.type.shape.rank(); ++axis) {
      all.insert(input.type.shape[axis]);
      if (axis == 0) first.insert(input.type.shape[axis]);
    }
  std::vector<Move> moves;
  for (int64_t extent : first)
    if (extent > kSmallBatch) moves.push_back({0, extent, kSmallBatch});
  for (int64_t extent : all)
    if (extent > kSmallExtent) moves.push_back({-1, extent, kSmallExtent});
  return moves;
}

std::optional<Probe> smallest_example(device::Device& device, const Probe& probe) {
  std::optional<Probe> best;
  for (const ops::Example& example : ops::examples(*probe.op)) {
    const Probe other{probe.op, probe.candidate, example, copies_of(*probe.op, example, device)};
    if (best && oracle_work(other) >= oracle_work(*best)) continue;
    if (taken(device, other)) best = other;
  }
  return best;
}

}  // namespace

Probe probe_of(const ops::OpView& view, const device::Candidate* candidate) {
  Probe probe{&ops::get(view.op), candidate ? std::string(candidate->name) : "", {}, {}};
  const auto examples = ops::examples(*probe.op);
  for (size_t i = 0; i < view.ins.size(); ++i) {
    Type type = view.ins[i];
    probe.copied.in.push_back(type.dtype == DType::f16);
    if (type.dtype == DType::f16) type.dtype = DType::f32;
    probe.example.inputs.push_back(values_like(examples, i, view.ins.size(), type));
  }
  for (const Type& type : view.outs) probe.copied.out.push_back(type.dtype == DType::f16);
  probe.example.attrs = view.attrs;
  return probe;
}

std::optional<Probe> made_small(device::Device& device, const Probe& probe) {
  Probe best = probe;
  const std::string programs = programs_of(device, probe);
  for (bool changed = true; changed && oracle_work(best) > kQuick;) {
    changed = false;
    for (const Move& move : moves_of(best)) {
      const Probe other = moved(best, move);
      if (!legal(other) || oracle_work(other) >= oracle_work(best) || !taken(device, other)) continue;
      if (programs_of(device, other) != programs) continue;
      best = other;
      changed = true;
      break;
    }
  }
  if (oracle_work(best) <= kMost) return best;
  return smallest_example(device, best);
}

ir::Graph graph_of(const Probe& probe) {
  return single_op_graph(*probe.op, probe.example, Layout::dense, probe.copied);
}

std::string key_of(const Probe& probe) {
  const ir::Graph graph = graph_of(probe);
  return device::node_key(ops::view_of(graph, op_node(graph, *probe.op)));
}

std::string programs_of(device::Device& device, const Probe& probe) {
  const Probe* const one[] = {&probe};
  const Forced forced(device, one);
  const ir::Graph lowered = plan::lower(graph_of(probe), device).graph;
  std::set<std::string> programs;
  for (const ir::Node& node : lowered.nodes)
    if (plan::is_launch(node)) programs.insert(device.program_of(plan::dense_launch(ops::view_of(lowered, node))));
  uint64_t hash = 0;
  for (const std::string& program : programs) hash = hash_of(program, hash);
  return fmt::format("{:016x}", hash);
}

double oracle_work(const Probe& probe) {
  const ir::Graph graph = graph_of(probe);
  double work = 0;
  for (const ir::ValueInfo& value : graph.values) work += 10 * static_cast<double>(value.type.count());
  for (const ir::Node& node : graph.nodes)
    if (node.op == probe.op->name) work += ops::cost_of(graph, node).flops;
  return work;
}

Forced::Forced(device::Device& device, std::span<const Probe* const> probes)
    : device_(device), before_(device.choices) {
  for (const Probe* probe : probes)
    if (!probe->candidate.empty()) device.choices[key_of(*probe)] = probe->candidate;
}

}  // namespace situ::step
