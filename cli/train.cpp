// train.cpp -- `situ train MODEL`: epochs with a live line, then weights, their description and the ledger on disk.
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/clock.h"
#include "base/file.h"
#include "base/names.h"
#include "cli/machines.h"
#include "cli/verbs.h"
#include "data/select.h"
#include "model/model_file.h"
#include "prof/report.h"
#include "step/programs.h"
#include "train/history.h"
#include "train/trainer.h"
#include "train/weights.h"

namespace situ::cli {
namespace {

struct Options {
  train::Settings settings;
  DeviceChoice device;
  PartialChoice partial;
  std::string data = "fashion-mnist", out, optimizer = "sgd", schedule = "cosine", residency = "resident";
  std::string from, classes, loss, class_weights;
  int64_t per_class = 0;
  std::vector<std::string> new_classes;
  double warmup_epochs = 0, momentum = -1;  // below 0: the optimizer's own
  bool decay_weights_only = false, new_head = false;
};

std::string clock_text(double seconds) {
  const auto s = static_cast<int64_t>(seconds + 0.5);
  return s >= 3600 ? fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
                   : fmt::format("{}:{:02}", s / 60, s % 60);
}

// One live line on a terminal; elsewhere a plain line now and then and at each epoch's end.
class Line {
 public:
  Line(std::string device, const data::Dataset& data)
      : device_(std::move(device)),
        unit_(data.images.empty() ? "samples" : "images"),
        numbers_(!data.targets.empty()),
        live_(isatty(STDOUT_FILENO) != 0) {}

  void operator()(const train::Progress& p) {
    if (!live_ && !p.epoch_done && now() - printed_ < 2) return;
    printed_ = now();
    std::string text =
        p.caching ? fmt::format("features of the frozen part: batch {}/{}", p.step, p.steps)
                  : fmt::format("epoch {}/{}  step {}/{}  loss {:.4f}  {}  {:.0f} {}/s  ETA {}  peak {} MiB  {}",
                                p.epoch, p.epochs, p.step, p.steps, p.loss, quality(p), p.images_per_second, unit_,
                                clock_text(p.seconds_left), p.peak_bytes >> 20, device_);
    if (p.epoch_done) text += fmt::format("\n  test loss {:.4f}  test {}", p.test.loss, quality(p.test));
    fmt::print("{}{}{}", live_ ? "\r\x1b[K" : "", text, live_ && !p.epoch_done ? "" : "\n");
    std::fflush(stdout);
  }

 private:
  template <typename T>  // Progress or Score
  std::string quality(const T& of) const {
    return numbers_ ? fmt::format("mean error {:.4g}", of.mean_absolute)
                    : fmt::format("acc {:.2f}%", 100 * of.accuracy);
  }
  std::string device_, unit_;
  bool numbers_, live_;
  double printed_ = 0;
};

// Weights to begin with, and the names of the classes they tell apart, the new ones added.
std::vector<std::string> start_from(train::Trainer& trainer, const Options& o, const data::Dataset& data) {
  std::vector<std::string> names = data.class_names;
  if (o.from.empty()) return names;
  const train::WeightsInfo info = train::load_info(o.from);
  if (!o.new_classes.empty()) {
    names = info.class_names;
    for (int c = static_cast<int>(names.size()); c < info.classes; ++c) names.push_back(fmt::format("class {}", c));
    names.insert(names.end(), o.new_classes.begin(), o.new_classes.end());
  }
  train::LoadOptions options;
  options.grow = !o.new_classes.empty();
  if (o.new_head) options.leave = model::parse_partial(trainer.model(), "last").patterns;
  train::load_weights(trainer.session(), o.from, options);
  return names;
}

data::DatasetPair load_data(const Options& o) {
  data::DatasetPair data = data::load_dataset(o.data);
  if (o.classes.empty() && o.per_class == 0) return data;
  const std::vector<int> classes = data::parse_classes(o.classes, data.train.classes);
  data.train = data::select(data.train, classes, o.per_class);
  data.test = data::select(data.test, classes, 0);
  return data;
}

// The chosen kind's own settings, but for those given on the command line.
void use_optimizer(Options& o) {
  model::Optimizer& given = o.settings.optimizer;
  model::Optimizer chosen = model::default_optimizer(model::parse_optimizer(o.optimizer));
  if (o.momentum >= 0) chosen.momentum = o.momentum;
  chosen.nesterov = given.nesterov;
  chosen.decay = given.decay;
  chosen.decay_biases_and_norms = !o.decay_weights_only;
  chosen.clip_norm = given.clip_norm;
  chosen.clip_value = given.clip_value;
  chosen.ema = given.ema;
  given = chosen;
}

// `balanced`, or a number for each class.
std::vector<float> parse_weights(const std::string& text, const data::Dataset& data) {
  if (text == "balanced") return data::balanced_weights(data);
  std::vector<float> weights;
  for (const std::string& part : split_list(text, ',')) {
    float value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc() || end != part.data() + part.size() || !(value >= 0) || !std::isfinite(value))
      fail("`{}` is no class weight: write balanced, or a number for each class such as 1,1,2.5", part);
    weights.push_back(value);
  }
  return weights;
}

void choose_device(Options& o, data::DatasetPair& data) {
  const model::Model model = train::model_for(o.settings.model, data);
  step::ProgramSpec spec{model, o.settings.batch, o.settings.optimizer, o.partial.of(model), o.settings.loss};
  const auto program = [&](const device::Device& device) {
    spec.optimizer.scales_loss = device.activations == DType::f16;
    return step::train_program(spec);
  };
  settle(o.device, program, o.settings.residency, model.classes);
}

void run(Options& o) {
  use_optimizer(o);
  o.settings.schedule.kind = train::parse_schedule(o.schedule);
  o.settings.residency = step::parse_residency(o.residency);
  o.settings.partial = [&](const model::Model& model) { return o.partial.of(model); };
  if (!o.new_classes.empty() && o.from.empty())
    fail("--add-class grows the head of trained weights: name them with --from");
  if (o.out.empty()) o.out = "runs/" + o.settings.model.substr(0, o.settings.model.find(':'));
  make_folders(o.out);
  data::DatasetPair data = load_data(o);
  o.settings.loss.kind = !o.loss.empty()              ? model::parse_loss(o.loss)
                         : data.train.targets.empty() ? model::Loss::cross_entropy
                                                      : model::Loss::mse;
  if (!o.from.empty()) {
    const train::WeightsInfo info = train::load_info(o.from);
    data.train.classes = std::max(data.train.classes, info.classes + static_cast<int>(o.new_classes.size()));
    o.settings.normalisation = info.normalisation;
  }
  o.settings.class_weights = parse_weights(o.class_weights, data.train);  // with the classes that --from brings
  o.settings.schedule.warmup = static_cast<int64_t>(
      o.warmup_epochs * static_cast<double>(ceil_div(data.train.count, o.settings.batch * o.settings.micro_batches)));
  if (o.device.device == "auto") choose_device(o, data);
  const auto device = o.device.open();
  train::Trainer trainer(*device, data, o.settings);
  print_notes(*device);
  const std::vector<std::string> class_names = start_from(trainer, o, data.train);
  Line line(device->target().name, data.train);
  train::History history;
  trainer.fit([&](const train::Progress& p) {
    line(p);
    history.add(p);
  });
  train::save_history(history, o.out);

  const train::Score score = trainer.evaluate(data.test);
  train::WeightsInfo info{.model = o.settings.model,
                          .data = o.data,
                          .architecture = model::print_model(trainer.model()),
                          .classes = trainer.model().classes,
                          .class_names = class_names,
                          .normalisation = trainer.normalisation(),
                          .loss = o.settings.loss,
                          .epochs = o.settings.epochs,
                          .seed = o.settings.seed,
                          .test_accuracy = score.accuracy,
                          .device = device->target().name};
  const std::string weights = o.out + "/model.safetensors";
  train::save_weights(trainer.session(), weights, info);
  prof::Measured measured = prof::measure(trainer.step_session(), trainer.step_program(), {.seconds = 0.5});
  measured.model = o.settings.model;
  measured.residency = o.residency;
  write_file_atomic(o.out + "/ledger.json", prof::to_json(measured) + "\n");
  if (!data.test.targets.empty())
    fmt::print("test error {:.4g} mean absolute, {:.4g} root mean square, over {} samples; weights in {}\n",
               score.mean_absolute, score.root_mean_square, score.count, weights);
  else if (data.test.text.empty())
    fmt::print("test accuracy {:.2f}% over {} samples; weights in {}\n", 100 * score.accuracy, score.count, weights);
  else
    fmt::print("test loss {:.4f} nats, perplexity {:.2f}, over {} bytes; weights in {}\n", score.loss,
               std::exp(score.loss), score.count, weights);
}

}  // namespace

void add_train(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("train", "train a model on a data set, write its weights");
  train::Settings& s = o->settings;
  verb->add_option("model", s.model, model::spec_help())->required();
  verb->add_option(
          "--data", o->data,
          "fashion-mnist, a folder of idx, CIFAR-10 or .ts files, a .txt file, or synthetic:HxWxC:CLASSES:COUNT")
      ->capture_default_str();
  o->device.add_to(*verb, kDevices);
  verb->add_option("--epochs", s.epochs)->capture_default_str()->check(CLI::Range(1, 1000000));
  verb->add_option("--batch", s.batch, "images per batch")->capture_default_str()->check(CLI::Range(1, 1 << 20));
  verb->add_option("--accumulate", s.micro_batches, "batches per update")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  verb->add_option("--lr", s.schedule.lr, "learning rate")->capture_default_str();
  verb->add_option("--schedule", o->schedule, "constant, step, cosine, linear or one-cycle")->capture_default_str();
  verb->add_option("--warmup", o->warmup_epochs, "epochs of linear warm-up")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6));
  verb->add_option("--optimizer", o->optimizer, "sgd, adam, adamw, rmsprop, adagrad or lion")->capture_default_str();
  verb->add_option("--momentum", o->momentum, "of sgd and rmsprop; default 0.9 and 0")->check(CLI::Range(0.0, 1.0));
  verb->add_flag("--nesterov", s.optimizer.nesterov);
  verb->add_option("--weight-decay", s.optimizer.decay)->capture_default_str()->check(CLI::Range(0.0, 1.0));
  o->partial.add_to(*verb);
  verb->add_option("--from", o->from, "begin with these weights (model.safetensors)");
  verb->add_option("--add-class", o->new_classes, "with --from: the head gets this class too, and keeps the others");
  verb->add_flag("--decay-weights-only", o->decay_weights_only, "biases and norms do not decay");
  verb->add_option("--clip-norm", s.optimizer.clip_norm, "largest norm of all gradients together; 0: any");
  verb->add_option("--clip-value", s.optimizer.clip_value, "largest element of a gradient; 0: any");
  verb->add_option("--ema", s.optimizer.ema, "decay of averaged weights, such as 0.999; they are tested and saved")
      ->check(CLI::Range(0.0, 0.999999));
  verb->add_option("--loss", o->loss, "cross-entropy for classes; mse, l1, huber or bce for numbers; default by data");
  verb->add_option("--huber-delta", s.loss.delta, "where huber turns from squares to a line")->capture_default_str();
  verb->add_option("--smoothing", s.loss.smoothing, "share of each label given to all classes")
      ->check(CLI::Range(0.0, 1.0));
  verb->add_option("--class-weights", o->class_weights, "balanced, or a number for each class such as 1,1,2.5");
  verb->add_flag("--cache-features", s.cache_features, "compute a frozen part in front once, and keep what it gives");
  verb->add_option("--classes", o->classes, "only samples of these classes, such as 0-4 or 1,3");
  verb->add_option("--per-class", o->per_class, "only the first samples of each class; 0: all")
      ->check(CLI::Range(0, 1 << 30));
  verb->add_flag("--new-head", o->new_head, "with --from: the last layer starts afresh, for other classes");
  verb->add_option("--seed", s.seed)->capture_default_str();
  verb->add_option("--residency", o->residency, "resident, weights or naive")->capture_default_str();
  verb->add_option("--out", o->out, "folder for weights and ledger; default runs/MODEL");
  verb->callback([o] { run(*o); });
}

}  // namespace situ::cli
