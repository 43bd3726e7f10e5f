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
  on_ = true;
}

device::Timeline Profile::stop() {
  on_ = false;
  device::Timeline timeline;
  timeline.blocked = blocked_;
  timeline.events.reserve(commands_.size());
  for (const Command& command : commands_) {
    const device::Event event{command.kind, command.launch, stamp(cl_, command.event, CL_PROFILING_COMMAND_START),
                              stamp(cl_, command.event, CL_PROFILING_COMMAND_END)};
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
  commands_.push_back({nullptr, kind, launch, times});
  return &commands_.back().event;
}

void Profile::drop_last() {
  if (on_) commands_.pop_back();
}

void Profile::clear() {
  for (const Command& command : commands_)
    if (command.event != nullptr) cl_.clReleaseEvent(command.event);
  commands_.clear();
  blocked_ = 0;
}

}  // namespace situ::opencl
