// tune.cpp -- `situ tune MODEL`: measures how each part of a step runs fastest here, and remembers it for `train`.
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "cli/verbs.h"
#include "step/programs.h"
#include "tune/database.h"
#include "tune/tuner.h"

namespace situ::cli {
namespace {

struct Options {
  std::string model, optimizer = "sgd";
  int64_t batch = 64;
  double seconds = 60;
  DeviceChoice device;
  PartialChoice partial;
};

void show_progress(const tune::Progress& p, double seconds, double budget) {
  if (isatty(STDERR_FILENO) == 0) return;
  const auto width =
      static_cast<size_t>(24 * std::max(seconds / budget, static_cast<double>(p.done) / static_cast<double>(p.total)));
  fmt::print(stderr, "\r\x1b[K[{:<24}] {}/{}  {:.60}", std::string(std::min<size_t>(width, 24), '#'), p.done, p.total,
             p.node);
}

void print_results(const std::vector<tune::NodeResult>& results) {
  for (const tune::NodeResult& r : results) {
    for (const tune::Measurement& m : r.candidates)
      if (m.wrong) fmt::print("  wrong result, never chosen: {} of {}\n", m.candidate, r.node);
    if (r.slows_the_step) fmt::print("  faster alone, but not in a step: left as it was  {:.70}\n", r.node);
    const tune::Measurement &first = r.candidates.front(), &best = r.best();
    if (&best != &first)
      fmt::print("  {:8.1f} us -> {:8.1f} us  x{}  {} -> {}  {:.70}\n", first.seconds * 1e6, best.seconds * 1e6,
                 r.times, first.candidate, best.candidate, r.node);
  }
}

void run(const Options& o) {
  const std::string folder = cache_folder();
  if (folder.empty()) fail("there is no cache folder to remember measurements in: set SITU_CACHE");
  make_folders(folder);
  const model::Model model = model::find_model(o.model);
  step::ProgramSpec spec{model, o.batch, {}};
  spec.optimizer = model::default_optimizer(model::parse_optimizer(o.optimizer));
  spec.partial = o.partial.of(model);
  const auto device = o.device.open();
  spec.optimizer.scales_loss = device->activations == DType::f16;
  print_notes(*device);
  tune::Options how;
  how.seconds = o.seconds;
  const double begin = now();
  how.progress = [&](const tune::Progress& p) { show_progress(p, now() - begin, o.seconds); };
  const auto results = tune::tune(*device, {step::train_program(spec)}, how);
  if (isatty(STDERR_FILENO) != 0) fmt::print(stderr, "\r\x1b[K");
  print_results(results);
  tune::Database database(tune::database_path(folder));
  const std::string identity = tune::identity_of(*device);
  double saved = 0;
  int64_t changed = 0;
  for (const tune::NodeResult& r : results) {
    if (r.best().wrong) continue;  // none gave the right result
    database.store(identity, r.node, r.best().candidate, r.best().seconds);
    saved += r.saved();
    changed += r.changed();
  }
  fmt::print(
      "{}: {} kinds of nodes measured in {:.0f} s, {} run faster another way: {:.2f} ms less per step; kept in {}\n",
      o.model, results.size(), now() - begin, changed, saved * 1e3, tune::database_path(folder));
}

}  // namespace

void add_tune(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("tune", "measure how each part of a step runs fastest here; `train` uses it");
  verb->add_option("model", o->model, model::spec_help())->required();
  o->device.add_to(*verb);
  o->partial.add_to(*verb);
  verb->add_option("--batch", o->batch)->capture_default_str()->check(CLI::Range(1, 1 << 20));
  verb->add_option("--optimizer", o->optimizer, "sgd, adam, adamw, rmsprop, adagrad or lion")->capture_default_str();
  verb->add_option("--seconds", o->seconds, "how long to measure; the costliest parts come first")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 86400.0));
  verb->callback([o] { run(*o); });
}

}  // namespace situ::cli
