// advice.cpp -- what bounds a launch and what to try: sentences from the numbers of one profile.
#include "prof/profile.h"

namespace situ::prof {
namespace {

constexpr double kNear = 0.7;    // of a roof: little is left to win
constexpr double kMuch = 0.1;    // of a step
constexpr double kFaster = 1.5;  // a smaller working set is worth it

std::string size_text(double bytes) {
  return bytes < (1 << 20) ? fmt::format("{:.0f} KiB", bytes / (1 << 10))
                           : fmt::format("{:.1f} MiB", bytes / (1 << 20));
}

// The largest measured working set below this one whose bandwidth is clearly higher; none: 0.
int64_t faster_set(const device::Roofline& roofline, double bytes) {
  int64_t found = 0;
  const double here = roofline.bandwidth(static_cast<int64_t>(bytes));
  for (const device::Roofline::Level& level : roofline.levels)
    if (static_cast<double>(level.bytes) < bytes && level.bandwidth > kFaster * here) found = level.bytes;
  return found;
}

std::string tune_hint(const Profile& p) {
  return p.tuned ? "it is tuned already, so a shape that fills the kernel's tiles (channels a multiple of 16) is what "
                   "is left"
                 : "`situ tune` measures other ways to run it";
}

}  // namespace

std::string advice(const Profile& p, const LaunchRow& row) {
  const step::Ledger::Launch& launch = p.measured.ledger.list[static_cast<size_t>(row.index)];
  const std::string reached = fmt::format("{:.0f}%", 100 * row.reached());
  switch (row.bound) {
    case Bound::launch:
      return "too small for the device: a larger --batch does more per launch";
    case Bound::arithmetic:
      if (row.reached() >= kNear)
        return fmt::format(
            "at {} of the peak only fewer operations help: a narrower layer, or --train for fewer of them", reached);
      return fmt::format("{} of the peak: {}", reached, tune_hint(p));
    case Bound::memory:
      break;
  }
  if (row.reached() < kNear)
    return fmt::format("{} of the bandwidth at its {}: {}", reached, size_text(launch.bytes), tune_hint(p));
  std::string text = fmt::format("its {} move as fast as memory allows", size_text(launch.bytes));
  if (!p.halves) text += "; --precision fp16 stores activations in half of them (OpenCL)";
  if (const int64_t set = faster_set(p.roofline, launch.bytes))
    text += fmt::format("; with a batch that keeps it below {} memory is {:.1f} times as fast",
                        size_text(static_cast<double>(set)),
                        p.roofline.bandwidth(set) / p.roofline.bandwidth(static_cast<int64_t>(launch.bytes)));
  return text;
}

std::vector<std::string> advice(const Profile& p) {
  std::vector<std::string> list;
  const step::TimeSplit& s = p.measured.split;
  const auto much = [&](double part) { return part > kMuch * s.wall; };
  const auto percent = [&](double part) { return 100 * part / s.wall; };
  const bool resident = p.measured.residency == "resident";
  if (much(s.movement))
    list.push_back(fmt::format("{:.0f}% of the step is movement: {}", percent(s.movement),
                               resident ? "a device that maps its memory (submit.map 1) needs no copy"
                                        : "--residency resident keeps every tensor on the device"));
  if (much(s.launch))
    list.push_back(fmt::format("{:.0f}% of the step is launches ({} of them): {}", percent(s.launch),
                               p.measured.counted.launches,
                               resident ? "a larger --batch, or recorded submission (submit.record, docs/tuning.md)"
                                        : "--residency resident queues them without stopping"));
  if (much(s.wait) && p.measured.counted.waits > 0)  // otherwise it is the measurement's own
    list.push_back(fmt::format("{:.0f}% of the step is waiting ({} waits): {}", percent(s.wait),
                               p.measured.counted.waits,
                               resident ? "read the loss less often" : "--residency resident never waits"));
  if (much(s.idle))
    list.push_back(fmt::format("{:.0f}% of the step the device is idle, while the host makes the next batch: {}",
                               percent(s.idle), "a larger --batch, or data that costs less to prepare"));
  return list;
}

}  // namespace situ::prof
