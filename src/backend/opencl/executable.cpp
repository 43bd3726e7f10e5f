// executable.cpp -- queueing: one clEnqueueNDRangeKernel per launch, a flush now and then, and nothing else. No
// allocation, no wait.
#include "backend/opencl/executable.h"

#include "base/error.h"

namespace situ::opencl {

LaunchList::LaunchList(Runtime& run, BoundLaunches bound, std::vector<double> seconds)
    : run_(run), bound_(std::move(bound)), seconds_(std::make_shared<std::vector<double>>(std::move(seconds))) {
  if (run.submission.recorder != Recorder::none && !bound_.launches.empty())
    for (int feed = 0; feed < feeds() && record(feed); ++feed) {
    }
}

int LaunchList::feeds() const {
  size_t most = 1;
  for (const BoundLaunch& launch : bound_.launches) most = std::max(most, launch.kernels.size());
  return static_cast<int>(most);
}

// A recording runs as a whole, so what must not be submitted at once is recorded in pieces.
bool LaunchList::record(int feed) {
  std::vector<Piece>& pieces = pieces_.emplace_back();
  const double longest = run_.submission.longest;
  for (int first = 0; first < launches();) {
    Piece piece{first, 0, 0, {}};
    std::vector<RecordedLaunch> recorded;
    for (int i = first; i < launches(); ++i) {
      const double seconds = (*seconds_)[static_cast<size_t>(i)];
      if (longest > 0 && piece.count > 0 && piece.seconds + seconds > longest) break;
      const BoundLaunch& launch = bound_.launches[static_cast<size_t>(i)];
      recorded.push_back({launch.kernel(feed), launch.dims, launch.global.data(), launch.local_or_null()});
      piece.seconds += seconds;
      ++piece.count;
    }
    std::string refusal;
    auto recording = Recording::make(run_, run_.submission.recorder, recorded, refusal);
    if (!recording) {
      pieces_.clear();
      run_.add_note(refusal);
      return false;
    }
    piece.recording = std::move(*recording);
    first += piece.count;
    pieces.push_back(std::move(piece));
  }
  return true;
}

void LaunchList::enqueue(int feed) {
  // A profile wants one event per launch, which a recording does not give.
  if (pieces_.empty() || run_.profile.on()) return enqueue_part(0, launches(), feed);
  for (Piece& piece : pieces_[pieces_.size() > 1 ? static_cast<size_t>(feed) : 0]) {
    make_room(piece.seconds);
    if (piece.recording.replay(run_.queue)) {
      run_.counters.launches += piece.count;
      run_.unflushed += piece.seconds;
    } else {
      enqueue_part(piece.first, piece.count, feed);
    }
  }
}

void LaunchList::enqueue(int first, int count) { enqueue_part(first, count, 0); }

void LaunchList::enqueue_part(int first, int count, int feed) {
  SITU_ASSERT(first >= 0 && count >= 0 && first + count <= launches(), "launches {} to {} of {}", first, first + count,
              launches());
  const int flush_every = run_.submission.flush_every;
  const Queueing queueing(run_.profile);
  for (int i = 0; i < count; ++i) {
    const double seconds = (*seconds_)[static_cast<size_t>(first + i)];
    make_room(seconds);
    enqueue_one(first + i, feed);
    run_.unflushed += seconds;
    if (flush_every > 0 && (i + 1) % flush_every == 0) run_.flush();
  }
}

// Submits what is queued if this much more would make it too long.
void LaunchList::make_room(double seconds) {
  const double longest = run_.submission.longest;
  if (longest > 0 && run_.unflushed > 0 && run_.unflushed + seconds > longest) run_.flush();
}

void LaunchList::enqueue_one(int index, int feed) {
  const BoundLaunch& launch = bound_.launches[static_cast<size_t>(index)];
  cl_event* event = run_.profile.event(device::EventKind::kernel, index, seconds_);
  const cl_int code = run_.cl.clEnqueueNDRangeKernel(run_.queue, launch.kernel(feed), launch.dims, nullptr,
                                                     launch.global.data(), launch.local_or_null(), 0, nullptr, event);
  if (code != CL_SUCCESS) {
    run_.profile.drop_last();
    fail_call(fmt::format("clEnqueueNDRangeKernel of launch {}", index), code);
  }
  ++run_.counters.launches;
}

}  // namespace situ::opencl
