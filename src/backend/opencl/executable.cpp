// executable.cpp -- queueing: one clEnqueueNDRangeKernel per launch and nothing else. No allocation, no wait.
#include "backend/opencl/executable.h"

#include "base/error.h"

namespace situ::opencl {

namespace {
constexpr int64_t kFlushEvery = 16;  // keeps a GPU busy while the rest of the step is still being queued
}

LaunchList::LaunchList(Runtime& run, BoundLaunches bound)
    : run_(run),
      bound_(std::move(bound)),
      flush_every_(static_cast<int>(run.target.tuning.get("submit.flush", kFlushEvery))) {
  if (run.target.tuning.get("submit.record", 0) == 1 && !bound_.launches.empty()) record();
}

void LaunchList::record() {
  std::vector<RecordedLaunch> launches;
  for (const BoundLaunch& launch : bound_.launches)
    launches.push_back({launch.kernel.get(), launch.dims, launch.global.data(), launch.local_or_null()});
  std::string refusal;
  recording_ = Recording::make(run_, launches, refusal);
  if (!recording_) run_.add_note(refusal);
}

void LaunchList::enqueue() {
  // A profile wants one event per launch, which a recording does not give.
  if (recording_ && !run_.profile.on() && recording_->replay(run_.queue)) {
    run_.counters.launches += launches();
    return;
  }
  enqueue(0, launches());
}

void LaunchList::enqueue(int first, int count) {
  SITU_ASSERT(first >= 0 && count >= 0 && first + count <= launches(), "launches {} to {} of {}", first, first + count,
              launches());
  for (int i = 0; i < count; ++i) {
    enqueue_one(first + i);
    if (flush_every_ > 0 && (i + 1) % flush_every_ == 0) check("clFlush", run_.cl.clFlush(run_.queue));
  }
}

void LaunchList::enqueue_one(int index) {
  const BoundLaunch& launch = bound_.launches[static_cast<size_t>(index)];
  cl_event* event = run_.profile.event(device::EventKind::kernel, index);
  const cl_int code = run_.cl.clEnqueueNDRangeKernel(run_.queue, launch.kernel.get(), launch.dims, nullptr,
                                                     launch.global.data(), launch.local_or_null(), 0, nullptr, event);
  if (code != CL_SUCCESS) {
    run_.profile.drop_last();
    fail_call(fmt::format("clEnqueueNDRangeKernel of launch {}", index), code);
  }
  ++run_.counters.launches;
}

}  // namespace situ::opencl
