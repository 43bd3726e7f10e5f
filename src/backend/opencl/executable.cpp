// executable.cpp -- queueing: one clEnqueueNDRangeKernel per launch, a flush now and then, and nothing else. No
// allocation, no wait.
#include "backend/opencl/executable.h"

#include "base/error.h"

namespace situ::opencl {

LaunchList::LaunchList(Runtime& run, BoundLaunches bound, std::vector<double> seconds)
    : run_(run), bound_(std::move(bound)), seconds_(std::make_shared<std::vector<double>>(std::move(seconds))) {
  if (run.submission.recorder != Recorder::none && !bound_.launches.empty()) record();
}

// A recording runs as a whole, so what must not be submitted at once is recorded in pieces.
void LaunchList::record() {
  const double longest = run_.submission.longest;
  for (int first = 0; first < launches();) {
    Piece piece{first, 0, 0, {}};
    std::vector<RecordedLaunch> recorded;
    for (int i = first; i < launches(); ++i) {
      const double seconds = (*seconds_)[static_cast<size_t>(i)];
      if (longest > 0 && piece.count > 0 && piece.seconds + seconds > longest) break;
      const BoundLaunch& launch = bound_.launches[static_cast<size_t>(i)];
      recorded.push_back({launch.kernel.get(), launch.dims, launch.global.data(), launch.local_or_null()});
      piece.seconds += seconds;
      ++piece.count;
    }
    std::string refusal;
    auto recording = Recording::make(run_, run_.submission.recorder, recorded, refusal);
    if (!recording) {
      pieces_.clear();
      return run_.add_note(refusal);
    }
    piece.recording = std::move(*recording);
    first += piece.count;
    pieces_.push_back(std::move(piece));
  }
}

void LaunchList::enqueue() {
  // A profile wants one event per launch, which a recording does not give.
  if (pieces_.empty() || run_.profile.on()) return enqueue(0, launches());
  for (Piece& piece : pieces_) {
    make_room(piece.seconds);
    if (piece.recording.replay(run_.queue)) {
      run_.counters.launches += piece.count;
      run_.unflushed += piece.seconds;
    } else {
      enqueue(piece.first, piece.count);
    }
  }
}

void LaunchList::enqueue(int first, int count) {
  SITU_ASSERT(first >= 0 && count >= 0 && first + count <= launches(), "launches {} to {} of {}", first, first + count,
              launches());
  const int flush_every = run_.submission.flush_every;
  for (int i = 0; i < count; ++i) {
    const double seconds = (*seconds_)[static_cast<size_t>(first + i)];
    make_room(seconds);
    enqueue_one(first + i);
    run_.unflushed += seconds;
    if (flush_every > 0 && (i + 1) % flush_every == 0) run_.flush();
  }
}

// Submits what is queued if this much more would make it too long.
void LaunchList::make_room(double seconds) {
  const double longest = run_.submission.longest;
  if (longest > 0 && run_.unflushed > 0 && run_.unflushed + seconds > longest) run_.flush();
}

void LaunchList::enqueue_one(int index) {
  const BoundLaunch& launch = bound_.launches[static_cast<size_t>(index)];
  cl_event* event = run_.profile.event(device::EventKind::kernel, index, seconds_);
  const cl_int code = run_.cl.clEnqueueNDRangeKernel(run_.queue, launch.kernel.get(), launch.dims, nullptr,
                                                     launch.global.data(), launch.local_or_null(), 0, nullptr, event);
  if (code != CL_SUCCESS) {
    run_.profile.drop_last();
    fail_call(fmt::format("clEnqueueNDRangeKernel of launch {}", index), code);
  }
  ++run_.counters.launches;
}

}  // namespace situ::opencl
