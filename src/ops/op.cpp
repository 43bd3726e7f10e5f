#include "ops/op.h"

#include <algorithm>
#include <map>

#include "base/names.h"
#include "ir/text.h"

namespace situ::ops {
namespace {

std::map<std::string_view, const OpDef*> index_ops() {
  std::map<std::string_view, const OpDef*> index;
  for (const OpDef* op : all_ops()) {
    SITU_ASSERT(op->type && op->reference, "op {} lacks a type rule or a reference", op->name);
    SITU_ASSERT(index.emplace(op->name, op).second, "op {} is defined twice", op->name);
  }
  return index;
}

std::string types_text(const Types& types) {
  std::string text;
  for (const Type& t : types) text += (text.empty() ? "" : ", ") + to_string(t);
  return text;
}

}  // namespace

const std::vector<const OpDef*>& all_ops() {
  static const std::vector<const OpDef*> ops = [] {
    std::vector<const OpDef*> result;
    for (OpList family : all_families())
      for (const OpDef& op : family) result.push_back(&op);
    return result;
  }();
  return ops;
}

const OpDef* find(std::string_view name) {
  static const auto index = index_ops();
  auto it = index.find(name);
  return it == index.end() ? nullptr : it->second;
}

const OpDef& get(std::string_view name) {
  if (const OpDef* op = find(name)) return *op;
  std::vector<std::string_view> names;
  for (const OpDef* op : all_ops()) names.push_back(op->name);
  fail("there is no op `{}`; did you mean `{}`?", name, nearest_name(name, names));
}

OpView view_of(const Graph& graph, const Node& node) {
  OpView view{node.op, {}, {}, node.attrs};
  for (Value v : node.inputs) view.ins.push_back(graph.type(v));
  for (Value v : node.outputs) view.outs.push_back(graph.type(v));
  return view;
}

Cost cost_of(const OpView& view) {
  Cost cost;
  const OpDef* op = find(view.op);
  if (op && op->cost)
    cost = op->cost(view);
  else if (op && !op->view && !view.outs.empty())
    cost.flops = static_cast<double>(view.out(0).count());
  if (cost.bytes < 0) {
    cost.bytes = 0;
    if (op && op->view) return cost;
    for (const Type& t : view.ins) cost.bytes += static_cast<double>(t.count() * bytes_of(t.dtype));
    for (const Type& t : view.outs) cost.bytes += static_cast<double>(t.count() * bytes_of(t.dtype));
  }
  return cost;
}

Cost cost_of(const Graph& graph, const Node& node) {
  if (ir::is_structural(node.op)) return {0, 0};
  return cost_of(view_of(graph, node));
}

Values emit_all(Graph& graph, std::string_view op, const Values& inputs, const Attrs& attrs) {
  const OpDef& def = get(op);
  OpView view{op, {}, {}, attrs};
  for (Value v : inputs) view.ins.push_back(graph.type(v));
  try {
    return graph.append(op, inputs, def.type(view), attrs).outputs;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::user) throw;
    fail("{}({}) {}: {} (signature {})", op, types_text(view.ins), ir::to_string(attrs), e.what(), def.signature);
  }
}

Value emit(Graph& graph, std::string_view op, const Values& inputs, const Attrs& attrs) {
  return emit_all(graph, op, inputs, attrs)[0];
}

Value GradBuilder::dout(int i) {
  Value& v = douts_[static_cast<size_t>(i)];
  if (v == ir::kNoValue) v = constant(0, type(out(i)));
  return v;
}

void GradBuilder::add(int i, Value dx) {
  if (!wants(i)) return;
  SITU_ASSERT(type(dx) == type(in(i)), "gradient {} of operand {} of {}, which is {}", to_string(type(dx)), i, node_.op,
              to_string(type(in(i))));
  Value& slot = dins_[static_cast<size_t>(i)];
  slot = slot == ir::kNoValue ? dx : emit("add", {slot, dx});
}

Value GradBuilder::sum_to(Value v, Shape shape) {
  const Shape from = type(v).shape;
  if (from == shape) return v;
  Ints axes;
  for (int i = 0; i < from.rank(); ++i) {
    const int j = i - (from.rank() - shape.rank());
    if (j < 0 || (shape[j] == 1 && from[i] != 1)) axes.push_back(i);
  }
  if (!axes.empty()) v = emit("reduce", {v}, {{"kind", "sum"}, {"axes", axes}, {"keep", int64_t{0}}});
  return reshaped(v, shape);
}

Value GradBuilder::reshaped(Value v, const Shape& shape) {
  return type(v).shape == shape ? v : emit("reshape", {v}, {{"shape", shape.dims()}});
}

void need(bool condition, std::string_view sentence) {
  if (!condition) fail("{}", sentence);
}

Types same_as_first(const OpView& view) {
  need(view.arity() >= 1, "one operand is needed");
  return {view.in(0)};
}

std::vector<Alias> first_over_first(const OpView&) { return {{0, 0}}; }

}  // namespace situ::ops
