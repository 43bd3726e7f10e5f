// schedule.h -- the learning rate of each step.
//
//   constant   lr
//   step       lr * factor^(number of milestones passed): at 1/2 and 3/4 of the run by default
//   cosine     lr * (1 + cos(pi t)) / 2, t from 0 to 1 after the warm-up
//   linear     lr * (1 - t)
//   one-cycle  half a cosine from lr / 25 up to lr over 3/10 of the run, another down to lr / 25e4 (PyTorch's
//   OneCycleLR)
// A warm-up of w steps rises linearly: lr * (step + 1) / w; the schedule takes up the steps after it.
#pragma once
#include <cstdint>
#include <string_view>

namespace situ::train {

struct Schedule {
  enum Kind { constant, step, cosine, linear, one_cycle } kind = cosine;
  double lr = 0.05;
  int64_t total = 1;    // steps of the whole run
  int64_t warmup = 0;   // steps
  double factor = 0.1;  // of `step`
};

Schedule::Kind parse_schedule(std::string_view name);
std::string_view name_of(Schedule::Kind kind);
double rate_at(const Schedule& schedule, int64_t step);

}  // namespace situ::train
