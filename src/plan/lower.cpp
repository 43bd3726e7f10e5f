// lower.cpp -- graph nodes become launch nodes: for each the candidate with the smallest estimate.
#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "ops/op.h"
#include "plan/plan.h"

namespace situ::plan {
namespace {

using device::Candidate;
using ir::Value;

// Why an op that this device has kernels for cannot run on it; empty if none of them is left out.
std::string left_out_of(const device::Device& device, std::string_view op) {
  std::string reasons;
  for (const auto& [unit, reason] : device.left_out)
    if (unit.starts_with(op) && unit.size() > op.size() && (unit[op.size()] == '/' || unit[op.size()] == '#'))
      reasons += fmt::format("{}{} ({})", reasons.empty() ? "" : ", ", unit, reason);
  return reasons;
}

[[noreturn]] void fail_without_kernel(const device::Device& device, const ops::OpView& view) {
  const std::string reasons = left_out_of(device, view.op);
  if (!reasons.empty())
    fail_environment("device {} has no kernel left for `{}`, its self-test left out {}: use the device cpu",
                     device.target().name, device::node_key(view), reasons);
  fail_environment("device {} has no kernel for op `{}`; train on another device (`situ devices` lists them)",
                   device.target().name, view.op);
}

bool own_kernel_usable(const device::Device& device, const ops::OpView& view) {
  if (!device.has_kernel(view.op)) return false;
  return device.left_out.empty() || !device.left_out.contains(unit_of(device, view, nullptr));
}

const Candidate* choose(const device::Device& device, const ops::OpView& view) {
  const auto list = candidates_for(device, view);
  return list.empty() ? nullptr : list.front();
}

void lower_as_is(ir::Rebuild& rebuild, const ir::Graph& graph, const ir::Node& node) {
  rebuild.copy(node);
  const ops::OpDef* op = ops::find(node.op);
  if (!op || !op->aliases) return;
  ir::Ints pairs;
  const ops::OpView view = ops::view_of(graph, node);
  for (auto [out, in] : op->aliases(view))
    if (view.out(out) == view.in(in)) pairs.insert(pairs.end(), {out, in});
  if (!pairs.empty()) rebuild.to.nodes.back().attrs.set("may_alias", pairs);
}

bool rearranges(const ir::Node& node) {
  return node.op.starts_with("pack") || node.op.starts_with("winograd") || node.op == "pad" || node.op == "transpose" ||
         node.op == "interleave_images";
}

// The op's arithmetic is booked on the launch that does it: the first that does not merely rearrange operands.
void book_flops(ir::Graph& graph, size_t first, double flops) {
  for (size_t n = first; n < graph.nodes.size(); ++n)
    if (is_launch(graph.nodes[n]) && !rearranges(graph.nodes[n])) {
      graph.nodes[n].attrs.set("flops", flops);
      return;
    }
}

void expand(ir::Rebuild& rebuild, const ir::Graph& graph, const ir::Node& node, const Candidate& candidate,
            const std::vector<bool>& steady, const device::Target& target) {
  std::vector<Type> types;
  for (Value v : node.outputs) types.push_back(graph.type(v));
  std::vector<bool> steady_inputs;
  for (Value v : node.inputs) steady_inputs.push_back(steady[static_cast<size_t>(v)]);
  const size_t first = rebuild.to.nodes.size();
  device::Expansion expansion(rebuild.to, node, types, rebuild(node.inputs), steady_inputs, target);
  candidate.expand(expansion);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const Value result = expansion.results()[i];
    SITU_ASSERT(result != ir::kNoValue && rebuild.to.type(result) == types[i], "candidate {} of {}", candidate.name,
                node.op);
    rebuild.map(node.outputs[i], result);
  }
  book_flops(rebuild.to, first, ops::cost_of(graph, node).flops);
}

// Axis extents around `axis`: a concat or split along a middle axis is one along the last axis of [outer, axis *
// inner].
struct Around {
  int64_t outer = 1, inner = 1;
};
Around around(const Shape& shape, int axis) {
  Around result;
  for (int i = 0; i < axis; ++i) result.outer *= shape[i];
  for (int i = axis + 1; i < shape.rank(); ++i) result.inner *= shape[i];
  return result;
}

Value reshape(ir::Graph& graph, Value v, const Shape& shape) {
  if (graph.type(v).shape == shape) return v;
  return graph.append("reshape", {v}, {Type{graph.type(v).dtype, shape}}, {{"shape", shape.dims()}}).outputs[0];
}

void lower_concat(ir::Rebuild& rebuild, const ir::Graph& graph, const ir::Node& node) {
  const Type& type = graph.type(node.outputs[0]);
  const int axis = ops::normal_axis(node.attrs.integer("axis"), type.shape.rank());
  const auto [outer, inner] = around(type.shape, axis);
  if (outer == 1 || axis == type.shape.rank() - 1) return rebuild.copy(node);
  ir::Values flat;
  for (Value v : rebuild(node.inputs))
    flat.push_back(reshape(rebuild.to, v, Shape{outer, rebuild.to.type(v).shape[axis] * inner}));
  const Type flat_type{type.dtype, Shape{outer, type.shape[axis] * inner}};
  const Value joined = rebuild.to.append("concat", flat, {flat_type}, {{"axis", int64_t{1}}}).outputs[0];
  rebuild.map(node.outputs[0], reshape(rebuild.to, joined, type.shape));
}

void lower_split(ir::Rebuild& rebuild, const ir::Graph& graph, const ir::Node& node) {
  const Type& type = graph.type(node.inputs[0]);
  const int axis = ops::normal_axis(node.attrs.integer("axis"), type.shape.rank());
  const auto [outer, inner] = around(type.shape, axis);
  if (outer == 1 || axis == type.shape.rank() - 1) return rebuild.copy(node);
  const Value flat = reshape(rebuild.to, rebuild(node.inputs[0]), Shape{outer, type.shape[axis] * inner});
  ir::Ints sizes;
  std::vector<Type> types;
  for (Value v : node.outputs) {
    sizes.push_back(graph.type(v).shape[axis] * inner);
    types.push_back({type.dtype, Shape{outer, sizes.back()}});
  }
  const ir::Values parts = rebuild.to.append("split", {flat}, types, {{"axis", int64_t{1}}, {"sizes", sizes}}).outputs;
  for (size_t i = 0; i < parts.size(); ++i)
    rebuild.map(node.outputs[i], reshape(rebuild.to, parts[i], graph.type(node.outputs[i]).shape));
}

// --- storage --------------------------------------------------------------------------------------------------------
bool has_halves(const ops::OpView& view) {
  const auto half = [](const Type& type) { return type.dtype == DType::f16; };
  return std::ranges::any_of(view.ins, half) || std::ranges::any_of(view.outs, half);
}

std::vector<Type> types_of(const ir::Graph& graph) {
  std::vector<Type> types;
  for (const ir::ValueInfo& value : graph.values) types.push_back(value.type);
  return types;
}

struct Origins {
  std::vector<size_t> of;                    // for each launch node, the node of the graph it comes from
  std::vector<const Candidate*> candidates;  // for each node of the graph
};

// What the self-test left out in its form with halves keeps f32: so the choice is made again until all may stay.
Lowered with_halves(const ir::Graph& graph, const ir::Rebuild& rebuild, const Origins& origins,
                    const device::Device& device) {
  std::vector<bool> keep(rebuild.to.nodes.size());
  for (;;) {
    Lowered result{store_halves(rebuild.to, device, keep), types_of(graph)};
    for (size_t v = 0; v < result.types.size(); ++v)
      result.types[v] = result.graph.type(rebuild(static_cast<Value>(v)));
    bool changed = false;
    for (size_t n = 0; n < graph.nodes.size() && !device.left_out.empty(); ++n) {
      if (!is_launch(graph.nodes[n])) continue;
      const ops::OpView view = stored_view(graph, graph.nodes[n], result.types);
      if (!has_halves(view) || !device.left_out.contains(unit_of(device, view, origins.candidates[n]))) continue;
      changed = true;
      for (size_t l = 0; l < keep.size(); ++l)
        if (origins.of[l] == n) keep[l] = true;
    }
    if (!changed) return result;
  }
}

}  // namespace

ops::OpView stored_view(const ir::Graph& graph, const ir::Node& node, const std::vector<Type>& types) {
  ops::OpView view = ops::view_of(graph, node);
  for (size_t i = 0; i < view.ins.size(); ++i) view.ins[i] = types[static_cast<size_t>(node.inputs[i])];
  for (size_t i = 0; i < view.outs.size(); ++i) view.outs[i] = types[static_cast<size_t>(node.outputs[i])];
  return view;
}

device::LaunchSpec dense_launch(const ops::OpView& view) {
  device::LaunchSpec spec;
  spec.node.op = std::string(view.op);
  spec.node.attrs = view.attrs;
  const auto dense = [](const Type& type) { return device::TensorArg{0, device::kZeroRun, type.shape.cols(), type}; };
  for (const Type& type : view.ins) spec.in.push_back(dense(type));
  for (const Type& type : view.outs) spec.out.push_back(dense(type));
  return spec;
}

std::string unit_of(const device::Device& device, const ops::OpView& view, const Candidate* candidate) {
  if (candidate) return fmt::format("{}/{}{}", view.op, candidate->name, has_halves(view) ? "+f16" : "");
  return fmt::format("{}#{:016x}", view.op, hash_of(device.program_of(dense_launch(view))));
}

std::vector<const Candidate*> candidates_for(const device::Device& device, const ops::OpView& view) {
  std::vector<std::pair<double, const Candidate*>> found;
  for (device::CandidateList list : device.candidates())
    for (const Candidate& candidate : list) {
      if (candidate.op != view.op) continue;
      if (candidate.accepts && !candidate.accepts(view, device.target())) continue;
      if (!device.left_out.empty() && device.left_out.contains(unit_of(device, view, &candidate))) continue;
      found.emplace_back(candidate.seconds ? candidate.seconds(view, device.target())
                                           : device::roofline_seconds(ops::cost_of(view), device.target()),
                         &candidate);
    }
  if (found.size() > 1 && !device.choices.empty())
    if (const auto measured = device.choices.find(device::node_key(view)); measured != device.choices.end())
      for (auto& [seconds, candidate] : found)
        if (candidate->name == measured->second) seconds = -1;
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<const Candidate*> result;
  for (const auto& [seconds, candidate] : found) result.push_back(candidate);
  return result;
}

Lowered lower(const ir::Graph& graph, const device::Device& device) {
  const std::vector<bool> steady = steady_values(graph);
  ir::Rebuild rebuild(graph);
  Origins origins;
  for (const ir::Node& node : graph.nodes) {
    const Candidate* candidate = nullptr;
    if (node.op == "concat") {
      lower_concat(rebuild, graph, node);
    } else if (node.op == "split") {
      lower_split(rebuild, graph, node);
    } else if (!is_launch(node)) {
      rebuild.copy(node);
    } else if (candidate = choose(device, ops::view_of(graph, node)); candidate) {
      expand(rebuild, graph, node, *candidate, steady, device.target());
    } else if (own_kernel_usable(device, ops::view_of(graph, node))) {
      lower_as_is(rebuild, graph, node);
    } else {
      fail_without_kernel(device, ops::view_of(graph, node));
    }
    origins.candidates.push_back(candidate);
    origins.of.resize(rebuild.to.nodes.size(), origins.candidates.size() - 1);
  }
  if (device.activations != DType::f16) return {std::move(rebuild.to), types_of(graph)};
  return with_halves(graph, rebuild, origins, device);
}

}  // namespace situ::plan
