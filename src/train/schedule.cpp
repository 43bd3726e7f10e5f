#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace situ::train {
namespace {

constexpr Schedule::Kind kKinds[] = {Schedule::constant, Schedule::step, Schedule::cosine, Schedule::linear,
                                     Schedule::one_cycle};

// PyTorch's OneCycleLR: its defaults, cosine annealing.
constexpr double kRising = 0.3, kStartBelow = 25, kEndBelow = 1e4;

// From `from` at t = 0 along half a cosine to `to` at t = 1.
double annealed(double from, double to, double t) {
  return to + (from - to) * (1 + std::cos(std::numbers::pi * t)) / 2;
}

// The peak is reached at step kRising * total - 1, which need not be a whole number; the last step ends the fall.
double one_cycle_at(double lr, double step, double total) {
  const double peak = kRising * total - 1, last = total - 1, start = lr / kStartBelow;
  if (step < peak) return annealed(start, lr, step / peak);
  return annealed(lr, start / kEndBelow, std::min(1.0, (step - peak) / (last - peak)));
}

}  // namespace

Schedule::Kind parse_schedule(std::string_view name) {
  for (auto kind : kKinds)
    if (name == name_of(kind)) return kind;
  fail("there is no schedule `{}`: use constant, step, cosine, linear or one-cycle", name);
}

std::string_view name_of(Schedule::Kind kind) {
  switch (kind) {
    case Schedule::constant:
      return "constant";
    case Schedule::step:
      return "step";
    case Schedule::cosine:
      return "cosine";
    case Schedule::linear:
      return "linear";
    case Schedule::one_cycle:
      return "one-cycle";
  }
  return "";
}

double rate_at(const Schedule& s, int64_t step) {
  if (step < s.warmup) return s.lr * static_cast<double>(step + 1) / static_cast<double>(s.warmup);
  const auto span = static_cast<double>(std::max<int64_t>(1, s.total - s.warmup));
  const double t = std::min(1.0, static_cast<double>(step - s.warmup) / span);
  switch (s.kind) {
    case Schedule::constant:
      return s.lr;
    case Schedule::step:
      return s.lr * std::pow(s.factor, (t >= 0.5) + (t >= 0.75));
    case Schedule::cosine:
      return annealed(s.lr, 0, t);
    case Schedule::linear:
      return s.lr * (1 - t);
    case Schedule::one_cycle:
      return one_cycle_at(s.lr, static_cast<double>(step - s.warmup), span);
  }
  return s.lr;
}

}  // namespace situ::train
