#include "step/ledger.h"

#include <algorithm>

namespace situ::step {

// Events of one in-order queue: sorted by start; overlaps (a copy beside a kernel) count for what began first.
TimeSplit split(const device::Timeline& timeline, double wall) {
  TimeSplit result;
  result.wall = wall;
  double busy_until = -1e300;
  for (const device::Event& event : timeline.events) {
    const double seconds = std::max(0.0, event.end - std::max(event.start, busy_until));
    busy_until = std::max(busy_until, event.end);
    (event.kind == device::EventKind::kernel ? result.compute : result.movement) += seconds;
  }
  const double idle = std::max(0.0, wall - result.compute - result.movement);
  const double busy_while_blocked = std::min(timeline.blocked, result.compute + result.movement);
  result.wait = std::min(idle, std::max(0.0, timeline.blocked - busy_while_blocked));
  result.launch = idle - result.wait;
  return result;
}

}  // namespace situ::step
