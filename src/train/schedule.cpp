#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace situ::train {

Schedule::Kind parse_schedule(std::string_view name) {
  for (auto kind : {Schedule::constant, Schedule::step, Schedule::cosine})
    if (name == name_of(kind)) return kind;
  fail("there is no schedule `{}`: use constant, step or cosine", name);
}

std::string_view name_of(Schedule::Kind kind) {
  return kind == Schedule::constant ? "constant" : kind == Schedule::step ? "step" : "cosine";
}

double rate_at(const Schedule& s, int64_t step) {
  if (step < s.warmup) return s.lr * static_cast<double>(step + 1) / static_cast<double>(s.warmup);
  const auto span = static_cast<double>(std::max<int64_t>(1, s.total - s.warmup));
  const double t = std::min(1.0, static_cast<double>(step - s.warmup) / span);
  if (s.kind == Schedule::cosine) return s.lr * (1 + std::cos(std::numbers::pi * t)) / 2;
  if (s.kind == Schedule::step) return s.lr * std::pow(s.factor, (t >= 0.5) + (t >= 0.75));
  return s.lr;
}

}  // namespace situ::train
