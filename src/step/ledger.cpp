#include "step/ledger.h"

#include <algorithm>

namespace situ::step {
namespace {

// Walks the gaps between events. Host spans are in order, so each gap goes on where the last one stopped.
class Gaps {
 public:
  Gaps(const std::vector<device::HostSpan>& host, TimeSplit& split) : host_(host), split_(split) {}

  // Nothing runs from a to b; what runs next was queued then.
  void add(double a, double b, double queued) {
    if (b <= a) return;
    const double known = std::clamp(queued, a, b);
    split_.launch += b - known;
    double elsewhere = known - a;
    while (next_ < host_.size() && host_[next_].end <= a) ++next_;
    for (size_t i = next_; i < host_.size() && host_[i].start < known; ++i) {
      const double seconds = std::max(0.0, std::min(known, host_[i].end) - std::max(a, host_[i].start));
      (host_[i].kind == device::HostKind::blocked ? split_.wait : split_.launch) += seconds;
      elsewhere -= seconds;
    }
    split_.idle += std::max(0.0, elsewhere);
  }

 private:
  const std::vector<device::HostSpan>& host_;
  TimeSplit& split_;
  size_t next_ = 0;
};

}  // namespace

// Events of one in-order queue; where two overlap, what began first counts.
TimeSplit split(const device::Timeline& timeline, double begin, double end) {
  TimeSplit result;
  result.wall = end - begin;
  Gaps gaps(timeline.host, result);
  double at = begin;
  for (const device::Event& event : timeline.events) {
    gaps.add(at, std::min(event.start, end), event.queued);
    at = std::max(at, std::min(event.start, end));
    const double busy = std::max(0.0, std::min(event.end, end) - at);
    (event.kind == device::EventKind::kernel ? result.compute : result.movement) += busy;
    at += busy;
  }
  gaps.add(at, end, end);
  return result;
}

double kernel_seconds(const device::Timeline& timeline) {
  double seconds = 0, until = -1e300;
  for (const device::Event& event : timeline.events) {
    if (event.kind != device::EventKind::kernel) continue;
    seconds += std::max(0.0, event.end - std::max(event.start, until));
    until = std::max(until, event.end);
  }
  return seconds;
}

}  // namespace situ::step
