#include "step/memory.h"

#include <algorithm>
#include <set>

#include "base/error.h"

namespace situ::step {
namespace {

template <typename List>
auto named(List& list, std::string_view name) {
  return std::find_if(list.begin(), list.end(), [&](const auto& item) { return item.name == name; });
}

}  // namespace

MemoryMap::MemoryMap(const std::vector<ir::Graph>& programs, const device::Target& target)
    : element_bytes_(target.element_bytes), alignment_(target.alignment), max_slab_(target.max_slab) {
  batch_bytes_ = device::kZeroRun + round_up(control_bytes(), alignment_);
  constant_bytes_ = device::kZeroRun;
  host_bytes_ = round_up(kControlFields * 4, alignment_);
  std::set<std::string> used;  // a state a program declares but never touches takes no memory
  for (const ir::Graph& graph : programs)
    for (const ir::Node& node : graph.nodes) {
      if (node.op == "input") add_input(node.attrs.text("name"), graph.type(node.outputs[0]));
      if (node.op == "control") add_control(node.attrs.text("name"), graph.type(node.outputs[0]));
      if (node.op == "const") add_constant(node.attrs.number("value"), graph.type(node.outputs[0]));
      if (node.op == "read" || node.op == "write") used.insert(node.attrs.text("state"));
    }
  for (const ir::Graph& graph : programs)
    for (const ir::State& state : graph.states)
      if (used.count(state.name)) add_state(state);
}

void MemoryMap::add_input(const std::string& name, const Type& type) {
  if (auto it = named(inputs_, name); it != inputs_.end()) {
    if (!(it->type == type))
      fail("input `{}` is {} in one program and {} in another: use one shape, or another name", name,
           to_string(it->type), to_string(type));
    return;
  }
  inputs_.push_back({name, type, batch_bytes_, host_bytes_});
  batch_bytes_ += round_up(type.count() * element_bytes_, alignment_);
  host_bytes_ += round_up(type.count() * 4, alignment_);
  if (batch_bytes_ > max_slab_) fail_environment("a batch of {} bytes is too large: use a smaller batch", batch_bytes_);
}

void MemoryMap::add_control(const std::string& name, const Type& type) {
  if (named(controls_, name) != controls_.end()) return;
  const auto index = static_cast<int64_t>(controls_.size());
  SITU_ASSERT(index < kControlFields, "more than {} control fields", kControlFields);
  controls_.push_back({name, type, device::kZeroRun + index * element_bytes_, index * 4});
}

void MemoryMap::add_constant(double value, const Type& type) {
  for (const Constant& c : constants_)
    if (c.value == value && c.type == type) return;
  constants_.push_back({value, type, constant_bytes_});
  constant_bytes_ += round_up(type.count() * element_bytes_, alignment_);
}

void MemoryMap::add_state(const ir::State& state) {
  if (const ir::State* known = find_state(state.name)) {
    if (!(known->type == state.type))
      fail("state `{}` is {} in one program and {} in another", state.name, to_string(known->type),
           to_string(state.type));
    return;
  }
  const int64_t bytes = round_up(state.type.count() * element_bytes_, alignment_);
  if (device::kZeroRun + bytes > max_slab_)
    fail_environment("state `{}` needs {} MiB, but the device allocates at most {} MiB at once: use a smaller model",
                     state.name, bytes >> 20, max_slab_ >> 20);
  if (state_slabs_.empty() || state_slabs_.back() + bytes > max_slab_) state_slabs_.push_back(device::kZeroRun);
  state_places_[state.name] = {1 + static_cast<int>(state_slabs_.size()), state_slabs_.back(), state.type.shape.cols()};
  state_slabs_.back() += bytes;
  states_.push_back(state);
}

const ir::State* MemoryMap::find_state(std::string_view name) const {
  auto it = named(states_, name);
  return it == states_.end() ? nullptr : &*it;
}

plan::Placement MemoryMap::of(const ir::Graph& graph, const ir::Node& source) {
  const Type& type = graph.type(source.outputs[0]);
  if (source.op == "read") return of_state(graph, source.attrs.text("state"));
  if (source.op == "const") {
    for (const Constant& c : constants_)
      if (c.value == source.attrs.number("value") && c.type == type) return {1, c.offset, type.shape.cols()};
    SITU_ASSERT(false, "a constant without a place");
  }
  const auto& fields = source.op == "input" ? inputs_ : controls_;
  auto it = named(fields, source.attrs.text("name"));
  SITU_ASSERT(it != fields.end());
  return {0, it->offset, type.shape.cols()};
}

plan::Placement MemoryMap::of_state(const ir::Graph&, const std::string& state) { return state_places_.at(state); }

std::vector<int64_t> MemoryMap::resident_slabs() const {
  std::vector<int64_t> slabs = {batch_bytes_, constant_bytes_};
  slabs.insert(slabs.end(), state_slabs_.begin(), state_slabs_.end());
  return slabs;
}

}  // namespace situ::step
