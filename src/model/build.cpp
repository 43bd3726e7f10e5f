#include "model/build.h"

#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/hash.h"
#include "model/kind.h"

namespace situ::model {
namespace {

using ir::Value;

// The values a layer reads: by name, or what the layer before it gave.
ir::Values inputs_of(const LayerSpec& spec, const Kind& kind, const std::map<std::string, Value>& by_name, Value last) {
  ir::Values inputs;
  for (const std::string& name : spec.inputs) {
    const auto it = by_name.find(name);
    if (it == by_name.end()) fail("its input `{}` is no layer before it", name);
    inputs.push_back(it->second);
  }
  if (inputs.empty()) inputs.push_back(last);
  const int count = static_cast<int>(inputs.size());
  if (count < kind.least_inputs || count > kind.most_inputs)
    fail("{} takes {} inputs, not {}", spec.kind,
         kind.least_inputs == kind.most_inputs ? std::to_string(kind.least_inputs)
                                               : fmt::format("{} to {}", kind.least_inputs, kind.most_inputs),
         count);
  return inputs;
}

std::string place_of(const Model& model, const LayerSpec& spec) {
  return spec.line ? fmt::format("{}: line {}", model.name, spec.line) : model.name;
}

}  // namespace

Type batch_of(int64_t samples, const Type& sample) {
  std::vector<int64_t> dims = sample.shape.dims();
  dims.insert(dims.begin(), samples);
  return {sample.dtype, Shape(dims)};
}

Built build(const Model& model, ir::Graph& graph, Value x, const BuildOptions& options) {
  Build context(graph, options);
  std::map<std::string, Value> by_name{{"x", x}};
  Built built;
  Value last = x;
  for (const LayerSpec& written : model.layers) {
    try {
      const LayerSpec spec = with_defaults(written);
      const Kind& kind = find_kind(spec.kind);
      const ir::Values inputs = inputs_of(spec, kind, by_name, last);
      const size_t first = graph.nodes.size();
      graph.origin = {spec.name};
      const Value y = kind.build(context, spec, inputs);
      const Shape image = context.flattened_from(inputs[0]);  // an activation or dropout keeps the order of elements
      if (image.rank() && context.shape(y) == context.shape(inputs[0])) context.note_flattened(y, image);
      if (!by_name.emplace(spec.name, y).second) fail("another layer has the same name");
      built.layers.push_back({spec, y, first, graph.nodes.size()});
      last = y;
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::bug) throw;
      fail("{}: layer `{}` ({}): {}", place_of(model, written), written.name, written.kind, e.what());
    }
  }
  graph.origin = {};
  built.logits = last;
  if (graph.type(last).shape.cols() != model.classes)
    fail("{}: the last layer gives {}, its last axis should be the {} classes", model.name, to_string(graph.type(last)),
         model.classes);
  return built;
}

int64_t places(const Model& model) {
  ir::Graph graph;
  return graph.type(build(model, graph, graph.input("x", batch_of(1, model.input))).logits).shape.rows();
}

Init weight_init(const ir::Attrs& attrs, int64_t fan_in, int64_t fan_out) {
  const std::string& how = attrs.text("init");
  if (how == "default") return {"uniform", 1 / std::sqrt(static_cast<double>(fan_in))};
  if (how == "kaiming") return {"normal", std::sqrt(2.0 / static_cast<double>(fan_out))};
  if (how == "zeros") return {"zeros", 0};
  double size = 0;
  const std::string_view number = std::string_view(how).substr(std::min<size_t>(7, how.size()));
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), size);
  if (!how.starts_with("normal:") || error != std::errc() || end != number.data() + number.size() || !(size > 0))
    fail("init is default, kaiming, zeros or normal:STD such as normal:0.02, not `{}`", how);
  return {"normal", size};
}

Init bias_init(const ir::Attrs& attrs, int64_t fan_in) {
  if (attrs.text("init") != "default") return {"zeros", 0};
  return {"uniform", 1 / std::sqrt(static_cast<double>(fan_in))};
}

Value Build::reshape(Value x, const ir::Ints& dims) {
  return shape(x) == Shape(dims) ? x : emit("reshape", {x}, {{"shape", dims}});
}

Value Build::affine(Value rows, Value matrix, Value bias) {
  const auto plain = [&](Value x) { return emit("bias", {emit("matmul", {x, matrix}), bias}); };
  const ir::Node* from = &graph_.producer(rows);
  if (from->op == "reshape") from = &graph_.producer(from->inputs[0]);
  if (from->op != "gather") return plain(rows);
  const Value table = from->inputs[0], ids = from->inputs[1];
  if (shape(table).cols() != shape(rows).cols() || 2 * shape(table).rows() > shape(rows).rows()) return plain(rows);
  return reshape(emit("gather", {plain(table), ids}), {shape(rows).rows(), shape(matrix).cols()});
}

Value Build::parameter(const std::string& name, const Shape& shape, const Init& init, const ir::Attrs& file) {
  ir::State state{name, f32(shape), file};
  state.attrs.set("role", "parameter").set("init", std::string(init.kind));
  if (init.kind == "uniform") state.attrs.set("bound", init.size);
  if (init.kind == "normal") state.attrs.set("std", init.size);
  if (!trains(name)) state.attrs.set("frozen", int64_t{1});
  graph_.declare(state);
  return graph_.read(name);
}

Value Build::matrix(const std::string& name, int64_t in, int64_t out, const Init& init) {
  return parameter(name, Shape{in, out}, init,
                   {{"factors", ir::Ints{in, out}}, {"perm", ir::Ints{1, 0}}, {"file", ir::Ints{out, in}}});
}

LoraMatrices Build::lora(const std::string& layer, int64_t in, int64_t out, const ir::Ints& front) {
  const int64_t rank = partial().lora.rank;
  const double scale = partial().lora.alpha / static_cast<double>(rank);
  auto add = [&](const char* name, int64_t from, int64_t to, const Init& init) {
    ir::Ints dims = front, file{to, from};
    dims.insert(dims.end(), {from, to});
    file.insert(file.end(), front.begin(), front.end());
    return parameter(
        layer + name, Shape(dims), init,
        {{"factors", ir::Ints{from, to}}, {"perm", ir::Ints{1, 0}}, {"file", file}, {"lora_scale", scale}});
  };
  const Value a = add(".lora_A.weight", in, rank, {"uniform", 1 / std::sqrt(static_cast<double>(in))});
  return {a, add(".lora_B.weight", rank, out, {"zeros", 0}), scale};
}

Value Build::statistic(const std::string& name, const Shape& shape, const Init& init) {
  graph_.declare({name, f32(shape), {{"role", "statistic"}, {"init", std::string(init.kind)}}});
  return graph_.read(name);
}

Value Build::dropout(const std::string& name, Value x, double p) {
  if (!training() || p == 0) return x;
  const auto stream = static_cast<int64_t>(hash_of(name) & 0x7fffffff);
  const Value seed = graph_.control("seed", DType::i32), step = graph_.control("step", DType::i32),
              micro = graph_.control("micro", DType::i32);
  return emit("dropout", {x, seed, step, micro}, {{"p", p}, {"stream", stream}});
}

Shape Build::flattened_from(Value v) const {
  const auto it = flattened_.find(v);
  return it == flattened_.end() ? Shape() : it->second;
}

}  // namespace situ::model
