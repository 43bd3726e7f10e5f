#include "train/evaluator.h"

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "io/image.h"
#include "model/init.h"
#include "model/model_file.h"
#include "step/programs.h"
#include "train/loader.h"
#include "train/metrics.h"

namespace situ::train {

Score evaluate(step::Session& session, const model::Model& model, const model::Loss& loss, int64_t batch_size,
               const data::Dataset& dataset, const data::Normalisation& normalisation) {
  check_fit(model, loss, dataset);
  session.set(step::kEvalMetrics, std::vector<float>(4, 0.0f));
  if (!loss.of_classes()) session.set(step::kErrors, std::vector<float>(4, 0.0f));
  const int program = session.program("evaluate");
  data::Batches batches(dataset, batch_size, normalisation);
  for (Loader loader(session, batches); loader.next();) {
    loader.batch().set("scale", 1.0f);
    session.run(program, loader.batch());
  }
  const std::vector<float> m = session.get(step::kEvalMetrics);
  Score score;
  score.loss = m[0] / m[2];
  score.count = static_cast<int64_t>(std::llround(m[2]));
  if (loss.of_classes()) {
    score.accuracy = m[1] / m[2];
    return score;
  }
  const ErrorReport errors = error_report(session.get_double(step::kErrors));
  score.mean_absolute = errors.mean_absolute * normalisation.target_std;
  score.root_mean_square = errors.root_mean_square * normalisation.target_std;
  return score;
}

Evaluator::Evaluator(device::Device& device, const std::string& weights_path, int64_t batch, bool detailed)
    : info_(load_info(weights_path)),
      model_(info_.architecture.empty() ? model::find_model(info_.model)
                                        : model::parse_model(info_.architecture, info_path(weights_path))),
      batch_(batch) {
  step::ProgramSpec spec{model_, batch, {}};
  spec.loss = info_.loss;
  spec.detailed = detailed;
  session_ = std::make_unique<step::Session>(
      device, std::vector<ir::Graph>{step::evaluate_program(spec), step::infer_program(spec)});
  for (const ir::State& state : session_->states())
    if (model::has_role(state, "metric")) session_->set(state.name, model::initial_values(state, 0));
  load_weights(*session_, weights_path);
}

Score Evaluator::evaluate(const data::Dataset& dataset) {
  return train::evaluate(*session_, model_, info_.loss, batch_, dataset, info_.normalisation);
}

void Evaluator::load_row(const std::string& file, float* x) const {
  if (model_.input.shape.rank() != 3)
    fail("model {} takes {} numbers, not images: `situ predict` needs a model over images", model_.name,
         model_.input.count());
  const int64_t channels = model_.input.shape[2];
  const io::Image image = io::load_image(file, model_.input.shape[0], model_.input.shape[1], channels);
  for (size_t i = 0; i < image.pixels.size(); ++i) {
    const size_t c = i % static_cast<size_t>(channels);
    x[i] = (static_cast<float>(image.pixels[i]) / 255.0f - info_.normalisation.mean[c]) / info_.normalisation.std[c];
  }
}

std::vector<std::vector<float>> Evaluator::predict(const std::vector<std::string>& files) {
  if (!info_.loss.of_classes() || model::places(model_) != 1)
    fail("model {} does not give one class per image: `situ predict` needs a classifier", model_.name);
  if (info_.normalisation.mean.size() != static_cast<size_t>(model_.input.shape.cols()) ||
      info_.normalisation.std.size() != info_.normalisation.mean.size())
    fail("the description beside the weights gives {} channels, the model has {}", info_.normalisation.mean.size(),
         model_.input.shape.cols());
  const int program = session_->program("infer");
  const int64_t features = model_.input.count();
  std::vector<std::vector<float>> rows;
  for (size_t first = 0; first < files.size(); first += static_cast<size_t>(batch_)) {
    step::Batch& batch = session_->next_batch();
    const auto x = batch.f32("x");
    std::fill(x.begin(), x.end(), 0.0f);
    const size_t count = std::min(files.size() - first, static_cast<size_t>(batch_));
    for (size_t i = 0; i < count; ++i) load_row(files[first + i], x.data() + static_cast<int64_t>(i) * features);
    session_->run(program, batch);
    const std::vector<float> probabilities = session_->output(program, "probabilities");
    for (size_t i = 0; i < count; ++i) {
      const auto begin = probabilities.begin() + static_cast<long>(i) * model_.classes;
      rows.emplace_back(begin, begin + model_.classes);
    }
  }
  return rows;
}

}  // namespace situ::train
