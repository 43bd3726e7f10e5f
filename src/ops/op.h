// op.h -- what an op is: its types, gradient rule, cost, reference and examples, all in one file of ops/defs/.
//
// Each file defs/NAME.cpp defines one function `OpList NAME()` in situ::ops::defs; the build finds it by the file's
// name, and there is no list to edit. Tests, tuner and benchmarks run on `examples` alone, so a new op brings its own.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "ir/graph.h"

namespace situ::ops {

using ir::Attrs;
using ir::Graph;
using ir::Ints;
using ir::Node;
using ir::Value;
using ir::Values;
using Types = std::vector<Type>;

// A node seen with the types of its operands; what type rules, costs and candidates look at.
struct OpView {
  std::string_view op;
  std::vector<Type> ins;
  std::vector<Type> outs;  // empty while the type rule runs
  const Attrs& attrs;

  int arity() const { return static_cast<int>(ins.size()); }
  const Type& in(int i) const { return ins[static_cast<size_t>(i)]; }
  const Type& out(int i) const { return outs[static_cast<size_t>(i)]; }
};
OpView view_of(const Graph& graph, const Node& node);

struct Cost {
  double flops = 0;
  double bytes = -1;  // negative: every operand is read or written once
};

// The oracle's operands: dense, row-major, always double (integers too).
struct RefTensor {
  Type type;
  double* data = nullptr;
  int64_t count() const { return type.count(); }
  const Shape& shape() const { return type.shape; }
  double& operator[](int64_t i) const { return data[i]; }
};
struct RefCall {
  const Attrs& attrs;
  std::span<const RefTensor> in;
  std::span<const RefTensor> out;
};

class GradBuilder;
using Alias = std::pair<int, int>;  // (output, input) that may share memory

struct OpDef {
  std::string_view name;
  std::string_view signature;                   // "(x: float, w: float) -> y", for people and error messages
  Types (*type)(const OpView&) = nullptr;       // fails with a sentence when the operands do not fit
  void (*grad)(GradBuilder&) = nullptr;         // null: not differentiable (gradient 0 flows nowhere)
  Cost (*cost)(const OpView&) = nullptr;        // null: one flop per output element
  void (*reference)(const RefCall&) = nullptr;  // plain, obvious, double
  void (*magnitude)(const RefCall&) = nullptr;  // a bound of the sum of absolute terms behind each result; sees the
                                                // signed inputs. null: the reference on |inputs|. Tolerances are
                                                // c * eps * this; call it through run_magnitude (magnitude.h).
  Values (*expand)(Graph&, const Values& inputs, const Attrs&) = nullptr;  // its results made of simpler ops, for
                                                                           // devices without a kernel of this name
  std::vector<Alias> (*aliases)(const OpView&) = nullptr;  // outputs that may overwrite an input of the same type
  std::string_view examples;                               // "f32[4,10], i32[4]<10 {axis=1}; ..." -- see examples.h
  bool view = false;   // only renames memory: costs no launch where the layout allows
  bool fused = false;  // made by fusion: a device with a candidate for it runs it whole, others what it expands to
  bool dense = false;  // kernels take no pitched operands: the planner copies slices before this op
  double (*scalar)(const double* args) = nullptr;  // set: a pointwise op without attributes, operands broadcast
};

using OpList = std::span<const OpDef>;
std::vector<OpList> all_families();  // generated from the files in defs/
const std::vector<const OpDef*>& all_ops();
const OpDef* find(std::string_view name);  // null if unknown
const OpDef& get(std::string_view name);   // fails and names the nearest
Cost cost_of(const Graph& graph, const Node& node);
Cost cost_of(const OpView& view);

// Appends a node after running its type rule; an error names the op, the operand types and the signature.
Values emit_all(Graph& graph, std::string_view op, const Values& inputs, const Attrs& attrs = {});
Value emit(Graph& graph, std::string_view op, const Values& inputs, const Attrs& attrs = {});

// What a gradient rule sees: the node's operands, the gradients that arrived, and where to add its own.
class GradBuilder {
 public:
  GradBuilder(Graph& graph, const Node& node, Values douts, std::vector<bool> wanted)
      : graph_(graph),
        node_(node),
        douts_(std::move(douts)),
        wanted_(std::move(wanted)),
        dins_(node.inputs.size(), ir::kNoValue) {}

  const Attrs& attrs() const { return node_.attrs; }
  int arity() const { return static_cast<int>(node_.inputs.size()); }
  Value in(int i) const { return node_.inputs[static_cast<size_t>(i)]; }
  Value out(int i) const { return node_.outputs[static_cast<size_t>(i)]; }
  const Type& type(Value v) const { return graph_.type(v); }
  bool has_dout(int i) const { return douts_[static_cast<size_t>(i)] != ir::kNoValue; }
  Value dout(int i);  // zeros if no gradient arrived
  bool wants(int i) const { return wanted_[static_cast<size_t>(i)]; }
  void add(int i, Value dx);  // ignored if not wanted; summed if added twice
  Value emit(std::string_view op, const Values& inputs, const Attrs& attrs = {}) {
    return ops::emit(graph_, op, inputs, attrs);
  }
  Values emit_all(std::string_view op, const Values& inputs, const Attrs& attrs = {}) {
    return ops::emit_all(graph_, op, inputs, attrs);
  }
  Value constant(double value, const Type& type = {}) { return graph_.constant(value, type); }
  Value sum_to(Value v, Shape shape);  // undoes broadcasting: sums v down to this shape
  Value reshaped(Value v, const Shape& shape);
  const Values& dins() const { return dins_; }

 private:
  Graph& graph_;
  const Node node_;  // a copy: the graph grows while the rule runs
  Values douts_;
  std::vector<bool> wanted_;
  Values dins_;
};

// Helpers for type rules.
void need(bool condition, std::string_view sentence);  // fails with the sentence
Types same_as_first(const OpView& view);
std::vector<Alias> first_over_first(const OpView& view);  // {(0, 0)}
inline int normal_axis(int64_t axis, int rank) { return static_cast<int>(axis < 0 ? axis + rank : axis); }

}  // namespace situ::ops
