// model.h -- networks by name: `lenet5`, `mlp:784-256-128-16` (any widths). A model is a function over layers.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "model/layers.h"

namespace situ::model {

struct Model {
  std::string name;
  Shape input;  // of one sample: [H, W, C] or [features]
  int classes = 0;
  std::function<ir::Value(Layers&, ir::Value x)> logits;
};

Model find_model(std::string_view spec);  // fails with what there is
std::vector<std::string> model_names();   // for help texts

}  // namespace situ::model
