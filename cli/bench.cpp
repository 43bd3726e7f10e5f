// bench.cpp -- `situ bench MODEL`: one training step, measured; one JSON object on a line with --json.
//
// With --serve the process stays and measures whenever it is asked, so that contenders can take turns (bench/compare).
#include <iostream>

#include "cli/step_choice.h"
#include "prof/report.h"

namespace situ::cli {
namespace {

constexpr int64_t kOutsideSteps = 100;

struct Options {
  StepChoice step;
  double seconds = 3;
  bool json = false, outside = false, serve = false;
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

void run(const Options& o) {
  StepUnderTest test(o.step);
  const auto measured = [&](const prof::MeasureOptions& how) {
    prof::Measured m = prof::measure(test.session(), test.program(), how);
    m.model = o.step.model;
    m.residency = o.step.residency;
    m.first_step_seconds = test.first_step_seconds();
    m.peak_bytes = test.peak_bytes();
    return m;
  };
  print_notes(test.device());
  const int classes = test.model().classes;
  if (o.serve) return serve(measured, classes);
  const prof::Measured m =
      measured({.seconds = o.seconds, .classes = classes, .outside_steps = o.outside ? kOutsideSteps : 0});
  if (o.json) return fmt::print("{}\n", prof::bench_line(m));
  fmt::print("{} batch {}: best {:.3f} ms, median {:.3f} ms over {} steps; peak {} MiB\n", o.step.model, o.step.batch,
             m.best_seconds * 1e3, m.median_seconds * 1e3, m.steps, m.peak_bytes >> 20);
  if (m.programs > 0)
    fmt::print("{} programs compiled by the driver or read from the cache; the first step ended after {:.1f} s\n",
               m.programs, m.first_step_seconds);
  fmt::print("{}", prof::side_by_side({m}));
  if (m.outside)
    fmt::print(
        "outside kernels: {:.1f}% (kernels ran for {:.2f} ms of profiled steps, {} plain steps took {:.2f} ms)\n",
        100 * m.outside->share(), m.outside->kernels * 1e3, m.outside->steps, m.outside->wall * 1e3);
}

}  // namespace

void add_bench(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("bench", "measure one training step of a model");
  o->step.add_to(*verb);
  verb->add_option("--seconds", o->seconds, "how long to measure")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 3600.0));
  verb->add_flag("--json", o->json, "one JSON object on a line");
  verb->add_flag("--outside", o->outside, "the share of 100 steps' time in which no kernel runs, too");
  verb->add_flag("--serve", o->serve,
                 "measure once per number of seconds read from standard input, each a line of JSON");
  verb->callback([o] { run(*o); });
}

}  // namespace situ::cli
