// evaluator.h -- trained weights put to use: accuracy over a data set, classes of image files.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "step/programs.h"
#include "train/trainer.h"
#include "train/weights.h"

namespace situ::train {

// Runs `evaluate` of a session over every image of a data set once, whatever the batch size.
Score evaluate(step::Session& session, const model::Model& model, const model::Loss& loss, int64_t batch,
               const data::Dataset& dataset, const data::Normalisation& normalisation);

class Evaluator {
 public:
  Evaluator(device::Device& device, const std::string& weights_path, int64_t batch, bool detailed = false);

  const WeightsInfo& info() const { return info_; }
  const model::Model& model() const { return model_; }
  Score evaluate(const data::Dataset& dataset);
  // Of the last evaluation, if `detailed`: how often each class was taken for each, and the share within the best five.
  std::vector<double> confusion() { return session_->get_double(step::kConfusion); }
  double top5(const Score& score) { return session_->get_double(step::kTop5)[0] / static_cast<double>(score.count); }
  // Probabilities of the classes, one row per image file.
  std::vector<std::vector<float>> predict(const std::vector<std::string>& files);

 private:
  void load_row(const std::string& file, float* x) const;
  WeightsInfo info_;
  model::Model model_;
  int64_t batch_;
  std::unique_ptr<step::Session> session_;
};

}  // namespace situ::train
