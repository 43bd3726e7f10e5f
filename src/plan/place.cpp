// place.cpp -- offsets from lifetimes: the largest tensor first, each at the lowest offset where no tensor alive at the
// same time lies. Slabs are opened as the largest allocation demands.
#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"
#include "plan/plan.h"

namespace situ::plan {
namespace {

using ir::Node;
using ir::Value;
using ir::Values;

size_t at(Value v) { return static_cast<size_t>(v); }

struct Item {
  Value root = ir::kNoValue;
  int64_t bytes = 0;
  int first = 0, last = 0;  // nodes
  int slab = 0;
  int64_t offset = 0;
  bool meets(const Item& other) const { return first <= other.last && other.first <= last; }
};

// The value whose storage v uses: through views to the root, through in-place results to the first owner.
Values storage_roots(const ir::Graph& graph, const std::vector<Part>& parts) {
  Values storage(graph.values.size());
  for (size_t v = 0; v < storage.size(); ++v) storage[v] = parts[v].root;
  for (const Node& node : graph.nodes) {  // in order, so that chains resolve
    for (Value v : node.outputs) storage[at(v)] = storage[at(parts[at(v)].root)];
    for (auto [out, in] : pairs_of(node, "alias"))
      storage[at(node.outputs[static_cast<size_t>(out)])] = storage[at(node.inputs[static_cast<size_t>(in)])];
  }
  for (size_t v = 0; v < storage.size(); ++v) storage[v] = storage[at(parts[v].root)];
  return storage;
}

std::map<Value, Item> lifetimes(const ir::Graph& graph, const Values& storage, const device::Target& target) {
  std::map<Value, Item> items;
  auto touch = [&](Value v, int n) {
    auto [it, fresh] = items.try_emplace(storage[at(v)]);
    Item& item = it->second;
    const Type& type = graph.type(storage[at(v)]);
    if (fresh) item = {storage[at(v)], type.count() * target.bytes(type.dtype), n, n, 0, 0};
    item.last = std::max(item.last, n);
    item.first = std::min(item.first, n);
  };
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (Value v : graph.nodes[n].inputs)
      touch(v, graph.nodes[n].op == "output" ? static_cast<int>(graph.nodes.size()) : static_cast<int>(n));
    for (Value v : graph.nodes[n].outputs) touch(v, static_cast<int>(n));
  }
  return items;
}

// The lowest free offset in one slab, or -1 if it does not fit.
int64_t lowest_offset(const Item& item, int slab, const std::vector<Item>& placed, const device::Target& target) {
  std::vector<std::pair<int64_t, int64_t>> busy;  // [begin, end)
  for (const Item& other : placed)
    if (other.slab == slab && other.meets(item)) busy.emplace_back(other.offset, other.offset + other.bytes);
  std::sort(busy.begin(), busy.end());
  int64_t offset = device::kZeroRun;
  for (auto [begin, end] : busy) {
    if (offset + item.bytes <= begin) break;
    offset = std::max(offset, round_up(end, target.alignment));
  }
  return offset + item.bytes <= target.max_slab ? offset : -1;
}

void place_item(Item& item, std::vector<Item>& placed, std::vector<int64_t>& slabs, const device::Target& target) {
  for (int slab = 0;; ++slab) {
    const int64_t offset = lowest_offset(item, slab, placed, target);
    if (offset < 0 && slab >= static_cast<int>(slabs.size()))
      fail_environment("a tensor of {} bytes is larger than {} can allocate at once ({} bytes): use a smaller batch",
                       item.bytes, target.name, target.max_slab);
    if (offset < 0) continue;
    item.slab = slab;
    item.offset = offset;
    if (slab >= static_cast<int>(slabs.size())) slabs.push_back(0);
    slabs[static_cast<size_t>(slab)] = std::max(slabs[static_cast<size_t>(slab)], offset + item.bytes);
    placed.push_back(item);
    return;
  }
}

}  // namespace

int64_t Plan::arena_bytes() const { return std::accumulate(arena_slabs.begin(), arena_slabs.end(), int64_t{0}); }

Plan place(const ir::Graph& graph, const device::Target& target, Residents& residents) {
  const std::vector<Part> parts = parts_of(graph);
  const Values storage = storage_roots(graph, parts);
  auto items = lifetimes(graph, storage, target);

  Plan plan;
  std::map<Value, Placement> base;  // of each storage root
  for (const Node& node : graph.nodes) {
    if (ir::is_source(node.op)) base[node.outputs[0]] = residents.of(graph, node);
    if (node.op == "write") base[storage[at(node.inputs[0])]] = residents.of_state(graph, node.attrs.text("state"));
  }
  std::vector<Item> unplaced;
  for (auto& [root, item] : items)
    if (!base.count(root)) unplaced.push_back(item);
  std::stable_sort(unplaced.begin(), unplaced.end(), [](const Item& a, const Item& b) { return a.bytes > b.bytes; });
  std::vector<Item> placed;
  for (Item& item : unplaced) {
    place_item(item, placed, plan.arena_slabs, target);
    base[item.root] = {residents.first_arena_slab() + item.slab, item.offset, 0};
  }
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const Placement& at_root = base.at(storage[v]);
    const int64_t element = target.bytes(graph.values[v].type.dtype);
    plan.of.push_back({at_root.slab, at_root.offset + parts[v].offset * element, parts[v].pitch});
  }
  return plan;
}

std::vector<device::LaunchSpec> launches_of(const ir::Graph& graph, const Plan& plan) {
  auto argument = [&](Value v) {
    const Placement& p = plan.of[at(v)];
    return device::TensorArg{p.slab, p.offset, p.pitch, graph.type(v)};
  };
  std::vector<device::LaunchSpec> launches;
  for (const Node& node : graph.nodes) {
    if (!is_launch(node)) continue;
    device::LaunchSpec launch{node, {}, {}, 0, 0};
    for (Value v : node.inputs) launch.in.push_back(argument(v));
    for (Value v : node.outputs) launch.out.push_back(argument(v));
    const ops::Cost cost = ops::cost_of(graph, node);
    launch.flops = node.attrs.number("flops", ops::find(node.op) ? cost.flops : 0);
    launch.bytes = cost.bytes;
    launches.push_back(std::move(launch));
  }
  return launches;
}

}  // namespace situ::plan
