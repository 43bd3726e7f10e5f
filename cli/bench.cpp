// bench.cpp -- `situ bench MODEL`: one training step, measured; one JSON object on a line with --json.
//
// With --serve the process stays and measures whenever it is asked, so that contenders can take turns (bench/compare).
#include <malloc.h>

#include <iostream>

#include "base/clock.h"
#include "base/process.h"
#include "cli/machines.h"
#include "cli/verbs.h"
#include "model/init.h"
#include "prof/report.h"
#include "step/programs.h"

namespace situ::cli {
namespace {

constexpr int64_t kOutsideSteps = 100;

struct Options {
  std::string model, residency = "resident", optimizer = "sgd", program = "train";
  int64_t batch = 64;
  double seconds = 3;
  bool json = false, launches = false, outside = false, serve = false;
  DeviceChoice device;
  PartialChoice partial;
};

// Each line read is a number of seconds; after the first answer everything is warm but the caches.
template <typename Measure>
void serve(const Measure& measured, int classes) {
  prof::MeasureOptions how{.min_steps = 3, .classes = classes, .profiled = false};
  for (; std::cin >> how.seconds; how.warmup = 1) {
    fmt::print("{}\n", prof::bench_line(measured(how)));
    std::fflush(stdout);
  }
}

void run(Options& o) {
  const double begin = now();
  const model::Model model = model::find_model(o.model);
  step::ProgramSpec spec{model, o.batch, {}};
  spec.optimizer = model::default_optimizer(model::parse_optimizer(o.optimizer));
  spec.partial = o.partial.of(model);
  const auto program = [&](const device::Device& on) {
    spec.optimizer.scales_loss = on.activations == DType::f16;
    return step::program_by_name(spec, o.program);
  };
  settle(o.device, program, step::parse_residency(o.residency), model.classes);
  const auto device = o.device.open();
  spec.optimizer.scales_loss = device->activations == DType::f16;
  step::SessionOptions options;
  options.residency = step::parse_residency(o.residency);
  double first_step = 0;
  {  // builds the programs and fills the cache, so that the measured session starts warm
    step::Session warm(*device, {step::program_by_name(spec, o.program)}, options);
    prof::run_one_step(warm, warm.program(o.program), model.classes);
    first_step = now() - begin;
  }
  malloc_trim(0);
  const int64_t before = resident_bytes();
  step::Session session(*device, {step::program_by_name(spec, o.program)}, options);
  for (const ir::State& state : session.states())
    if (!state.attrs.flag("derived")) session.set(state.name, model::initial_values(state, 1));
  const auto measured = [&](const prof::MeasureOptions& how) {
    prof::Measured m = prof::measure(session, session.program(o.program), how);
    m.model = o.model;
    m.residency = o.residency;
    m.first_step_seconds = first_step;
    m.peak_bytes = std::max<int64_t>(0, peak_resident_bytes() - before);
    return m;
  };
  print_notes(*device);
  if (o.serve) return serve(measured, model.classes);
  const prof::Measured m =
      measured({.seconds = o.seconds, .classes = model.classes, .outside_steps = o.outside ? kOutsideSteps : 0});
  if (o.json) return fmt::print("{}\n", prof::bench_line(m));
  fmt::print("{} batch {}: best {:.3f} ms, median {:.3f} ms over {} steps; peak {} MiB\n", o.model, o.batch,
             m.best_seconds * 1e3, m.median_seconds * 1e3, m.steps, m.peak_bytes >> 20);
  if (m.programs > 0)
    fmt::print("{} programs compiled by the driver or read from the cache; the first step ended after {:.1f} s\n",
               m.programs, m.first_step_seconds);
  fmt::print("{}", prof::side_by_side({m}));
  if (m.outside)
    fmt::print(
        "outside kernels: {:.1f}% (kernels ran for {:.2f} ms of profiled steps, {} plain steps took {:.2f} ms)\n",
        100 * m.outside->share(), m.outside->kernels * 1e3, m.outside->steps, m.outside->wall * 1e3);
  if (o.launches) fmt::print("\n{}", prof::launch_table(m));
}

}  // namespace

void add_bench(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("bench", "measure one training step of a model");
  verb->add_option("model", o->model, model::spec_help())->required();
  o->device.add_to(*verb, kDevices);
  o->partial.add_to(*verb);
  verb->add_option("--batch", o->batch)->capture_default_str()->check(CLI::Range(1, 1 << 20));
  verb->add_option("--residency", o->residency, "resident, weights or naive")->capture_default_str();
  verb->add_option("--optimizer", o->optimizer, "sgd, adam, adamw, rmsprop, adagrad or lion")->capture_default_str();
  verb->add_option("--program", o->program, "train, micro, apply, evaluate or infer")->capture_default_str();
  verb->add_option("--seconds", o->seconds, "how long to measure")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 3600.0));
  verb->add_flag("--json", o->json, "one JSON object on a line");
  verb->add_flag("--launches", o->launches, "every launch too");
  verb->add_flag("--outside", o->outside, "the share of 100 steps' time in which no kernel runs, too");
  verb->add_flag("--serve", o->serve,
                 "measure once per number of seconds read from standard input, each a line of JSON");
  verb->callback([o] { run(*o); });
}

}  // namespace situ::cli
