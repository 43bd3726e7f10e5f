// candidate.h -- how a device runs an op: ways to expand a graph node into launch nodes.
//
// A launch node is one launch, its op is a kernel's name, and every temporary is a value of the graph, so the planner
// sees every byte and the profiler every launch. An op whose kernel has the same name needs no candidate.
#pragma once
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "device/target.h"
#include "ops/op.h"

namespace situ::device {

class Expansion;

struct Candidate {
  std::string_view op;                                             // the graph op it implements
  std::string_view name;                                           // for people, tuning and tests
  bool (*accepts)(const ops::OpView&, const Target&) = nullptr;    // null: always
  double (*seconds)(const ops::OpView&, const Target&) = nullptr;  // estimate; null: the roofline of the op's cost
  void (*expand)(Expansion&) = nullptr;
};
using CandidateList = std::span<const Candidate>;

// What an expanding candidate sees and does: emit launch nodes, name the results.
class Expansion {
 public:
  // `steady`: inputs whose values no step changes.
  Expansion(ir::Graph& graph, const ir::Node& node, std::vector<Type> out_types, ir::Values inputs,
            std::vector<bool> steady, const Target& target);

  const ops::OpView& view() const { return view_; }
  const ir::Attrs& attrs() const { return node_.attrs; }
  const Target& target() const { return target_; }
  int arity() const { return static_cast<int>(inputs_.size()); }
  ir::Value in(int i) const { return inputs_[static_cast<size_t>(i)]; }
  bool steady(int i) const { return steady_[static_cast<size_t>(i)]; }  // what is made of it alone is made once
  const ir::Values& inputs() const { return inputs_; }
  const Type& type(ir::Value v) const { return graph_.type(v); }
  const Type& out_type(int i) const { return view_.outs[static_cast<size_t>(i)]; }
  // One launch. `aliases` are (output, input) pairs of this launch that may share memory.
  ir::Values launch_all(std::string_view kernel, const ir::Values& inputs, const std::vector<Type>& types,
                        ir::Attrs attrs = {}, const std::vector<ops::Alias>& aliases = {});
  ir::Value launch(std::string_view kernel, const ir::Values& inputs, const Type& type, ir::Attrs attrs = {},
                   const std::vector<ops::Alias>& aliases = {});
  // The op itself as one launch, with operands replaced: its results, attributes and aliases stay.
  void launch_op(std::string_view kernel, const ir::Values& inputs);
  void result(int i, ir::Value v) { results_[static_cast<size_t>(i)] = v; }
  const ir::Values& results() const { return results_; }

 private:
  ir::Graph& graph_;
  const ir::Node node_;
  ir::Values inputs_;
  std::vector<bool> steady_;
  const Target& target_;
  ops::OpView view_;
  ir::Values results_;
};

// What decides how fast a node runs, as text: op, operands, attributes. The key of measured choices.
std::string node_key(const ops::OpView& view);
using Choices = std::map<std::string, std::string, std::less<>>;  // node_key -> name of a candidate
using LeftOut = std::map<std::string, std::string, std::less<>>;  // unit (plan::unit_of) -> why it is not used

double roofline_seconds(const ops::Cost& cost, const Target& target);

}  // namespace situ::device
