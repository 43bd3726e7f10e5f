#include "cli/calibrate.h"

#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "cli/machines.h"
#include "prof/report.h"
#include "step/programs.h"
#include "step/roofline.h"
#include "step/run.h"

namespace situ::cli {
namespace {

constexpr int kRounds = 4;
constexpr double kRoundSeconds = 5;  // at least, unless it is the only one

void show(const std::string& text) {
  if (isatty(STDERR_FILENO)) fmt::print(stderr, "\r\x1b[K{}", text);
}

// One model, ready to be measured again and again.
class Subject {
 public:
  Subject(device::Device& device, const estimate::CalibrationModel& of) : model_(model::find_model(of.model)) {
    const auto kind = model::parse_optimizer(of.optimizer);
    session_ = std::make_unique<step::Session>(
        device, std::vector<ir::Graph>{step::train_program({model_, of.batch, model::default_optimizer(kind)})});
    step::set_initial_values(*session_, 1);
    measured_.model = of.model;
    const step::Program& train = session_->compiled().programs[static_cast<size_t>(session_->program("train"))];
    for (const device::LaunchSpec& launch : train.launches)
      measured_.works.push_back(estimate::work_of(launch, device.target()));
    measured_.launch_seconds.assign(measured_.works.size(), 1e300);
    measured_.seconds = 1e300;
  }

  void turn(double seconds, bool one_thread) {
    const prof::Measured m =
        prof::measure(*session_, session_->program("train"),
                      {.seconds = seconds, .min_steps = 3, .warmup = 1, .classes = model_.classes});
    measured_.seconds = std::min(measured_.seconds, m.best_seconds);
    if (one_thread) measured_.seconds = std::min(measured_.seconds, m.processor_seconds);
    for (size_t i = 0; i < m.launch_best.size(); ++i)
      measured_.launch_seconds[i] = std::min(measured_.launch_seconds[i], m.launch_best[i]);
  }

  estimate::MeasuredStep result(const device::Roofline& roofline) const {
    estimate::MeasuredStep m = measured_;
    const estimate::Machine machine{roofline, estimate::default_constants(estimate::Kind::cpu)};
    m.movement = estimate::estimate(session_->compiled(), "train", step::Residency::resident,
                                    session_->device().target(), machine)
                     .movement;
    return m;
  }

 private:
  model::Model model_;
  std::unique_ptr<step::Session> session_;
  estimate::MeasuredStep measured_;
};

}  // namespace

void calibrate(device::Device& device, double seconds) {
  const std::string folder = cache_folder();
  if (folder.empty()) fail_environment("there is no cache folder to keep constants in: set SITU_CACHE");
  const device::Target& target = device.target();
  if (target.backend == "ref") fail("the oracle is there to be exact, not fast: calibrate cpu or opencl");
  show(fmt::format("{}: roofline", target.name));
  const device::Roofline roofline = step::measure_roofline(device);
  const auto& models = estimate::calibration_models();
  std::vector<std::unique_ptr<Subject>> subjects;
  for (const estimate::CalibrationModel& m : models) {
    show(fmt::format("{}: compiling {}", target.name, m.model));
    subjects.push_back(std::make_unique<Subject>(device, m));
  }
  const bool one_thread = works_on_one_thread(device);
  const int rounds = std::clamp(static_cast<int>(seconds / kRoundSeconds), 1, kRounds);
  const double each = seconds / static_cast<double>(static_cast<size_t>(rounds) * subjects.size());
  for (int round = 0; round < rounds; ++round)
    for (size_t i = 0; i < subjects.size(); ++i) {
      show(fmt::format("{}: round {}/{}, {}", target.name, round + 1, rounds, models[i].model));
      subjects[i]->turn(each, one_thread);
    }
  show("");
  std::vector<estimate::MeasuredStep> steps;
  for (const auto& subject : subjects) steps.push_back(subject->result(roofline));
  estimate::Constants constants = estimate::fit(steps, roofline, kind_of(device));
  constants.basis = "calibrated on this machine";
  step::save_roofline(roofline, target, folder);
  estimate::save_constants(constants, target, folder);
  fmt::print(
      "{}: {} kernels fitted; a launch {:.2f} us, a step {:.2f} times its launches alone; error band +-{:.0f}%\n",
      target.name, constants.kernels.size(), constants.launch_seconds * 1e6, constants.scale, 100 * constants.band);
  for (const estimate::MeasuredStep& s : steps)
    fmt::print("  {:16} measured {:9.3f} ms, fitted {:9.3f} ms\n", s.model, s.seconds * 1e3,
               estimate::seconds_of(s, roofline, constants) * 1e3);
}

}  // namespace situ::cli
