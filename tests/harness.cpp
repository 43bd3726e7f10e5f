#include "harness.h"

#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "backend/ref/device.h"
#include "step/devices.h"

namespace situ::test {
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

Value operand(ir::Graph& graph, const std::string& name, const Type& type, Layout layout) {
  if (layout == Layout::dense || !can_widen(type)) return graph.input(name, type);
  const Value wide = graph.input(name, widened(type));
  return ops::emit_all(graph, "split", {wide},
                       {{"axis", int64_t{-1}}, {"sizes", ir::Ints{1, type.shape.cols(), 2}}})[1];
}

Value result(ir::Graph& graph, Value y, Layout layout) {
  if (layout == Layout::dense || !can_widen(graph.type(y))) return y;
  const Value pad = graph.constant(0, graph.type(y));
  return ops::emit(graph, "concat", {pad, y}, {{"axis", int64_t{-1}}});
}

// The same op with `magnitude` for its reference, on |inputs|.
std::vector<std::vector<double>> magnitudes(const ops::OpDef& op, const ir::Graph& graph, const ops::Example& example,
                                            uint64_t seed) {
  std::vector<std::vector<double>> storage;
  std::vector<ops::RefTensor> in, out;
  storage.reserve(64);
  for (size_t i = 0; i < example.inputs.size(); ++i) {
    auto& values = storage.emplace_back(ops::example_values(example.inputs[i], seed + i));
    for (double& v : values) v = std::fabs(v);
    in.push_back({example.inputs[i].type, values.data()});
  }
  const ir::Node* node = nullptr;
  for (const ir::Node& n : graph.nodes)
    if (n.op == op.name) node = &n;
  const size_t first = storage.size();
  for (Value v : node->outputs) {
    auto& values = storage.emplace_back(static_cast<size_t>(graph.type(v).count()));
    out.push_back({graph.type(v), values.data()});
  }
  (op.magnitude ? op.magnitude : op.reference)({node->attrs, in, out});
  return {storage.begin() + static_cast<long>(first), storage.end()};
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

}  // namespace

ir::Graph single_op_graph(const ops::OpDef& op, const ops::Example& example, Layout layout) {
  ir::Graph graph;
  graph.name = std::string(op.name);
  ir::Values inputs;
  for (size_t i = 0; i < example.inputs.size(); ++i)
    inputs.push_back(operand(graph, "i" + std::to_string(i), example.inputs[i].type, layout));
  const ir::Values outputs = ops::emit_all(graph, op.name, inputs, example.attrs);
  for (size_t i = 0; i < outputs.size(); ++i) graph.output("o" + std::to_string(i), result(graph, outputs[i], layout));
  return graph;
}

Tensors example_inputs(const ir::Graph& graph, const ops::Example& example, uint64_t seed) {
  Tensors tensors;
  for (const ir::Node& node : graph.nodes) {
    if (node.op != "input") continue;
    const std::string name = node.attrs.text("name");
    const auto index = static_cast<size_t>(std::stoi(name.substr(1)));
    const std::vector<double> values = ops::example_values(example.inputs[index], seed + index);
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

Tensors run(device::Device& device, const ir::Graph& graph, const Tensors& inputs,
            const step::SessionOptions& options) {
  step::Session session(device, {graph}, options);
  step::Batch& batch = session.next_batch();
  for (const ir::Node& node : graph.nodes) {
    if (node.op != "input") continue;
    const std::string name = node.attrs.text("name");
    const std::vector<double>& values = inputs.at(name);
    if (graph.type(node.outputs[0]).dtype == DType::f32) {
      const auto to = batch.f32(name);
      for (size_t i = 0; i < values.size(); ++i) to[i] = static_cast<float>(values[i]);
    } else {
      const auto to = batch.i32(name);
      for (size_t i = 0; i < values.size(); ++i) to[i] = static_cast<int32_t>(values[i]);
    }
  }
  session.run(0, batch);
  Tensors outputs;
  for (const ir::Node& node : graph.nodes)
    if (node.op == "output") outputs[node.attrs.text("name")] = session.output_double(0, node.attrs.text("name"));
  return outputs;
}

double error_in_tolerances(device::Device& device, const ops::OpDef& op, const ops::Example& example, Layout layout,
                           uint64_t seed, std::string* where) {
  const ir::Graph graph = single_op_graph(op, example, layout);
  const Tensors inputs = example_inputs(graph, example, seed);
  static const auto oracle = ref::make_device();
  const Tensors expected = run(*oracle, graph, inputs), got = run(device, graph, inputs);
  const auto bounds = magnitudes(op, graph, example, seed);
  double worst = 0;
  for (const ir::Node& node : graph.nodes) {
    if (node.op != op.name) continue;
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const std::string name = "o" + std::to_string(o);
      const Type& type = graph.type(node.outputs[o]);
      const auto want = narrowed(expected.at(name), type, layout), have = narrowed(got.at(name), type, layout);
      for (size_t i = 0; i < want.size(); ++i) {
        const double tolerance = kTolerance * kEps * bounds[o][i] + 1e-37;
        double error = std::fabs(have[i] - want[i]) / tolerance;
        if (std::isnan(have[i]) != std::isnan(want[i])) error = INFINITY;
        if (std::isnan(have[i]) && std::isnan(want[i])) error = 0;
        if (error > worst) {
          worst = error;
          *where =
              fmt::format("output {} element {}: {} instead of {} (tolerance {})", o, i, have[i], want[i], tolerance);
        }
      }
    }
  }
  return worst;
}

device::Device* device_under_test(const std::string& name) {
  static std::map<std::string, std::unique_ptr<device::Device>> devices;
  const char* only = std::getenv("SITU_TEST_DEVICES");
  if (only && std::string(only).find(name) == std::string::npos) return nullptr;
  auto it = devices.find(name);
  if (it != devices.end()) return it->second.get();
  device::DeviceOptions options;
  options.cache_folder = (std::filesystem::temp_directory_path() / "situ-test-cache").string();
  return (devices[name] = step::open_device(name, options)).get();
}

std::string scratch_folder() {
  struct Folder {
    std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("situ-test-" + std::to_string(static_cast<long>(getpid())));
    Folder() { std::filesystem::create_directories(path); }
    ~Folder() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  };
  static const Folder folder;
  return folder.path.string();
}

}  // namespace situ::test
