// model.h -- a network as data: layers in order, each with a kind, attributes and the names of its inputs.
//
// The zoo (zoo/*.cpp) and model files (model_file.h) both give this form; build.h turns it into a graph, and
// `situ model show` prints it. A layer's name is the prefix of its parameters in weight files, as in PyTorch.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "ir/attrs.h"

namespace situ::model {

struct LayerSpec {
  std::string name;
  std::string kind;                 // kind.h: conv, linear, relu, ...
  std::vector<std::string> inputs;  // names of layers before it, or "x"; empty: the layer before
  ir::Attrs attrs;
  int line = 0;  // in the file it came from; 0: none
};

struct Model {
  std::string name;
  Type input;       // of one sample: f32[H,W,C], f32[T,C], f32[features], or i32[T], tokens
  int classes = 0;  // the last axis of the result
  std::vector<LayerSpec> layers;
};

// What a name may leave open. Zero or rank 0: the model's own choice.
struct Size {
  int64_t resolution = 0;
  double width = 1;
  Shape input;
  int classes = 0;
};

// `lenet5`, `mlp:784-256-10`, `mobilenetv2@96`, `mobilenetv2@160:0.5`, or a file ending in .json. Input and classes
// adapt to the data at hand where the model allows. Fails with what there is.
Model find_model(std::string_view spec, const Shape& input = {}, int classes = 0);

// One file of zoo/ defines one function `ZooList NAME()` in situ::model::zoo; the build finds it by the file's name.
struct ZooEntry {
  std::string_view name, what;
  int64_t parameters = 0;  // as published for the default size; 0: none published
  Model (*make)(const Size& size) = nullptr;
  bool takes_resolution = false, takes_width = false;
};
using ZooList = std::span<const ZooEntry>;
std::vector<ZooList> all_zoo_families();  // generated
const std::vector<ZooEntry>& zoo_entries();

Model mlp_model(std::string_view spec);  // mlp:784-256-10, any widths

std::vector<std::string> model_names();  // for help texts
std::string spec_help();                 // "lenet5, resnet20, .., mlp:WIDTH-..-WIDTH or a file.json"

}  // namespace situ::model
