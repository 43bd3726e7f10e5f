// profile.cpp -- `situ profile MODEL`: where the time and memory of a step go, as tables, JSON, a trace and a page.
#include "prof/profile.h"

#include <unistd.h>

#include "base/file.h"
#include "cli/step_choice.h"
#include "step/roofline.h"
#include "train/history.h"

namespace situ::cli {
namespace {

struct Options {
  StepChoice step;
  double seconds = 2;
  bool json = false, launches = false;
  std::string trace, report, run;
};

// Kept from `situ devices --measure`; measured and kept here the first time.
device::Roofline roofline_of(device::Device& device) {
  const std::string folder = cache_folder();
  if (const auto known = step::load_roofline(device.target(), folder)) return *known;
  step::RooflineOptions how;
  const bool live = isatty(STDERR_FILENO) != 0;
  if (live)
    how.progress = [](int turn, int turns) { fmt::print(stderr, "\r\x1b[Kmeasuring the device {}/{}", turn, turns); };
  const device::Roofline measured = step::measure_roofline(device, how);
  if (live) fmt::print(stderr, "\r\x1b[K");
  if (!folder.empty()) step::save_roofline(measured, device.target(), folder);
  return measured;
}

std::vector<prof::Curve> loss_curves(const Options& o, StepUnderTest& test) {
  if (o.report.empty() && !o.json) return {};
  if (o.run.empty()) {
    prof::Curve curve = prof::loss_curve(test.session(), test.program(), test.model().classes);
    return curve.points.empty() ? std::vector<prof::Curve>() : std::vector{curve};
  }
  const train::History history = train::load_history(o.run);
  prof::Curve training{"training", {}}, testing{"test", {}};
  for (const auto& point : history.training) training.points.emplace_back(point.step, point.loss);
  for (const auto& point : history.test) testing.points.emplace_back(point.step, point.loss);
  return {training, testing};
}

void run(const Options& o) {
  StepUnderTest test(o.step);
  print_notes(test.device());
  const device::Roofline roofline = roofline_of(test.device());
  prof::Profile p =
      prof::profile(test.session(), test.program(), {.seconds = o.seconds, .classes = test.model().classes}, roofline);
  p.measured.model = o.step.model;
  p.measured.residency = o.step.residency;
  p.losses = loss_curves(o, test);
  const std::string json = prof::report_json(p);
  if (!o.trace.empty()) write_file_atomic(o.trace, prof::trace_json(p) + "\n");
  if (!o.report.empty())
    write_file_atomic(o.report, prof::report_page(fmt::format("{} on {}", o.step.model, p.measured.device), json));
  if (o.json) return fmt::print("{}\n", json);
  fmt::print("{}", prof::text_of(p, o.launches));
  for (const std::string& file : {o.trace, o.report})
    if (!file.empty()) fmt::print("{}\n", file);
}

}  // namespace

void add_profile(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("profile", "where the time and memory of a step go, and what to try");
  o->step.add_to(*verb);
  verb->add_option("--seconds", o->seconds, "how long to measure, about, without and with profiling each")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 3600.0));
  verb->add_flag("--launches", o->launches, "every layer and every launch");
  verb->add_flag("--json", o->json, "everything as one JSON object");
  verb->add_option("--trace", o->trace, "write the steps as a trace for chrome://tracing or ui.perfetto.dev");
  verb->add_option("--report", o->report, "write report.html, one page with pictures that needs no network");
  verb->add_option("--run", o->run, "output folder of `situ train`, whose loss the report shows");
  verb->callback([o] { run(*o); });
}

}  // namespace situ::cli
