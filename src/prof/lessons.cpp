#include "prof/lessons.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "plan/plan.h"
#include "step/programs.h"
#include "step/run.h"

namespace situ::prof {
namespace {

using step::Residency;

constexpr double kBlockSeconds = 3e-3;

struct Contestant {
  const Stage* stage;
  bool opencl = false;
  std::unique_ptr<step::Session> session;
  Measured m;
  double spent = 0;  // seconds measured
};

device::Device* device_for(const Lab& lab, const Stage& stage, bool opencl) {
  if (!opencl) return stage.half ? nullptr : lab.cpu;
  if (stage.half) return lab.half;
  return stage.kernels == Kernels::plain ? lab.plain : lab.tiled;
}

ir::Graph program_for(const model::Model& model, int64_t batch, bool half) {
  step::ProgramSpec spec{model, batch, {}};
  spec.optimizer = model::default_optimizer(model::Optimizer::sgd);
  spec.optimizer.scales_loss = half;
  return step::train_program(spec);
}

step::SessionOptions options_for(const Stage& stage) {
  step::SessionOptions options;
  options.residency = stage.residency;
  options.compile.fuse = options.compile.hoist = stage.fuse;
  return options;
}

class Turns {
 public:
  Turns(const Lab& lab, const LessonOptions& options, const std::string& spec)
      : lab_(lab), options_(options), spec_(spec), model_(model::find_model(spec)) {
    for (const Stage& stage : lesson_stages())
      for (bool opencl : {true, false})
        if (device::Device* device = device_for(lab, stage, opencl)) add(stage, opencl, *device);
  }

  Lesson measure() {
    for (int round = 0; round < options_.rounds; ++round)
      for (Contestant& c : contestants_) measure(c, round);
    Lesson lesson{spec_, options_.batch, {}};
    for (Contestant& c : contestants_) lesson.entries.push_back({std::string(c.stage->name), c.opencl, std::move(c.m)});
    return lesson;
  }

 private:
  void say(const Stage& stage, bool opencl, const std::string& what) {
    if (!lab_.progress) return;
    const auto total = contestants() * static_cast<size_t>(1 + options_.rounds);
    lab_.progress({spec_, done_, total, fmt::format("{} on {}: {}", stage.name, opencl ? "opencl" : "cpu", what)});
  }
  size_t contestants() const {
    size_t count = 0;
    for (const Stage& stage : lesson_stages())
      for (bool opencl : {true, false}) count += device_for(lab_, stage, opencl) != nullptr;
    return count;
  }

  // The device's choices hold while the session is compiled and are then as they were.
  void add(const Stage& stage, bool opencl, device::Device& device) {
    const ir::Graph program = program_for(model_, options_.batch, stage.half);
    const step::SessionOptions options = options_for(stage);
    const device::Choices before = device.choices;
    if (stage.kernels == Kernels::plain)
      device.choices = plain_choices(device, step::rewritten(program, device, options.compile));
    if (stage.kernels == Kernels::tuned) {
      say(stage, opencl, "tuning");
      for (const auto& [node, candidate] : lab_.tune(device, program)) device.choices[node] = candidate;
    }
    say(stage, opencl, "compiling");
    auto session = std::make_unique<step::Session>(device, std::vector<ir::Graph>{program}, options);
    device.choices = before;
    step::set_initial_values(*session, 1);
    contestants_.push_back({&stage, opencl, std::move(session), {}, 0});
    ++done_;
  }

  void measure(Contestant& c, int round) {
    ++done_;
    if (round >= 2 && c.spent > 2 * options_.seconds) return;
    const double begin = now();
    say(*c.stage, c.opencl, fmt::format("measuring, round {} of {}", round + 1, options_.rounds));
    MeasureOptions how{.seconds = options_.seconds / options_.rounds, .min_steps = 1, .classes = model_.classes};
    how.warmup = round == 0 ? 3 : 1;
    how.block_seconds = kBlockSeconds;
    how.profiled = round == 0 || c.spent < options_.seconds;
    const Measured m = prof::measure(*c.session, 0, how);
    c.spent += now() - begin;
    if (round == 0) {
      c.m = m;
      c.m.timeline = {};  // large
      c.m.model = spec_;
      c.m.residency = step::name_of(c.stage->residency);
      return;
    }
    c.m.steps += m.steps;
    c.m.best_seconds = std::min(c.m.best_seconds, m.best_seconds);
    c.m.median_seconds = std::min(c.m.median_seconds, m.median_seconds);
    if (m.split.wall > 0 && m.split.wall < c.m.split.wall) {  // the less disturbed profile
      c.m.split = m.split;
      c.m.launch_seconds = m.launch_seconds;
    }
  }

  const Lab& lab_;
  const LessonOptions& options_;
  std::string spec_;
  model::Model model_;
  std::vector<Contestant> contestants_;
  size_t done_ = 0;
};

}  // namespace

std::span<const Stage> lesson_stages() {
  static constexpr Stage stages[] = {
      {"naive", "every operand copied in and out, a wait after every op", Residency::naive},
      {"better kernels", "the same with register tiles: what the study tried", Residency::naive, false, Kernels::tiled},
      {"weights", "parameters stay on the device", Residency::weights},
      {"resident", "the whole step stays: nothing waits, only the batch crosses", Residency::resident},
      {"fused", "fewer launches", Residency::resident, true},
      {"tuned", "register tiles, the fastest candidates by measurement", Residency::resident, true, Kernels::tuned},
      {"fp16", "activations stored as half", Residency::resident, true, Kernels::tuned, true},
  };
  return stages;
}

double Entry::lost() const { return (m.split.movement + m.split.launch + m.split.wait) / m.split.wall; }

const Entry* Lesson::find(std::string_view stage, bool opencl) const {
  for (const Entry& e : entries)
    if (e.stage == stage && e.opencl == opencl) return &e;
  return nullptr;
}

device::Choices plain_choices(const device::Device& device, const ir::Graph& rewritten) {
  device::Choices choices;
  for (const ir::Node& node : rewritten.nodes) {
    if (!plan::is_launch(node)) continue;
    const ops::OpView view = ops::view_of(rewritten, node);
    const auto usable = plan::candidates_for(device, view);
    for (bool any : {true, false})  // ways for any operands, then those that ask
      for (device::CandidateList list : device.candidates())
        for (const device::Candidate& candidate : list)
          if (any == !candidate.accepts && std::ranges::find(usable, &candidate) != usable.end())
            choices.try_emplace(device::node_key(view), candidate.name);
  }
  return choices;
}

Lessons take_lessons(const Lab& lab, const LessonOptions& options) {
  Lessons lessons{lab.cpu->target().name, lab.tiled->target().name, lab.tiled->target().driver, {}};
  for (const std::string& spec : options.models) lessons.list.push_back(Turns(lab, options, spec).measure());
  return lessons;
}

}  // namespace situ::prof
