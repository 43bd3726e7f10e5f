#include "prof/memory_map.h"

#include <algorithm>
#include <map>

namespace situ::prof {
namespace {

size_t at(ir::Value v) { return static_cast<size_t>(v); }

// One tensor per root of views: from the first launch that touches it to the last one.
std::vector<Tensor> tensors_of(const step::Program& program, int first_slab, const device::Target& target) {
  const ir::Graph& graph = program.graph;
  const std::vector<plan::Part> parts = plan::parts_of(graph);
  std::map<ir::Value, Tensor> tensors;
  int launch = -1;
  const auto touch = [&](ir::Value v, const ir::Node& node, int when) {
    const ir::Value root = parts[at(v)].root;
    const plan::Placement& place = program.plan.of[at(root)];
    if (place.slab < first_slab) return;
    const Type& type = graph.type(root);
    Tensor fresh{node.origin.layer,
                 node.op,
                 node.origin.backward,
                 place.slab - first_slab,
                 place.offset,
                 type.count() * target.bytes(type.dtype),
                 when,
                 when};
    Tensor& tensor = tensors.try_emplace(root, std::move(fresh)).first->second;
    tensor.last = std::max(tensor.last, when);
  };
  const int count = static_cast<int>(program.launches.size());
  for (const ir::Node& node : graph.nodes) {
    if (plan::is_launch(node)) ++launch;
    if (node.op == "output" && count > 0) touch(node.inputs[0], node, count - 1);
    if (!plan::is_launch(node)) continue;
    for (ir::Value v : node.inputs) touch(v, node, launch);
    for (ir::Value v : node.outputs) touch(v, node, launch);
  }
  std::vector<Tensor> list;
  for (auto& [root, tensor] : tensors) list.push_back(std::move(tensor));
  std::stable_sort(list.begin(), list.end(), [](const Tensor& a, const Tensor& b) { return a.first < b.first; });
  return list;
}

bool alive(const Tensor& tensor, int launch) { return tensor.first <= launch && launch <= tensor.last; }

// Of the ranges in use: a result may lie in the memory of an operand that dies with it.
int64_t live_bytes(const std::vector<Tensor>& tensors, int launch) {
  std::vector<std::tuple<int, int64_t, int64_t>> ranges;
  for (const Tensor& t : tensors)
    if (alive(t, launch)) ranges.emplace_back(t.slab, t.offset, t.offset + t.bytes);
  std::sort(ranges.begin(), ranges.end());
  int64_t bytes = 0, end = 0;
  int slab = -1;
  for (const auto& [s, from, to] : ranges) {
    if (s != slab) end = 0;
    slab = s;
    bytes += std::max<int64_t>(0, to - std::max(from, end));
    end = std::max(end, to);
  }
  return bytes;
}

std::string kind_of(const ir::State& state) {
  if (state.attrs.flag("derived")) return "prepared weights";
  const std::string role = state.attrs.text("role", "");
  if (role == "parameter") return "parameters";
  if (role == "statistic") return "statistics";
  if (role == "metric") return "metrics";
  return role == "accumulator" ? "accumulated gradients" : "optimizer";
}

std::vector<MemoryMap::Part> persistent_of(const step::Compiled& compiled, const device::Target& target) {
  std::map<std::string, int64_t> bytes;
  for (const ir::State& state : compiled.memory.states())
    bytes[kind_of(state)] += state.type.count() * target.bytes(state.type.dtype);
  const std::vector<int64_t> slabs = compiled.memory.resident_slabs();
  bytes["a batch"] += slabs[0];
  bytes["constants"] += slabs[1];
  std::vector<MemoryMap::Part> parts;
  for (const auto& [what, count] : bytes) parts.push_back({what, count});
  std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return parts;
}

}  // namespace

MemoryMap memory_map(const step::Compiled& compiled, int index, const device::Target& target) {
  const step::Program& program = compiled.programs[static_cast<size_t>(index)];
  MemoryMap map;
  map.tensors = tensors_of(program, compiled.memory.first_arena_slab(), target);
  map.arena_bytes = program.plan.arena_bytes();
  for (int i = 0; i < static_cast<int>(program.launches.size()); ++i) map.live.push_back(live_bytes(map.tensors, i));
  map.peak = static_cast<int>(std::max_element(map.live.begin(), map.live.end()) - map.live.begin());
  for (size_t t = 0; t < map.tensors.size(); ++t)
    if (alive(map.tensors[t], map.peak)) map.at_peak.push_back(static_cast<int>(t));
  std::stable_sort(map.at_peak.begin(), map.at_peak.end(), [&](int a, int b) {
    return map.tensors[static_cast<size_t>(a)].bytes > map.tensors[static_cast<size_t>(b)].bytes;
  });
  map.persistent = persistent_of(compiled, target);
  return map;
}

}  // namespace situ::prof
