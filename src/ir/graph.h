// graph.h -- one program as a flat SSA graph: nodes in execution order, values are indices.
//
// The same form serves every stage, from the model to the launch list, and prints as text (text.h):
//
//     program train
//     state fc.weight : f32[784,10] {init="uniform"}
//     %0 = input {name="x"} : f32[64,784]
//     %1 = read {state="fc.weight"} : f32[784,10]
//     %2 = matmul(%0, %1) : f32[64,10]
//     write(%9) {state="fc.weight"}
//     output(%2) {name="logits"}
//
// Structural nodes are known here; every other op is defined in ops/:
//   input    a tensor fed with each batch            control  a scalar of the control block, uploaded with the batch
//   const    a tensor whose elements are all `value`  read     the value of a state when the program starts
//   write    the value of a state when it ends        output   a tensor the host may read after the program ran
// SSA has no memory, so what lasts from step to step is a named state. All reads of a state see its value before the
// program; at most one write per program gives it a new one. No other mutable tensor exists.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "ir/attrs.h"

namespace situ::ir {

using Value = int32_t;
inline constexpr Value kNoValue = -1;
using Values = std::vector<Value>;

// The layer of the model that a node serves, for profiles: never printed, compared or decided by.
struct Origin {
  std::string layer;      // empty: not known
  bool backward = false;  // it computes a gradient
  bool operator==(const Origin&) const = default;
};

struct Node {
  std::string op;
  Values inputs;
  Values outputs;
  Attrs attrs;
  Origin origin = {};
};

struct ValueInfo {
  Type type;
  int producer = -1;  // index of the node
  int index = 0;      // which of its outputs
};

struct State {
  std::string name;
  Type type;
  Attrs attrs;  // how it starts and how files hold it: model/init.h
};

struct Graph {
  std::string name;
  std::vector<State> states;
  std::vector<Node> nodes;
  std::vector<ValueInfo> values;
  Origin origin = {};  // of nodes appended from now on

  const Type& type(Value v) const { return values[static_cast<size_t>(v)].type; }
  const Node& producer(Value v) const { return nodes[static_cast<size_t>(values[static_cast<size_t>(v)].producer)]; }
  const State* find_state(std::string_view state) const;
  void declare(const State& state);  // once per name; a second declaration must agree

  // Appends a node with these result types. Callers outside ir/ use ops::emit, which derives the types.
  const Node& append(std::string_view op, const Values& inputs, const std::vector<Type>& types,
                     const Attrs& attrs = {});

  Value input(std::string_view name, const Type& type);
  Value control(std::string_view name, DType dtype = DType::f32);
  Value constant(double value, const Type& type);
  Value read(std::string_view state);
  void write(std::string_view state, Value value);
  void output(std::string_view name, Value value);
};

bool is_structural(std::string_view op);  // one of the six above
bool is_source(std::string_view op);      // input, control, const, read: no inputs, no launch
std::vector<std::vector<int>> users_of(
    const Graph& graph);  // for each value, the nodes that read it, in order, once each

// Nodes of unknown origin take that of a node that reads them, or else of one they read: what a pass adds serves those.
void fill_origins(Graph& graph);

// Copies a graph node by node while a pass changes it: map old values to new ones, copy what stays.
class Rebuild {
 public:
  explicit Rebuild(const Graph& from) : from_(from), map_(from.values.size(), kNoValue) {
    to.name = from.name;
    to.states = from.states;
  }
  Graph to;
  Value operator()(Value old) const;  // the new name of an old value; a bug if it has none yet
  Values operator()(const Values& olds) const;
  void map(Value old, Value fresh);  // the node behind `fresh` takes the old one's origin, if it has none yet
  void copy(const Node& node);       // append with mapped inputs, same types and attributes

 private:
  const Graph& from_;
  Values map_;
};

}  // namespace situ::ir
