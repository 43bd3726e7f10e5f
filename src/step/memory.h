// memory.h -- what outlasts a program, and where: one map for all programs of a session.
//
//   slab 0      batch:      zero run | control block (64 fields) | inputs          the host writes it, step by step
//   slab 1      constants:  zero run | splat tensors                               filled once
//   slab 2..    states:     zero run | parameters, slots, metrics, prepared panels
//   then        arena slabs, the maximum over the programs
#pragma once
#include <map>
#include <string>
#include <vector>

#include "device/target.h"
#include "ir/graph.h"
#include "plan/plan.h"

namespace situ::step {

inline constexpr int kControlFields = 64;

struct Field {
  std::string name;
  Type type;
  int64_t offset = 0;       // bytes in the batch slab
  int64_t host_offset = 0;  // bytes in the host's staging block, 4-byte elements
};

struct Constant {
  double value = 0;
  Type type;
  int64_t offset = 0;
};

class MemoryMap : public plan::Residents {
 public:
  MemoryMap(const std::vector<ir::Graph>& programs, const device::Target& target);

  plan::Placement of(const ir::Graph& graph, const ir::Node& source) override;
  plan::Placement of_state(const ir::Graph& graph, const std::string& state) override;
  int first_arena_slab() const override { return 2 + static_cast<int>(state_slabs_.size()); }

  const std::vector<Field>& inputs() const { return inputs_; }
  const std::vector<Field>& controls() const { return controls_; }
  const std::vector<Constant>& constants() const { return constants_; }
  const std::vector<ir::State>& states() const { return states_; }
  const ir::State* find_state(std::string_view name) const;
  int64_t host_bytes() const { return host_bytes_; }  // of one staging block
  int64_t control_bytes() const { return kControlFields * element_bytes_; }
  std::vector<int64_t> resident_slabs() const;  // bytes of slabs 0, 1, 2..

 private:
  void add_input(const std::string& name, const Type& type);
  void add_state(const ir::State& state);
  void add_control(const std::string& name, const Type& type);
  void add_constant(double value, const Type& type);

  int64_t element_bytes_, alignment_, max_slab_;
  std::vector<Field> inputs_, controls_;
  std::vector<Constant> constants_;
  std::vector<ir::State> states_;
  std::map<std::string, plan::Placement, std::less<>> state_places_;
  int64_t batch_bytes_ = 0, constant_bytes_ = 0, host_bytes_ = 0;
  std::vector<int64_t> state_slabs_;
};

}  // namespace situ::step
