// weights.h -- trained weights on disk: a safetensors file in PyTorch's order and names, and a JSON beside it that says
// what they are (model, classes, normalisation, how they were made).
#pragma once
#include <string>

#include "data/batches.h"
#include "step/session.h"

namespace situ::train {

struct WeightsInfo {
  std::string model, data;
  int classes = 0;
  data::Normalisation normalisation;
  int64_t epochs = 0;
  uint64_t seed = 0;
  double test_accuracy = 0;
  std::string device;
};

std::string info_path(const std::string& weights_path);  // a/b.safetensors -> a/b.json
// Parameters only, unless optimizer slots are asked for too (to go on training).
void save_weights(step::Session& session, const std::string& path, const WeightsInfo& info, bool with_slots = false);
void load_weights(step::Session& session, const std::string& path);  // every parameter must be there, in its shape
WeightsInfo load_info(const std::string& weights_path);

}  // namespace situ::train
