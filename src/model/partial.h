// partial.h -- which parameters a training run changes, decided before the graph is built: what is frozen gets no
// gradient nodes, no slots and no memory for them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace situ::model {

struct Model;

struct Lora {
  int64_t rank = 0;  // 0: off
  double alpha = 16;
  std::vector<std::string> targets;  // patterns of layer names; empty: every linear layer and 1x1 convolution
};

struct Partial {
  std::vector<std::string> patterns;  // of parameter names with * and ?; empty: everything is trained
  Lora lora;                          // if on, only its own matrices and what `patterns` names are trained

  bool trains(std::string_view parameter) const;
  bool adapts(std::string_view layer) const;  // whether LoRA matrices are put beside this layer
  bool everything() const { return patterns.empty() && lora.rank == 0; }
};

// `all`, `last` (the last layer that has parameters), `bias`, or patterns separated by commas: 'layer4.*,fc.*'.
Partial parse_partial(const Model& model, std::string_view what);

}  // namespace situ::model
