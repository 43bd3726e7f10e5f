#include "step/self_test.h"

#include <cmath>

#include "backend/ref/device.h"
#include "base/half.h"
#include "ops/magnitude.h"
#include "pass/pass.h"
#include "plan/plan.h"
#include "step/run.h"

namespace situ::step {
namespace {

using ir::Value;

constexpr double kEps = 0x1p-24;
constexpr double kTolerance = 8;  // c of c * eps * magnitude

// Types an operand can be sliced out of: one column before it, two after.
Type widened(const Type& type) {
  Shape shape = type.shape;
  shape[shape.rank() - 1] += 3;
  return {type.dtype, shape};
}

bool can_widen(const Type& type) { return type.shape.rank() >= 1; }

Value copied_if(ir::Graph& graph, bool copied, Value v) { return copied ? ops::emit(graph, "copy", {v}) : v; }

Value operand(ir::Graph& graph, const std::string& name, const Type& type, Layout layout, bool copied) {
  if (layout == Layout::dense || !can_widen(type)) return copied_if(graph, copied, graph.input(name, type));
  const Value wide = copied_if(graph, copied, graph.input(name, widened(type)));
  return ops::emit_all(graph, "split", {wide},
                       {{"axis", int64_t{-1}}, {"sizes", ir::Ints{1, type.shape.cols(), 2}}})[1];
}

Value result(ir::Graph& graph, Value y, std::string_view op, Layout layout, bool copied) {
  if (layout == Layout::dense || !can_widen(graph.type(y))) return copied_if(graph, copied, y);
  Value pad = graph.constant(0, graph.type(y));
  if (copied) pad = ops::emit(graph, op == "mul" ? "sub" : "mul", {pad, y});  // of the batch, so it may be half too
  return copied_if(graph, copied, ops::emit(graph, "concat", {pad, y}, {{"axis", int64_t{-1}}}));
}

std::vector<ops::RefTensor> tensors_of(std::vector<std::vector<double>>& storage, const std::vector<Type>& types) {
  std::vector<ops::RefTensor> tensors;
  for (size_t i = 0; i < types.size(); ++i) tensors.push_back({types[i], storage[i].data()});
  return tensors;
}

// Cuts the columns of a result back out of the wider tensor it was written into.
std::vector<double> narrowed(const std::vector<double>& wide, const Type& type, Layout layout) {
  if (layout == Layout::dense || !can_widen(type)) return wide;
  const int64_t cols = type.shape.cols();
  std::vector<double> values;
  for (int64_t r = 0; r < type.shape.rows(); ++r)
    for (int64_t c = 0; c < cols; ++c) values.push_back(wide[static_cast<size_t>(r * 2 * cols + cols + c)]);
  return values;
}

Tensors example_inputs(const ir::Graph& graph, const ops::Example& example, uint64_t seed, const Copied& copied) {
  Tensors tensors;
  for (const ir::Node& node : graph.nodes) {
    if (node.op != "input") continue;
    const std::string name = node.attrs.text("name");
    const auto index = static_cast<size_t>(std::stoi(name.substr(1)));
    const std::vector<double> values = operand_values(example, index, seed, copied);
    const Type &type = example.inputs[index].type, &fed = graph.type(node.outputs[0]);
    if (fed == type) {
      tensors[name] = values;
      continue;
    }
    std::vector<double> wide(static_cast<size_t>(fed.count()), 77);  // a value that would show
    for (int64_t r = 0; r < type.shape.rows(); ++r)
      for (int64_t c = 0; c < type.shape.cols(); ++c)
        wide[static_cast<size_t>(r * fed.shape.cols() + 1 + c)] =
            values[static_cast<size_t>(r * type.shape.cols() + c)];
    tensors[name] = wide;
  }
  return tensors;
}

}  // namespace

Copied copies_of(const ops::OpDef& op, const ops::Example& example, const device::Device& device) {
  if (device.activations != DType::f16 || op.name == "copy") return {};  // copies are all around the others
  Copied copied;
  for (const ops::ExampleInput& input : example.inputs) copied.in.push_back(input.type.dtype == DType::f32);
  const ir::Graph graph = single_op_graph(op, example, Layout::dense);
  for (Value v : op_node(graph, op).outputs) copied.out.push_back(graph.type(v).dtype == DType::f32);
  return copied;
}

// The others only slice or copy its operands (before it) and widen its results (after it).
const ir::Node& op_node(const ir::Graph& graph, const ops::OpDef& op) {
  const ir::Node* found = nullptr;
  for (const ir::Node& node : graph.nodes)
    if (node.op == op.name && !(found && op.name == "concat")) found = &node;
  return *found;
}

std::map<std::string, DType> result_storage(const device::Device& device, const ir::Graph& graph) {
  const ir::Graph expanded = pass::expansion(graph, device);
  const std::vector<Type> types =
      device.activations == DType::f16 ? plan::lower(expanded, device).types : std::vector<Type>();
  std::map<std::string, DType> storage;
  for (const ir::Node& node : expanded.nodes) {
    if (node.op != "output") continue;
    const ir::Node& copy = expanded.producer(node.inputs[0]);
    const bool copied = copy.op == "copy" && !types.empty();
    storage[node.attrs.text("name")] = copied ? types[static_cast<size_t>(copy.inputs[0])].dtype : DType::f32;
  }
  return storage;
}

std::vector<double> operand_values(const ops::Example& example, size_t index, uint64_t seed, const Copied& copied) {
  std::vector<double> values = ops::example_values(example.inputs[index], seed + index);
  if (copied.in_at(index))
    for (double& v : values) v = rounded_to_half(static_cast<double>(static_cast<float>(v)));
  return values;
}

ir::Graph single_op_graph(const ops::OpDef& op, const ops::Example& example, Layout layout, const Copied& copied) {
  ir::Graph graph;
  graph.name = std::string(op.name);
  ir::Values inputs;
  for (size_t i = 0; i < example.inputs.size(); ++i)
    inputs.push_back(operand(graph, "i" + std::to_string(i), example.inputs[i].type, layout, copied.in_at(i)));
  const ir::Values outputs = ops::emit_all(graph, op.name, inputs, example.attrs);
  for (size_t i = 0; i < outputs.size(); ++i)
    graph.output("o" + std::to_string(i), result(graph, outputs[i], op.name, layout, copied.out_at(i)));
  return graph;
}

Oracle ask_oracle(const ops::OpDef& op, const ops::Example& example, uint64_t seed, const Copied& copied) {
  const ir::Graph graph = single_op_graph(op, example, Layout::dense);
  const ir::Node& node = op_node(graph, op);
  std::vector<std::vector<double>> operands;
  std::vector<Type> in_types, out_types;
  for (size_t i = 0; i < example.inputs.size(); ++i) {
    operands.push_back(operand_values(example, i, seed, copied));
    in_types.push_back(example.inputs[i].type);
  }
  Oracle oracle;
  for (Value v : node.outputs) {
    out_types.push_back(graph.type(v));
    oracle.results.emplace_back(static_cast<size_t>(graph.type(v).count()));
  }
  oracle.magnitudes = oracle.results;
  const auto in = tensors_of(operands, in_types);
  const auto results = tensors_of(oracle.results, out_types), magnitudes = tensors_of(oracle.magnitudes, out_types);
  op.reference({node.attrs, in, results});
  ops::run_magnitude(op, {node.attrs, in, magnitudes});
  return oracle;
}

double in_tolerances(double have, double want, double magnitude, DType stored) {
  if (std::isnan(have) || std::isnan(want)) return std::isnan(have) == std::isnan(want) ? 0 : INFINITY;
  if (stored == DType::f16 && std::isinf(have)) {  // beyond the largest half, where the result is too
    const bool right =
        std::fabs(want) * (1 + kTolerance * kEps) >= kLargestHalf && std::signbit(have) == std::signbit(want);
    return right ? 0 : INFINITY;
  }
  const double rounding = stored == DType::f16 ? 0.5 * half_spacing(std::max(std::fabs(have), std::fabs(want))) : 0;
  return std::fabs(have - want) / (kTolerance * kEps * magnitude + rounding + 1e-37);
}

double error_in_tolerances(device::Device& device, const ops::OpDef& op, const ops::Example& example, Layout layout,
                           uint64_t seed, std::string* where) {
  const Copied copied = copies_of(op, example, device);
  const ir::Graph graph = single_op_graph(op, example, layout, copied);
  const std::map<std::string, DType> stored = result_storage(device, graph);
  const Tensors inputs = example_inputs(graph, example, seed, copied);
  static const auto oracle = ref::make_device();
  const Tensors expected = run_once(*oracle, graph, inputs), got = run_once(device, graph, inputs);
  const auto bounds = ask_oracle(op, example, seed, copied).magnitudes;
  double worst = 0;
  const ir::Node& node = op_node(graph, op);
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    const std::string name = "o" + std::to_string(o);
    const Type& type = graph.type(node.outputs[o]);
    const auto want = narrowed(expected.at(name), type, layout), have = narrowed(got.at(name), type, layout);
    for (size_t i = 0; i < want.size(); ++i) {
      const double error = in_tolerances(have[i], want[i], bounds[o][i], stored.at(name));
      if (error <= worst) continue;
      worst = error;
      *where = fmt::format("output {} element {}: {} instead of {} (error {:.3g} of its tolerance)", o, i, have[i],
                           want[i], error);
    }
  }
  return worst;
}

std::vector<OpResult> self_test(device::Device& device, const std::function<void(size_t, size_t)>& progress) {
  std::vector<OpResult> results;
  const auto& all = ops::all_ops();
  for (size_t i = 0; i < all.size(); ++i) {
    const auto examples = ops::examples(*all[i]);
    OpResult result{std::string(all[i]->name), true, ""};
    try {
      std::string where;
      result.ok = error_in_tolerances(device, *all[i], examples.front(), Layout::dense, 1, &where) <= 1;
      if (!result.ok) result.detail = where;
    } catch (const Error& e) {
      result = {std::string(all[i]->name), false, e.what()};
    }
    results.push_back(std::move(result));
    if (progress) progress(i + 1, all.size());
  }
  return results;
}

}  // namespace situ::step
