// lessons.cpp -- `situ lessons`: where a training step loses its time, and what each cure brings, measured here.
#include "cli/lessons.h"

#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/names.h"
#include "cli/verbs.h"
#include "device/study.h"
#include "prof/profile.h"
#include "tune/tuner.h"

namespace situ::cli {
namespace {

struct Options {
  std::string models, out, report;
  LessonRun run;
  bool quick = false, json = false, markdown = false;
};

std::vector<std::string> default_models(bool quick) {
  std::vector<std::string> models;
  for (const auto& m : device::study::models()) models.emplace_back(m.spec);
  models.emplace_back("lenet5");
  if (!quick) models.emplace_back("resnet20");
  return models;
}

// M1 .. M4 are the study's names.
std::vector<std::string> parse_models(const std::string& text) {
  std::vector<std::string> models = split_list(text, ',');
  for (std::string& model : models)
    for (const auto& m : device::study::models())
      if (model == m.name) model = m.spec;
  return models;
}

std::unique_ptr<device::Device> open(const LessonRun& run, const std::string& name, bool plain, bool half) {
  DeviceChoice choice;
  choice.device = name;
  choice.threads = run.threads;
  if (half) choice.precision = "fp16";
  const device::Tuning tuning = plain ? device::tuning_for("opencl/plain", "") : device::Tuning();
  for (const auto& [key, value] : tuning.values())
    choice.tuning += fmt::format("{}{}={}", choice.tuning.empty() ? "" : ",", key, value);
  return choice.open();
}

device::Choices fastest(device::Device& device, const ir::Graph& program, double seconds) {
  device::Choices choices;
  tune::Options how;
  how.seconds = seconds;
  for (const tune::NodeResult& r : tune::tune(device, {program}, how))
    if (!r.best().wrong) choices[r.node] = r.best().candidate;
  return choices;
}

// A line that changes, or, where that cannot be seen, a line per model.
void show_progress(const prof::LessonProgress& p, double seconds, std::string& last) {
  if (isatty(STDERR_FILENO) != 0)
    fmt::print(stderr, "\r\x1b[K{:4.0f} s  {} {}/{}  {}", seconds, p.model, p.done, p.total, p.what);
  else if (p.model != last)
    fmt::print(stderr, "{:4.0f} s  {}\n", seconds, p.model);
  last = p.model;
}

void run(Options o) {
  if (o.quick) {
    o.run.how.seconds = std::min(o.run.how.seconds, 0.1);
    o.run.how.rounds = 1;
    o.run.tune = std::min(o.run.tune, 0.5);
  }
  o.run.how.models = o.models.empty() ? default_models(o.quick) : parse_models(o.models);
  const double begin = now();
  std::string last;
  o.run.progress = [&](const prof::LessonProgress& p) { show_progress(p, now() - begin, last); };
  const prof::Lessons lessons = take_lessons(o.run);
  if (isatty(STDERR_FILENO) != 0) fmt::print(stderr, "\r\x1b[K");
  if (!o.out.empty()) {
    write_file_atomic(o.out, prof::lessons_json(lessons) + "\n");
    fmt::print(stderr, "{} holds all figures\n", o.out);
  }
  if (!o.report.empty()) {
    write_file_atomic(o.report,
                      prof::report_page("lessons", fmt::format("{{\"lessons\": {}}}", prof::lessons_json(lessons))));
    fmt::print(stderr, "{} shows them\n", o.report);
  }
  fmt::print("{}\n", o.json       ? prof::lessons_json(lessons)
                     : o.markdown ? prof::lessons_markdown(lessons)
                                  : prof::lessons_text(lessons));
}

}  // namespace

prof::Lessons take_lessons(const LessonRun& run) {
  const auto cpu = open(run, "cpu", false, false), plain = open(run, run.device, true, false),
             tiled = open(run, run.device, false, false), half = open(run, run.device, false, true);
  print_notes(*tiled);
  prof::Lab lab{cpu.get(), plain.get(), tiled.get(), half.get(), {}, run.progress};
  lab.tune = [&](device::Device& device, const ir::Graph& program) { return fastest(device, program, run.tune); };
  return prof::take_lessons(lab, run.how);
}

void add_lessons(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* verb =
      app.add_subcommand("lessons", "where a training step loses its time, and what each cure brings here");
  verb->add_option("--models", o->models,
                   "M1, .., M4 (the study's), or any models; default: M1 to M4, lenet5, resnet20");
  verb->add_option("--device", o->run.device, "opencl or opencl:PART-OF-A-NAME, beside the CPU")->capture_default_str();
  verb->add_option("--threads", o->run.threads, "CPU threads; 0: one per core")->check(CLI::Range(0, 1024));
  verb->add_option("--batch", o->run.how.batch)->capture_default_str()->check(CLI::Range(1, 1 << 20));
  verb->add_option("--seconds", o->run.how.seconds, "for each stage on each device")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 3600.0));
  verb->add_option("--rounds", o->run.how.rounds, "in which stages and devices take turns")
      ->capture_default_str()
      ->check(CLI::Range(1, 100));
  verb->add_option("--tune", o->run.tune, "seconds to measure candidates, for each model on each device")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 3600.0));
  verb->add_flag("--quick", o->quick, "small models, one short round: a look, not a measurement");
  verb->add_option("--out", o->out, "a file for all figures as JSON");
  verb->add_option("--report", o->report, "a page that shows them: FILE.html, needs no network");
  auto* json = verb->add_flag("--json", o->json, "all figures as JSON");
  verb->add_flag("--markdown", o->markdown, "the tables of docs/lessons.md")->excludes(json);
  verb->callback([o] { run(*o); });
}

}  // namespace situ::cli
