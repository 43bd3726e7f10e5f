// transpose_folding.cpp -- a matrix transpose in front of matmul becomes its flag; reshapes of reshapes become one;
// reshapes and transposes that change nothing disappear.
#include "pass/pass.h"

namespace situ::pass {
namespace {

using ir::Ints;
using ir::Value;

bool is_identity(const Ints& perm) {
  for (size_t i = 0; i < perm.size(); ++i)
    if (perm[i] != static_cast<int64_t>(i)) return false;
  return true;
}

// If v is a transposed matrix, its source.
Value transposed_matrix(const ir::Graph& graph, Value v) {
  const ir::Node& node = graph.producer(v);
  return node.op == "transpose" && node.attrs.ints("perm") == Ints{1, 0} ? node.inputs[0] : ir::kNoValue;
}

void fold_matmul(ir::Rebuild& rebuild, const ir::Graph& graph, const ir::Node& node) {
  ir::Values in = rebuild(node.inputs);
  ir::Attrs attrs = node.attrs;
  const char* flags[] = {"ta", "tb"};
  for (size_t i = 0; i < 2; ++i) {
    const Value source = transposed_matrix(rebuild.to, in[i]);
    if (source == ir::kNoValue) continue;
    in[i] = source;
    attrs.set(flags[i], int64_t{!attrs.flag(flags[i])});
  }
  rebuild.map(node.outputs[0], rebuild.to.append("matmul", in, {graph.type(node.outputs[0])}, attrs).outputs[0]);
}

void fold_reshape(ir::Rebuild& rebuild, const ir::Graph& graph, const ir::Node& node) {
  Value source = rebuild(node.inputs[0]);
  while (rebuild.to.producer(source).op == "reshape") source = rebuild.to.producer(source).inputs[0];
  const Type& type = graph.type(node.outputs[0]);
  if (!(rebuild.to.type(source) == type))
    source = rebuild.to.append("reshape", {source}, {type}, node.attrs).outputs[0];
  rebuild.map(node.outputs[0], source);
}

void fold_transpose(ir::Rebuild& rebuild, const ir::Graph& graph, const ir::Node& node) {
  Value source = rebuild(node.inputs[0]);
  Ints perm = node.attrs.ints("perm");
  if (const ir::Node& inner = rebuild.to.producer(source); inner.op == "transpose") {
    for (int64_t& axis : perm) axis = inner.attrs.ints("perm")[static_cast<size_t>(axis)];
    source = inner.inputs[0];
  }
  const Type& type = graph.type(node.outputs[0]);
  if (!is_identity(perm)) source = rebuild.to.append("transpose", {source}, {type}, {{"perm", perm}}).outputs[0];
  rebuild.map(node.outputs[0], source);
}

}  // namespace

ir::Graph transpose_folding(const ir::Graph& graph) {
  ir::Rebuild rebuild(graph);
  for (const ir::Node& node : graph.nodes) {
    if (node.op == "matmul")
      fold_matmul(rebuild, graph, node);
    else if (node.op == "reshape")
      fold_reshape(rebuild, graph, node);
    else if (node.op == "transpose")
      fold_transpose(rebuild, graph, node);
    else
      rebuild.copy(node);
  }
  return std::move(rebuild.to);
}

}  // namespace situ::pass
