// plan.h -- from an optimised graph to placed launches: the stages between the passes and the device, in order.
//
//   lower      each op becomes launch nodes, by the device's fastest candidate; what is stored as half is decided
//   views      reshape, split and concat become names for parts of other tensors; copies appear where they cannot
//   settle     every state write is produced in the state's own memory, or copied there
//   order      launches in an order that reads every state before its memory is overwritten
//   in_place   results take over the memory of operands that die with them
//   place      every tensor gets (slab, offset, pitch), computed from lifetimes
//   check      replays the list symbolically and proves that each launch reads what it was meant to read
// All stages but the last two keep the form of ir::Graph, so they print and parse.
#pragma once
#include <string>
#include <vector>

#include "device/device.h"
#include "ir/graph.h"

namespace situ::plan {

// lower.cpp
struct Lowered {
  ir::Graph graph;
  std::vector<Type> types;  // how each value of the graph given is stored
};
Lowered lower(const ir::Graph& graph, const device::Device& device);
// The candidates a node may take, the one that lower would take first.
std::vector<const device::Candidate*> candidates_for(const device::Device& device, const ops::OpView& view);
// What is left out as a whole: a candidate of an op ("conv2d/packed"), or, for an op with a kernel of its own (null),
// that kernel as it is compiled for this node ("fused#4cd43e70f7798826"). With operands stored as half a candidate is
// another one ("conv2d/packed+f16").
std::string unit_of(const device::Device& device, const ops::OpView& view, const device::Candidate* candidate);
// The node as `Lowered::types` says its operands are stored.
ops::OpView stored_view(const ir::Graph& graph, const ir::Node& node, const std::vector<Type>& types);
// One launch with all its operands dense: enough to ask a device what it would compile.
device::LaunchSpec dense_launch(const ops::OpView& view);

// storage.cpp -- the launches with activations stored as half; `keep`: nodes whose operands all stay f32.
ir::Graph store_halves(ir::Graph graph, const device::Device& device, const std::vector<bool>& keep);

// views.cpp -- a value is `root`'s storage from element `offset` on, rows `pitch` elements apart.
struct Part {
  ir::Value root = ir::kNoValue;
  int64_t offset = 0;
  int64_t pitch = 0;
};
bool is_view(const ir::Node& node);                   // reshape, split, concat: names, not work
bool is_launch(const ir::Node& node);                 // everything that is neither structural nor a view
ir::Graph materialise_views(const ir::Graph& graph);  // inserts copies so that parts_of can name every view
std::vector<Part> parts_of(const ir::Graph& graph);   // one per value

// states.cpp
ir::Graph settle_writes(const ir::Graph& graph);

// order.cpp
ir::Graph order(const ir::Graph& graph);

// in_place.cpp -- decides the attribute alias=[output, input, ..] among may_alias.
ir::Graph in_place(const ir::Graph& graph);
std::vector<ops::Alias> pairs_of(const ir::Node& node, std::string_view attr);  // of may_alias or alias

// hoist.cpp -- moves launches that depend only on states this program does not write into a prepare program.
// Their results become derived states, read here and written there.
struct Hoisted {
  ir::Graph program;
  ir::Graph prepare;  // empty if nothing moved
};
Hoisted hoist(const ir::Graph& graph);  // a state with the attribute `changing` counts as written
// Per value: it depends on nothing that changes while the program runs, so that launches on it alone are hoisted.
std::vector<bool> steady_values(const ir::Graph& graph);

// place.cpp
struct Placement {
  int slab = -1;       // -1: no memory (a value nobody reads)
  int64_t offset = 0;  // bytes
  int64_t pitch = 0;   // elements
};
// Where the values live that outlast a program: batch, control fields, constants and states. Shared by all programs of
// a session, so that they see the same memory.
class Residents {
 public:
  virtual ~Residents() = default;
  virtual Placement of(const ir::Graph& graph, const ir::Node& source) = 0;  // input, control, const, read
  virtual Placement of_state(const ir::Graph& graph, const std::string& state) = 0;
  virtual int first_arena_slab() const = 0;
};
struct Plan {
  std::vector<Placement> of;         // one per value
  std::vector<int64_t> arena_slabs;  // bytes of each, the zero run included
  int64_t arena_bytes() const;
};
Plan place(const ir::Graph& graph, const device::Target& target, Residents& residents);

// check.cpp -- fails (as a bug) naming the launch and the operand that was overwritten.
void check(const ir::Graph& graph, const Plan& plan, const device::Target& target);

std::vector<device::LaunchSpec> launches_of(const ir::Graph& graph, const Plan& plan);

}  // namespace situ::plan
