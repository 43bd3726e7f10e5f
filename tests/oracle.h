// oracle.h -- graphs and single ops run in double by the ops' own references; what every other result is held against.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "ops/examples.h"
#include "ops/op.h"

namespace situ::oracle {

using Tensor = std::vector<double>;
using Tensors = std::vector<Tensor>;
using Named = std::map<std::string, Tensor>;

// Every value of the graph, by its index. `inputs` feeds input and control nodes, `states` read nodes. What a program
// writes is the operand of its write node.
Tensors evaluate(const ir::Graph& graph, const Named& inputs, const Named& states = {});

// The results of one op, and the magnitudes behind them.
Tensors run(const ops::OpView& view, const Tensors& inputs);
Tensors magnitudes(const ops::OpView& view, const Tensors& inputs);

// An example as a graph of one node: its inputs are i0, i1, ..., its results are outputs o0, o1, ...
struct Single {
  ir::Graph graph;
  int node = 0;
  Tensors inputs;
  const ir::Node& op() const { return graph.nodes[static_cast<size_t>(node)]; }
  ops::OpView view() const { return ops::view_of(graph, op()); }
  Named named() const;
};
Single single(const ops::OpDef& op, const ops::Example& example, uint64_t seed = 1);

// The examples that `text` describes, for an op of this name.
std::vector<ops::Example> examples_from(std::string_view op, std::string_view text);

}  // namespace situ::oracle
