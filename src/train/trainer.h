// trainer.h -- epochs over a data set: one session, fed by a loader, reported through a callback.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/batches.h"
#include "device/device.h"
#include "model/losses.h"
#include "model/model.h"
#include "model/optimizer.h"
#include "model/partial.h"
#include "step/session.h"
#include "train/loader.h"
#include "train/schedule.h"

namespace situ::train {

struct Settings {
  std::string model = "lenet5";
  std::function<model::Partial(const model::Model&)> partial;  // what is trained; none: everything
  model::Loss loss;
  std::vector<float> class_weights;  // of the classes' samples; empty: all 1
  bool cache_features = false;       // what a frozen part in front makes of each sample is computed once, and kept
  int64_t batch = 64;
  int64_t micro_batches = 1;  // gradients of this many batches are accumulated into one update
  int epochs = 3;
  model::Optimizer optimizer;
  Schedule schedule;  // `total` is filled in
  uint64_t seed = 1;
  data::Normalisation normalisation;  // as trained weights had it; empty: measured on the training data
  step::Residency residency = step::Residency::resident;
};

struct Score {
  double loss = 0;
  double accuracy = 0;                             // of a loss over classes
  double mean_absolute = 0, root_mean_square = 0;  // of one over numbers, in the data's units
  int64_t count = 0;                               // labels: one per sample, or one per place
};

struct Progress {
  int epoch = 0, epochs = 0;
  int64_t step = 0, steps = 0;  // of this epoch
  double loss = 0, accuracy = 0;
  double mean_absolute = 0;  // in place of accuracy, for a loss over numbers
  double images_per_second = 0, seconds_left = 0, rate = 0;
  int64_t peak_bytes = 0;
  bool epoch_done = false;
  bool caching = false;  // no training yet: `step` of `steps` batches went through the frozen part
  Score test;            // when the epoch is done
};
using Report = std::function<void(const Progress&)>;

class Trainer {
 public:
  // Adapts the model to the data (input and classes), or a text to the model (length of a sample).
  Trainer(device::Device& device, data::DatasetPair& data, const Settings& settings);
  // With this model, whatever settings.model says.
  Trainer(device::Device& device, const data::DatasetPair& data, const model::Model& model, const Settings& settings);

  void fit(const Report& report);                // all epochs; metrics are read a few times a second
  Score evaluate(const data::Dataset& dataset);  // exactly every image once, whatever the batch size
  step::Session& session() { return *session_; }
  // Where the training steps ran: the same, or that of the part behind cached features.
  step::Session& step_session() { return rest_ ? rest_->session() : session(); }
  const data::Normalisation& normalisation() const { return normalisation_; }
  const model::Model& model() const { return model_; }
  const model::Partial& partial() const { return partial_; }
  int step_program() const { return rest_ ? rest_->step_program() : train_ >= 0 ? train_ : micro_; }

 private:
  void fit_on_features(const Report& report);
  void train_epoch(int epoch, const Report& report);
  void run_step(Loader& loader, int64_t step, int64_t micro);
  Progress progress(int epoch, int64_t step, double seconds, int64_t images);

  const data::DatasetPair& data_;
  Settings settings_;
  model::Model model_;
  model::Partial partial_;
  data::Normalisation normalisation_;
  data::Batches batches_;
  std::unique_ptr<step::Session> session_;
  int train_ = -1, micro_ = -1, apply_ = -1;
  int64_t steps_done_ = 0;
  double seconds_trained_ = 0;
  int64_t images_trained_ = 0;
  data::DatasetPair features_;  // cached
  std::unique_ptr<Trainer> rest_;
};

// The model a name means for this data; a text is cut into samples of the length the model takes.
model::Model model_for(const std::string& spec, data::DatasetPair& data);

// What a model, a loss and a data set must share; fails with the difference.
void check_fit(const model::Model& model, const model::Loss& loss, const data::Dataset& dataset);

}  // namespace situ::train
