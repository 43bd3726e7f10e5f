// profile.cpp -- reading the device's time stamps.
#include "backend/opencl/profile.h"

#include <algorithm>

#include "backend/opencl/check.h"

namespace situ::opencl {
namespace {

double stamp(const Api& cl, cl_event event, cl_profiling_info what) {
  cl_ulong nanoseconds = 0;
  check("clGetEventProfilingInfo", cl.clGetEventProfilingInfo(event, what, sizeof(nanoseconds), &nanoseconds, nullptr));
  return static_cast<double>(nanoseconds) * 1e-9;
}

}  // namespace

void Profile::start() {
  clear();
  commands_.reserve(1 << 14);  // growing later is allowed, but would show as launch time
  host_.reserve(1 << 12);
  on_ = true;
}

// From the host's clock to the device's. A command is queued inside its call, so the earliest one behind its call's
// begin is nearest. Drivers that give no time of queueing: the last command ended before the queue was empty.
double Profile::clock_offset(double drained) const {
  double nearest = 1e300, last = 0;
  for (const Command& command : commands_) {
    const double queued = stamp(cl_, command.event, CL_PROFILING_COMMAND_QUEUED);
    const bool known = queued > 0 && queued <= stamp(cl_, command.event, CL_PROFILING_COMMAND_START);
    nearest = std::min(nearest, known ? queued - command.called : -1e300);
    last = std::max(last, stamp(cl_, command.event, CL_PROFILING_COMMAND_END));
  }
  return nearest > -1e300 ? nearest : last - drained;
}

device::Timeline Profile::stop() {
  const double drained = now(), offset = clock_offset(drained);
  on_ = false;
  device::Timeline timeline;
  timeline.host = std::move(host_);
  timeline.events.reserve(commands_.size());
  for (const Command& command : commands_) {
    const device::Event event{command.kind, command.launch,
                              stamp(cl_, command.event, CL_PROFILING_COMMAND_START) - offset,
                              stamp(cl_, command.event, CL_PROFILING_COMMAND_END) - offset, command.called};
    if (command.times) (*command.times)[static_cast<size_t>(event.launch)] = event.end - event.start;
    timeline.events.push_back(event);
  }
  std::stable_sort(timeline.events.begin(), timeline.events.end(),
                   [](const device::Event& a, const device::Event& b) { return a.start < b.start; });
  clear();
  return timeline;
}

cl_event* Profile::event(device::EventKind kind, int launch, const LaunchTimes& times) {
  if (!on_) return nullptr;
  commands_.push_back({nullptr, kind, launch, times, now()});
  return &commands_.back().event;
}

void Profile::drop_last() {
  if (on_) commands_.pop_back();
}

void Profile::clear() {
  for (const Command& command : commands_)
    if (command.event != nullptr) cl_.clReleaseEvent(command.event);
  commands_.clear();
  host_.clear();
}

}  // namespace situ::opencl
