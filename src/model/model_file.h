// model_file.h -- models as JSON:
//
//   {
//     "name": "my-net", "input": [28, 28, 1], "classes": 10,
//     "layers": [
//       {"name": "conv1", "kind": "conv", "channels": 8, "kernel": 3, "pad": 1},
//       {"kind": "relu"},
//       {"kind": "flatten"},
//       {"name": "fc", "kind": "linear", "channels": 10}
//     ]
//   }
// A layer reads the one before it, unless "inputs" names others ("x" is the model's input). Kinds and their attributes:
// `situ model kinds`. "tokens": true makes the input a sequence of integers. Errors name the line.
#pragma once
#include <string>
#include <string_view>

#include "model/model.h"

namespace situ::model {

Model load_model(const std::string& path);
Model parse_model(std::string_view text, const std::string& origin);  // origin stands in errors
std::string print_model(const Model& model);                          // one layer per line; parses back to the same

}  // namespace situ::model
