#include "train/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"
#include "step/programs.h"
#include "step/run.h"
#include "train/evaluator.h"
#include "train/features.h"

namespace situ::train {
namespace {

constexpr double kReportSeconds = 0.25;  // between two readings of the metrics

std::vector<ir::Graph> programs_for(const model::Model& model, const Settings& settings,
                                    const model::Partial& partial) {
  step::ProgramSpec spec{model, settings.batch, settings.optimizer, partial, settings.loss};
  std::vector<ir::Graph> programs;
  if (settings.cache_features) {
    spec.optimizer.ema = 0;  // the trainer of the rest keeps averages; here they arrive as the parameters
    programs.push_back(features_program(model, settings.batch, partial));
  } else if (settings.micro_batches == 1) {
    programs.push_back(step::train_program(spec));
  } else {
    programs.push_back(step::micro_program(spec));
    programs.push_back(step::apply_program(spec));
  }
  programs.push_back(step::evaluate_program(spec));
  return programs;
}

// Probabilities stay what they are; other targets are learnt in units of their deviation.
data::Normalisation normalisation_for(const Settings& settings, const data::Dataset& train) {
  if (!settings.normalisation.mean.empty()) return settings.normalisation;
  data::Normalisation n = data::measure_normalisation(train);
  if (settings.loss.kind == model::Loss::bce) n.target_mean = 0, n.target_std = 1;
  return n;
}

const Settings& checked(const Settings& settings, const data::Dataset& train) {
  if (settings.batch < 1) fail("a batch has at least one image, not {}", settings.batch);
  if (settings.epochs < 1) fail("training takes at least one epoch, not {}", settings.epochs);
  if (settings.cache_features && !train.text.empty())
    fail("a text is cut elsewhere in each epoch, so features cannot be kept: leave out --cache-features");
  if (settings.micro_batches < 1) fail("a step has at least one batch, not {}", settings.micro_batches);
  if (!(settings.schedule.lr > 0) || !std::isfinite(settings.schedule.lr))
    fail("the learning rate must be above 0, not {}", settings.schedule.lr);
  return settings;
}

}  // namespace

void check_fit(const model::Model& model, const model::Loss& loss, const data::Dataset& dataset) {
  const Type sample = dataset.sample();
  const bool flat =
      model.input.shape.rank() == 1 && model.input.dtype == sample.dtype && model.input.count() == sample.count();
  if (model.input != sample && !flat)
    fail("model {} takes inputs of {}, but {} holds samples of {}: choose a model or data set that fits", model.name,
         to_string(model.input), dataset.name, to_string(sample));
  if (loss.of_classes() == !dataset.targets.empty())
    fail("{} holds {}, and the loss {} learns {}: choose {}", dataset.name,
         loss.of_classes() ? "numbers to predict" : "classes", model::name_of(loss.kind),
         loss.of_classes() ? "classes" : "numbers", loss.of_classes() ? "mse, l1, huber or bce" : "cross-entropy");
  if (loss.kind == model::Loss::bce && std::ranges::any_of(dataset.targets, [](float t) { return t < 0 || t > 1; }))
    fail("{} has targets outside 0 to 1, and the loss bce needs probabilities: choose mse, l1 or huber", dataset.name);
  if (const int64_t places = model::places(model); places != dataset.places())
    fail(
        "model {} gives {} answers per sample, but {} has {} labels for each: choose a model or data set that "
        "fits",
        model.name, places, dataset.name, dataset.places());
  if (dataset.classes > model.classes)
    fail("model {} tells {} classes apart, but {} has {}: choose a model with a wider last layer", model.name,
         model.classes, dataset.name, dataset.classes);
}

model::Model model_for(const std::string& spec, data::DatasetPair& data) {
  if (data.train.text.empty()) {
    const Type sample = data.train.sample();
    return model::find_model(spec, sample.shape, data.train.classes);
  }
  model::Model model = model::find_model(spec);
  if (model.input.dtype != DType::i32)
    fail("{} is a text, and model {} takes no text: choose char-lstm or gpt-mini", data.train.name, spec);
  data.train.set_length(model.input.shape[0]);
  data.test.set_length(model.input.shape[0]);
  return model;
}

Trainer::Trainer(device::Device& device, data::DatasetPair& data, const Settings& settings)
    : Trainer(device, data, model_for(settings.model, data), settings) {}

Trainer::Trainer(device::Device& device, const data::DatasetPair& data, const model::Model& model,
                 const Settings& settings)
    : data_(data),
      settings_(checked(settings, data.train)),
      model_(model),
      partial_(settings.partial ? settings.partial(model_) : model::Partial{}),
      normalisation_(normalisation_for(settings, data.train)),
      batches_(data.train, settings.batch, normalisation_, data::Order::shuffled, settings.seed,
               settings.class_weights) {
  settings_.optimizer.scales_loss = device.activations == DType::f16;
  check_fit(model_, settings.loss, data.train);
  check_fit(model_, settings.loss, data.test);
  settings_.schedule.total = settings_.epochs * ceil_div(batches_.count(), settings_.micro_batches);
  step::SessionOptions options;
  options.residency = settings_.residency;
  session_ = std::make_unique<step::Session>(device, programs_for(model_, settings_, partial_), options);
  step::set_initial_values(*session_, settings_.seed);
  if (session_->has_program("train")) train_ = session_->program("train");
  if (session_->has_program("micro")) micro_ = session_->program("micro");
  if (session_->has_program("apply")) apply_ = session_->program("apply");
}

void Trainer::run_step(Loader& loader, int64_t step, int64_t micro) {
  const int64_t index = loader.slot().index;
  const int64_t first = index - micro, last = std::min(first + settings_.micro_batches, batches_.count());
  double weights = 0;  // of the whole step: gradients are means over all of them
  for (int64_t i = first; i < last; ++i) weights += batches_.weight(i);
  step::Batch& batch = loader.batch();
  batch.set("lr", static_cast<float>(rate_at(settings_.schedule, step)));
  batch.set("scale", static_cast<float>(weights > 0 ? 1 / weights : 0));
  batch.set("keep", micro == 0 ? 0.0f : 1.0f);
  batch.set("seed", static_cast<int32_t>(settings_.seed));
  batch.set("step", static_cast<int32_t>(step));
  batch.set("micro", static_cast<int32_t>(micro));
  if (train_ >= 0) return session_->run(train_, batch);
  const std::array<int, 2> programs = {micro_, apply_};
  session_->run(std::span(programs).first(index + 1 == last ? 2 : 1), batch);
}

Progress Trainer::progress(int epoch, int64_t step, double seconds, int64_t images) {
  const std::vector<float> m = session_->get(step::kTrainMetrics);
  if (!std::isfinite(m[0]))
    fail("the loss is no longer a number in epoch {}, step {}: lower the learning rate (--lr)", epoch + 1, step);
  Progress p;
  p.epoch = epoch + 1;
  p.epochs = settings_.epochs;
  p.step = step;
  p.steps = batches_.count();
  p.loss = m[2] > 0 ? m[0] / m[2] : 0;
  const double mean = m[2] > 0 ? m[1] / m[2] : 0;  // of answers that are right, or of absolute errors
  if (settings_.loss.of_classes())
    p.accuracy = mean;
  else
    p.mean_absolute = mean * normalisation_.target_std;
  p.rate = rate_at(settings_.schedule, steps_done_);
  p.images_per_second = static_cast<double>(images) / seconds;
  const double total_images = static_cast<double>(data_.train.count) * settings_.epochs;
  const double done = static_cast<double>(images_trained_ + images);
  p.seconds_left = (seconds_trained_ + seconds) * (total_images - done) / done;
  p.peak_bytes = peak_resident_bytes();
  return p;
}

void Trainer::train_epoch(int epoch, const Report& report) {
  session_->set(step::kTrainMetrics, std::vector<float>(4, 0.0f));
  Loader loader(*session_, batches_, static_cast<uint64_t>(epoch));
  const double start = now();
  double reported = start;
  int64_t images = 0;
  while (loader.next()) {
    const int64_t index = loader.slot().index, micro = index % settings_.micro_batches;
    run_step(loader, steps_done_, micro);
    images += loader.slot().valid;
    if (micro + 1 == settings_.micro_batches || index + 1 == batches_.count()) ++steps_done_;
    if (!report || now() - reported < kReportSeconds) continue;
    report(progress(epoch, index + 1, now() - start, images));
    reported = now();
  }
  session_->device().finish();
  const double seconds = now() - start;
  Progress p = progress(epoch, batches_.count(), seconds, images);
  seconds_trained_ += seconds;
  images_trained_ += images;
  p.epoch_done = true;
  p.test = evaluate(data_.test);
  if (report) report(p);
}

// The part behind the cut trains on what the part before it makes of each sample; its states move there and back.
void Trainer::fit_on_features(const Report& report) {
  const model::Split split = model::split_frozen(model_, partial_);
  const Type across = split.rest.input;
  features_ = {features_of(*session_, across, settings_.batch, data_.train, normalisation_, report),
               features_of(*session_, across, settings_.batch, data_.test, normalisation_, report)};
  Settings settings = settings_;
  settings.cache_features = false;
  settings.partial = [this](const model::Model&) { return partial_; };
  settings.normalisation = unchanged(across, normalisation_);
  rest_ = std::make_unique<Trainer>(session_->device(), features_, split.rest, settings);
  give_parameters(*session_, rest_->session());
  rest_->fit(report);
  take_trained(rest_->session(), *session_);
}

void Trainer::fit(const Report& report) {
  if (settings_.cache_features) return fit_on_features(report);
  for (int epoch = 0; epoch < settings_.epochs; ++epoch) train_epoch(epoch, report);
}

Score Trainer::evaluate(const data::Dataset& dataset) {
  return train::evaluate(*session_, model_, settings_.loss, settings_.batch, dataset, normalisation_);
}

}  // namespace situ::train
