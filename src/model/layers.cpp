#include "model/layers.h"

#include <cmath>

#include "base/hash.h"

namespace situ::model {

using ir::Value;

Value Layers::parameter(const std::string& name, const Shape& shape, double bound, const ir::Attrs& file) {
  ir::State state{name, f32(shape), file};
  state.attrs.set("role", "parameter").set("init", "uniform").set("bound", bound);
  graph_.declare(state);
  return graph_.read(name);
}

Value Layers::linear(const std::string& name, Value x, int64_t outputs) {
  const Shape from = graph_.type(x).shape;
  const int64_t inputs = from.count() / from[0];
  ir::Attrs file{{"factors", ir::Ints{inputs, outputs}}, {"perm", ir::Ints{1, 0}}, {"file", ir::Ints{outputs, inputs}}};
  if (from.rank() ==
      4) {  // PyTorch flattens channels first: its weight columns run over (C, H, W), ours over (H, W, C)
    file.set("factors", ir::Ints{from[1], from[2], from[3], outputs}).set("perm", ir::Ints{3, 2, 0, 1});
    x = ops::emit(graph_, "reshape", {x}, {{"shape", ir::Ints{from[0], inputs}}});
  }
  const double bound = 1 / std::sqrt(static_cast<double>(inputs));
  const Value weight = parameter(name + ".weight", Shape{inputs, outputs}, bound, file);
  const Value bias = parameter(name + ".bias", Shape{outputs}, bound);
  return ops::emit(graph_, "bias", {ops::emit(graph_, "matmul", {x, weight}), bias});
}

Value Layers::conv(const std::string& name, Value x, int64_t channels, int64_t kernel, int64_t stride, int64_t pad) {
  const int64_t inputs = graph_.type(x).shape.cols();
  const double bound = 1 / std::sqrt(static_cast<double>(inputs * kernel * kernel));
  const ir::Attrs file{{"factors", ir::Ints{kernel, kernel, inputs, channels}},
                       {"perm", ir::Ints{3, 2, 0, 1}},
                       {"file", ir::Ints{channels, inputs, kernel, kernel}}};
  const Value weight = parameter(name + ".weight", Shape{kernel, kernel, inputs, channels}, bound, file);
  const Value bias = parameter(name + ".bias", Shape{channels}, bound);
  const ir::Attrs attrs{{"stride", ir::Ints{stride, stride}}, {"pad", ir::Ints{pad, pad, pad, pad}}};
  return ops::emit(graph_, "bias", {ops::emit(graph_, "conv2d", {x, weight}, attrs), bias});
}

Value Layers::max_pool(Value x, int64_t kernel, int64_t stride) {
  return ops::emit(graph_, "max_pool", {x},
                   {{"kernel", ir::Ints{kernel, kernel}}, {"stride", ir::Ints{stride, stride}}});
}

Value Layers::dropout(const std::string& name, Value x, double p) {
  if (!training_ || p == 0) return x;
  const auto stream = static_cast<int64_t>(hash_of(name) & 0x7fffffff);
  const Value seed = graph_.control("seed", DType::i32), step = graph_.control("step", DType::i32),
              micro = graph_.control("micro", DType::i32);
  return ops::emit(graph_, "dropout", {x, seed, step, micro}, {{"p", p}, {"stream", stream}});
}

}  // namespace situ::model
