// measure.cpp -- timing without disturbing: blocks of steps ended by one finish, never a wait per step.
#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/process.h"
#include "prof/profile.h"
#include "step/programs.h"

namespace situ::prof {
namespace {

// A fresh batch each step: the staging blocks are refilled from one prepared copy, as a loader would.
class Feed {
 public:
  Feed(step::Session& session, int program, int classes) : session_(session), program_(program) {
    for (const step::Field& field : session.compiled().memory.inputs()) {
      std::vector<float> values(static_cast<size_t>(field.type.count()));
      uint32_t state = 12345;
      for (float& v : values) {
        state = state * 1664525u + 1013904223u;
        const float drawn = static_cast<float>(state >> 8) * 0x1p-24f;
        v = field.type.dtype == DType::i32 ? std::floor(drawn * static_cast<float>(classes)) : drawn - 0.5f;
      }
      values_.push_back(std::move(values));
      if (field.name == "weight") scale_ = 1.0f / static_cast<float>(field.type.count());  // one per label
    }
  }
  void step(float rate = 1e-4f) {
    step::Batch& batch = session_.next_batch();
    const auto& inputs = session_.compiled().memory.inputs();
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].type.dtype == DType::i32) {  // labels, tokens
        std::ranges::transform(values_[i], batch.i32(inputs[i].name).begin(),
                               [](float v) { return static_cast<int32_t>(v); });
      } else if (inputs[i].name == "weight") {
        std::ranges::fill(batch.f32(inputs[i].name), 1.0f);
      } else {
        std::ranges::copy(values_[i], batch.f32(inputs[i].name).begin());
      }
    }
    batch.set("lr", rate);
    batch.set("scale", scale_);
    batch.set("step", static_cast<int32_t>(step_++));
    session_.run(program_, batch);
  }
  void finish() { session_.device().finish(); }

 private:
  step::Session& session_;
  int program_;
  int64_t step_ = 0;
  float scale_ = 1;
  std::vector<std::vector<float>> values_;
};

device::Counters per_step(const device::Counters& before, const device::Counters& after, int64_t steps) {
  return {(after.launches - before.launches) / steps, (after.waits - before.waits) / steps,
          (after.writes - before.writes) / steps,     (after.reads - before.reads) / steps,
          (after.bytes_in - before.bytes_in) / steps, (after.bytes_out - before.bytes_out) / steps};
}

void time_blocks(Feed& feed, step::Session& session, const MeasureOptions& options, Measured& m) {
  for (int64_t i = 0; i < options.warmup; ++i) feed.step();
  feed.finish();
  double start = now();
  feed.step();
  feed.finish();
  const auto block = static_cast<int64_t>(std::clamp(options.block_seconds / (now() - start), 1.0, 64.0));
  std::vector<double> times;
  const device::Counters before = session.device().counters();
  int64_t finishes = 0;
  double processor = 1e300;
  for (const double begin = now(); now() - begin < options.seconds || m.steps < options.min_steps;) {
    const double ran = situ::processor_seconds();
    start = now();
    for (int64_t i = 0; i < block; ++i) feed.step();
    feed.finish();
    ++finishes;
    times.push_back((now() - start) / static_cast<double>(block));
    processor = std::min(processor, (situ::processor_seconds() - ran) / static_cast<double>(block));
    m.steps += block;
  }
  device::Counters after = session.device().counters();
  after.waits -= finishes;  // ours, not the steps'
  m.counted = per_step(before, after, m.steps);
  std::sort(times.begin(), times.end());
  m.best_seconds = times.front();
  m.processor_seconds = processor;
  m.median_seconds = times[times.size() / 2];
}

// The same steps plain and profiled, in turns: a machine that slows down slows both.
struct Turn {
  double plain = 0;           // seconds of the plain steps
  double begin = 0, end = 0;  // of the profiled ones
  device::Timeline timeline;
  double profiled() const { return end - begin; }
};

double run_steps(Feed& feed, int64_t steps) {
  const double start = now();
  for (int64_t i = 0; i < steps; ++i) feed.step();
  feed.finish();
  return now() - start;
}

// The order changes from turn to turn: what comes first may pay for the pause before it.
Turn take_turn(Feed& feed, step::Session& session, int64_t steps, bool plain_first) {
  Turn turn;
  if (plain_first) turn.plain = run_steps(feed, steps);
  session.device().start_profile();
  turn.begin = now();
  run_steps(feed, steps);
  turn.end = now();
  turn.timeline = session.device().stop_profile();
  if (!plain_first) turn.plain = run_steps(feed, steps);
  return turn;
}

// The seconds of each launch in each step.
void collect(const device::Timeline& timeline, std::vector<std::vector<double>>& launches) {
  for (const device::Event& e : timeline.events)
    if (e.kind == device::EventKind::kernel && e.launch >= 0 && static_cast<size_t>(e.launch) < launches.size())
      launches[static_cast<size_t>(e.launch)].push_back(e.end - e.start);
}

double median(std::vector<double>& values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Short turns, of which the fastest counts, and medians of launches: what else the machine does hits a few of them.
void profile(Feed& feed, step::Session& session, const MeasureOptions& options, Measured& m) {
  constexpr int kTurns = 400, kLeast = 3;
  m.profiled_steps = std::clamp<int64_t>(static_cast<int64_t>(0.01 / m.best_seconds), 2, 64);
  const auto steps = static_cast<double>(m.profiled_steps);
  std::vector<std::vector<double>> launches(m.ledger.list.size());
  Turn best;
  const double start = now();
  for (int i = 0; i < kTurns && (i < kLeast || now() - start < options.seconds); ++i) {
    Turn turn = take_turn(feed, session, m.profiled_steps, i % 2 == 0);
    collect(turn.timeline, launches);
    m.plain_seconds = i == 0 ? turn.plain / steps : std::min(m.plain_seconds, turn.plain / steps);
    if (i == 0 || turn.profiled() < best.profiled()) best = std::move(turn);
  }
  m.begin = best.begin;
  m.split = step::split(best.timeline, best.begin, best.end) / steps;
  m.timeline = std::move(best.timeline);
  m.launch_seconds.clear();
  m.launch_best.clear();
  for (std::vector<double>& seconds : launches) {
    m.launch_best.push_back(seconds.empty() ? 0 : *std::ranges::min_element(seconds));
    m.launch_seconds.push_back(median(seconds));
  }
}

// The profile's own cost is in neither. Kernels that overlap count once.
Measured::Outside outside_kernels(Feed& feed, step::Session& session, int64_t steps) {
  constexpr int64_t kTurns = 5;
  Measured::Outside outside;
  for (int64_t i = 0; i < kTurns; ++i) {
    const int64_t count = steps * (i + 1) / kTurns - outside.steps;
    const Turn turn = take_turn(feed, session, count, i % 2 == 0);
    outside.wall += turn.plain;
    outside.kernels += step::kernel_seconds(turn.timeline);
    outside.steps += count;
  }
  return outside;
}

}  // namespace

void run_one_step(step::Session& session, int program, int classes) {
  Feed feed(session, program, classes);
  feed.step();
  feed.finish();
}

Curve loss_curve(step::Session& session, int program, int classes) {
  constexpr int kSteps = 60;
  constexpr double kSeconds = 2;
  Curve curve{"made-up data", {}};
  if (session.compiled().memory.find_state(step::kTrainMetrics) == nullptr) return curve;
  Feed feed(session, program, classes);
  const double begin = now();
  for (int i = 1; i <= kSteps && (i < 5 || now() - begin < kSeconds); ++i) {
    feed.step(0.01f);
    curve.points.emplace_back(i, session.get(step::kTrainMetrics)[3]);
  }
  return curve;
}

Measured measure(step::Session& session, int program, const MeasureOptions& options) {
  Measured m;
  m.device = session.device().target().name;
  m.ledger = session.ledger(program);
  m.programs = step::distinct_programs(session.compiled(), session.device());
  m.batch = session.compiled().memory.inputs().empty() ? 0 : session.compiled().memory.inputs()[0].type.shape[0];
  Feed feed(session, program, options.classes);
  time_blocks(feed, session, options, m);
  if (options.profiled) profile(feed, session, options, m);
  if (options.outside_steps > 0) m.outside = outside_kernels(feed, session, options.outside_steps);
  return m;
}

}  // namespace situ::prof
