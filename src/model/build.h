// build.h -- a model becomes graph nodes: each layer names its parameters, appends its nodes and gives its result.
//
// Parameters are states. Their attributes say how they start and how files hold them:
//   role="parameter", frozen=1            saved; trained unless frozen
//   role="statistic"                      saved, written by training, not by the optimizer: running mean and variance
//   init="uniform", bound=b               U(-b, b), PyTorch's default for linear and conv layers
//   init="normal", std=s | "zeros" | "ones"
//   factors=[..], perm=[..], file=[..]    reshape to factors, permute by perm, reshape to file: PyTorch's order
#pragma once
#include <map>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "model/model.h"
#include "model/partial.h"
#include "ops/op.h"

namespace situ::model {

Type batch_of(int64_t samples, const Type& sample);  // the type with a first axis of this extent

struct BuildOptions {
  bool training = false;  // dropout, statistics of the batch
  Partial partial;        // what is trained
};

struct BuiltLayer {
  LayerSpec spec;  // with defaults
  ir::Value output = ir::kNoValue;
  size_t first_node = 0, end_node = 0;
};
struct Built {
  ir::Value logits = ir::kNoValue;
  std::vector<BuiltLayer> layers;
};
Built build(const Model& model, ir::Graph& graph, ir::Value x, const BuildOptions& options = {});

int64_t places(const Model& model);  // answers per sample: 1, or one for each step or pixel

struct Init {
  std::string_view kind = "uniform";  // uniform, normal, zeros, ones
  double size = 0;                    // bound or standard deviation
};
// A layer's attribute init="default" | "kaiming" | "normal:STD" | "zeros" for its weight; the bias of anything but
// the default starts at zero.
Init weight_init(const ir::Attrs& attrs, int64_t fan_in, int64_t fan_out);
Init bias_init(const ir::Attrs& attrs, int64_t fan_in);

struct LoraMatrices {
  ir::Value a, b;
  double scale;
};

// What the kinds build with.
class Build {
 public:
  Build(ir::Graph& graph, const BuildOptions& options) : graph_(graph), options_(options) {}

  ir::Graph& graph() { return graph_; }
  const Shape& shape(ir::Value v) const { return graph_.type(v).shape; }
  bool training() const { return options_.training; }
  const Partial& partial() const { return options_.partial; }
  bool trains(const std::string& parameter) const { return options_.partial.trains(parameter); }

  ir::Value emit(std::string_view op, const ir::Values& inputs, const ir::Attrs& attrs = {}) {
    return ops::emit(graph_, op, inputs, attrs);
  }
  ir::Values emit_all(std::string_view op, const ir::Values& inputs, const ir::Attrs& attrs = {}) {
    return ops::emit_all(graph_, op, inputs, attrs);
  }
  ir::Value reshape(ir::Value x, const ir::Ints& dims);
  // rows times a matrix, plus a bias. Rows that were looked up in a table smaller than they are many: the table is
  // multiplied and its products are looked up, which needs fewer products here and in the gradients.
  ir::Value affine(ir::Value rows, ir::Value matrix, ir::Value bias);
  ir::Value constant(double value) { return graph_.constant(value, f32({})); }

  ir::Value parameter(const std::string& name, const Shape& shape, const Init& init, const ir::Attrs& file = {});
  // A matrix [in, out], held by files as [out, in].
  ir::Value matrix(const std::string& name, int64_t in, int64_t out, const Init& init);
  // The two matrices beside a layer's weight, [in, rank] and [rank, out], with these axes of extent 1 in front.
  LoraMatrices lora(const std::string& layer, int64_t in, int64_t out, const ir::Ints& front);
  ir::Value statistic(const std::string& name, const Shape& shape, const Init& init);
  ir::Value dropout(const std::string& name, ir::Value x, double p);  // the name keys its random stream

  // PyTorch flattens [C,H,W], we [H,W,C]: a linear layer behind a flattened image must know the image's shape.
  void note_flattened(ir::Value flat, const Shape& image) { flattened_[flat] = image; }
  Shape flattened_from(ir::Value v) const;

 private:
  friend Built build(const Model&, ir::Graph&, ir::Value, const BuildOptions&);
  ir::Graph& graph_;
  const BuildOptions& options_;
  std::map<ir::Value, Shape> flattened_;
};

}  // namespace situ::model
