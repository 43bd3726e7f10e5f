// views.cpp -- reshape, split and concat as names for parts of tensors.
//
//   reshape   same root; needs dense rows unless the last axis stays
//   split     same root, further offset; along the last axis the pitch stays the parent's
//   concat    the other way round: operands are produced inside the concat's own storage, its root
// A concat operand can be produced there if a launch makes it and nobody else claims it; otherwise a copy does.
#include <set>

#include "base/error.h"
#include "plan/plan.h"

namespace situ::plan {
namespace {

using ir::Node;
using ir::Value;

size_t at(Value v) { return static_cast<size_t>(v); }
bool rows_matter(const Shape& shape) { return shape.rows() > 1; }
bool is_dense(const Part& part, const Shape& shape) { return part.pitch == shape.cols() || !rows_matter(shape); }

bool reshapes_in_place(const Part& part, const Shape& from, const Shape& to) {
  return is_dense(part, from) || from.cols() == to.cols();
}

// Elements from one part of a concat or split to the next: along the last axis a column, else a whole block.
int64_t step_of(const Shape& part, int axis) { return axis == part.rank() - 1 ? part.cols() : part.count(); }

// The parts of a node's outputs, given those of its inputs.
void name_outputs(const ir::Graph& graph, const Node& node, std::vector<Part>& parts) {
  if (node.op == "reshape") {
    const Part& in = parts[at(node.inputs[0])];
    const Shape& shape = graph.type(node.outputs[0]).shape;
    const bool dense = is_dense(in, graph.type(node.inputs[0]).shape);
    parts[at(node.outputs[0])] = {in.root, in.offset, dense ? shape.cols() : in.pitch};
  } else if (node.op == "split") {
    const Part in = parts[at(node.inputs[0])];
    const Shape& whole = graph.type(node.inputs[0]).shape;
    const int axis = ops::normal_axis(node.attrs.integer("axis"), whole.rank());
    int64_t offset = in.offset;
    for (Value v : node.outputs) {
      parts[at(v)] = {in.root, offset, in.pitch};
      const Shape& shape = graph.type(v).shape;
      offset += axis == whole.rank() - 1 ? shape.cols() : shape.rows() * in.pitch;
    }
  } else {
    for (Value v : node.outputs)
      if (parts[at(v)].root == ir::kNoValue) parts[at(v)] = {v, 0, graph.type(v).shape.cols()};
  }
}

// Operands of concats lie inside the concat's storage: known before anything else.
void name_concat_operands(const ir::Graph& graph, std::vector<Part>& parts) {
  for (const Node& node : graph.nodes) {
    if (node.op != "concat") continue;
    const Value root = node.outputs[0];
    const Shape& whole = graph.type(root).shape;
    const int axis = ops::normal_axis(node.attrs.integer("axis"), whole.rank());
    int64_t offset = 0;
    for (Value v : node.inputs) {
      parts[at(v)] = {root, offset, whole.cols()};
      offset += step_of(graph.type(v).shape, axis);
    }
  }
}

Value append_copy(ir::Graph& graph, Value v) {
  const Type type = graph.type(v);
  return graph.append("copy", {v}, {type}).outputs[0];
}

// Kernels of some ops take no pitched operands and results.
bool wants_dense(const Node& node) {
  const ops::OpDef* op = ops::find(node.op);
  return op && op->dense;
}

ir::Graph copy_shared_concat_operands(const ir::Graph& graph) {
  ir::Rebuild rebuild(graph);
  std::set<Value> claimed;
  for (const Node& node : graph.nodes)
    if (node.op == "write") claimed.insert(node.inputs[0]);  // will be produced in the state's memory
  for (const Node& node : graph.nodes) {
    if (node.op != "concat") {
      rebuild.copy(node);
      continue;
    }
    ir::Values operands;
    for (Value v : node.inputs) {
      const bool free = is_launch(graph.producer(v)) && !wants_dense(graph.producer(v)) && claimed.insert(v).second;
      operands.push_back(free ? rebuild(v) : append_copy(rebuild.to, rebuild(v)));
    }
    const Type type = graph.type(node.outputs[0]);
    rebuild.map(node.outputs[0], rebuild.to.append("concat", operands, {type}, node.attrs).outputs[0]);
  }
  return std::move(rebuild.to);
}

// The node with dense copies in place of its pitched operands.
void copy_with_dense_operands(ir::Rebuild& rebuild, const ir::Graph& graph, const Node& node,
                              const std::vector<Part>& parts) {
  ir::Values operands;
  for (Value v : node.inputs)
    operands.push_back(is_dense(parts[at(v)], graph.type(v).shape) ? rebuild(v) : append_copy(rebuild.to, rebuild(v)));
  std::vector<Type> types;
  for (Value v : node.outputs) types.push_back(graph.type(v));
  const ir::Values fresh = rebuild.to.append(node.op, operands, types, node.attrs).outputs;
  for (size_t i = 0; i < fresh.size(); ++i) rebuild.map(node.outputs[i], fresh[i]);
}

ir::Graph copy_where_dense_is_needed(const ir::Graph& graph) {
  std::vector<Part> parts(graph.values.size());
  name_concat_operands(graph, parts);
  ir::Rebuild rebuild(graph);
  for (const Node& node : graph.nodes) {
    const bool stuck =
        node.op == "reshape" && !reshapes_in_place(parts[at(node.inputs[0])], graph.type(node.inputs[0]).shape,
                                                   graph.type(node.outputs[0]).shape);
    if (!stuck) {
      wants_dense(node) ? copy_with_dense_operands(rebuild, graph, node, parts) : rebuild.copy(node);
      name_outputs(graph, node, parts);
      continue;
    }
    const Type type = graph.type(node.outputs[0]);
    const Value dense = append_copy(rebuild.to, rebuild(node.inputs[0]));
    rebuild.map(node.outputs[0], rebuild.to.append("reshape", {dense}, {type}, node.attrs).outputs[0]);
    parts[at(node.outputs[0])] = {node.outputs[0], 0, type.shape.cols()};  // dense again
  }
  return std::move(rebuild.to);
}

}  // namespace

bool is_view(const Node& node) { return node.op == "reshape" || node.op == "split" || node.op == "concat"; }
bool is_launch(const Node& node) { return !ir::is_structural(node.op) && !is_view(node); }

ir::Graph materialise_views(const ir::Graph& graph) {
  return copy_where_dense_is_needed(copy_shared_concat_operands(graph));
}

std::vector<Part> parts_of(const ir::Graph& graph) {
  std::vector<Part> parts(graph.values.size());
  name_concat_operands(graph, parts);
  for (const Node& node : graph.nodes) {
    if (node.op == "reshape")
      SITU_ASSERT(reshapes_in_place(parts[at(node.inputs[0])], graph.type(node.inputs[0]).shape,
                                    graph.type(node.outputs[0]).shape));
    name_outputs(graph, node, parts);
  }
  return parts;
}

}  // namespace situ::plan
