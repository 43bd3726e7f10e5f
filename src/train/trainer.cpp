#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"
#include "model/init.h"
#include "step/programs.h"
#include "train/evaluator.h"

namespace situ::train {
namespace {

constexpr double kReportSeconds = 0.25;  // between two readings of the metrics

std::vector<ir::Graph> programs_for(const model::Model& model, const Settings& settings,
                                    const model::Partial& partial) {
  const step::ProgramSpec spec{model, settings.batch, settings.optimizer, partial, settings.smoothing};
  std::vector<ir::Graph> programs;
  if (settings.micro_batches == 1) {
    programs.push_back(step::train_program(spec));
  } else {
    programs.push_back(step::micro_program(spec));
    programs.push_back(step::apply_program(spec));
  }
  programs.push_back(step::evaluate_program(spec));
  return programs;
}

const Settings& checked(const Settings& settings) {
  if (settings.batch < 1) fail("a batch has at least one image, not {}", settings.batch);
  if (settings.epochs < 1) fail("training takes at least one epoch, not {}", settings.epochs);
  if (settings.micro_batches < 1) fail("a step has at least one batch, not {}", settings.micro_batches);
  if (!(settings.schedule.lr > 0) || !std::isfinite(settings.schedule.lr))
    fail("the learning rate must be above 0, not {}", settings.schedule.lr);
  return settings;
}

}  // namespace

void fill(step::Batch& batch, const data::Slot& slot, const data::Batches& batches, DType dtype) {
  const auto values = static_cast<size_t>(batches.rows() * batches.features());
  const auto labels = static_cast<size_t>(batches.rows() * batches.places());
  void* x = dtype == DType::i32 ? static_cast<void*>(batch.i32("x").data()) : batch.f32("x").data();
  std::memcpy(x, slot.x, values * 4);
  std::memcpy(batch.i32("labels").data(), slot.labels, labels * 4);
  std::memcpy(batch.f32("weight").data(), slot.weights, labels * 4);
}

void check_fit(const model::Model& model, const data::Dataset& dataset) {
  const Type sample = dataset.sample();
  const bool flat =
      model.input.shape.rank() == 1 && model.input.dtype == sample.dtype && model.input.count() == sample.count();
  if (model.input != sample && !flat)
    fail("model {} takes inputs of {}, but {} holds samples of {}: choose a model or data set that fits", model.name,
         to_string(model.input), dataset.name, to_string(sample));
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
    : data_(data),
      settings_(checked(settings)),
      model_(model_for(settings.model, data)),
      partial_(settings.partial ? settings.partial(model_) : model::Partial{}),
      normalisation_(settings.normalisation.mean.empty() ? data::measure_normalisation(data.train)
                                                         : settings.normalisation),
      batches_(data.train, settings.batch, normalisation_, data::Order::shuffled, settings.seed) {
  check_fit(model_, data.train);
  check_fit(model_, data.test);
  settings_.schedule.total = settings_.epochs * ceil_div(batches_.count(), settings_.micro_batches);
  step::SessionOptions options;
  options.residency = settings_.residency;
  session_ = std::make_unique<step::Session>(device, programs_for(model_, settings_, partial_), options);
  for (const ir::State& state : session_->states())
    if (!state.attrs.flag("derived")) session_->set(state.name, model::initial_values(state, settings_.seed));
  if (session_->has_program("train")) train_ = session_->program("train");
  if (session_->has_program("micro")) micro_ = session_->program("micro");
  if (session_->has_program("apply")) apply_ = session_->program("apply");
}

void Trainer::run_step(const data::Slot& slot, int64_t step, int64_t micro) {
  const int64_t first = slot.index - micro, last = std::min(first + settings_.micro_batches, batches_.count());
  int64_t labels = 0;  // of the whole step: gradients are means over all of them
  for (int64_t i = first; i < last; ++i) labels += batches_.valid(i) * batches_.places();
  step::Batch& batch = session_->next_batch();
  fill(batch, slot, batches_, model_.input.dtype);
  batch.set("lr", static_cast<float>(rate_at(settings_.schedule, step)));
  batch.set("scale", static_cast<float>(1.0 / static_cast<double>(labels)));
  batch.set("keep", micro == 0 ? 0.0f : 1.0f);
  batch.set("seed", static_cast<int32_t>(settings_.seed));
  batch.set("step", static_cast<int32_t>(step));
  batch.set("micro", static_cast<int32_t>(micro));
  if (train_ >= 0) return session_->run(train_, batch);
  session_->run(micro_, batch);
  if (slot.index + 1 == last) session_->run(apply_, batch);
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
  p.accuracy = m[2] > 0 ? m[1] / m[2] : 0;
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
  const auto number = static_cast<uint64_t>(epoch);
  data::Prefetch prefetch(settings_.batch, batches_.features(), 4, data::fill_from(batches_, number, number + 1),
                          batches_.places());
  const double start = now();
  double reported = start;
  int64_t images = 0;
  while (const data::Slot* slot = prefetch.acquire()) {
    const int64_t index = slot->index, micro = index % settings_.micro_batches;
    run_step(*slot, steps_done_, micro);
    images += slot->valid;
    prefetch.release();  // run_step has copied it
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
  const Score score = evaluate(data_.test);
  p.epoch_done = true;
  p.test_loss = score.loss;
  p.test_accuracy = score.accuracy;
  if (report) report(p);
}

void Trainer::fit(const Report& report) {
  for (int epoch = 0; epoch < settings_.epochs; ++epoch) train_epoch(epoch, report);
}

Score Trainer::evaluate(const data::Dataset& dataset) {
  return train::evaluate(*session_, model_, settings_.batch, dataset, normalisation_);
}

}  // namespace situ::train
