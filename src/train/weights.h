// weights.h -- trained weights on disk: a safetensors file in PyTorch's order and names, and a JSON beside it that says
// what they are (model, classes, normalisation, how they were made).
#pragma once
#include <string>
#include <vector>

#include "data/batches.h"
#include "model/losses.h"
#include "step/session.h"

namespace situ::train {

struct WeightsInfo {
  std::string model, data;
  std::string architecture;  // the model as model_file.h prints it
  int classes = 0;
  std::vector<std::string> class_names;
  data::Normalisation normalisation;
  model::Loss loss;
  int64_t epochs = 0;
  uint64_t seed = 0;
  double test_accuracy = 0;
  std::string device;
};

std::string info_path(const std::string& weights_path);  // a/b.safetensors -> a/b.json
// Parameters and running statistics, with optimizer slots if asked for (to go on training). LoRA matrices are added
// into the weights they adapt, so that the file fits the plain model; averages stand in for what they average.
void save_weights(step::Session& session, const std::string& path, const WeightsInfo& info, bool with_slots = false);
struct LoadOptions {
  bool grow = false;               // a tensor with fewer rows than the state fills the first of them: more classes
  std::vector<std::string> leave;  // patterns of states that keep what they hold: a new head
};
// Every other parameter must be there, in its shape; those of LoRA may be missing.
void load_weights(step::Session& session, const std::string& path, const LoadOptions& options = {});
WeightsInfo load_info(const std::string& weights_path);

}  // namespace situ::train
