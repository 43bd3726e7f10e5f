// prefetch.cpp -- see prefetch.h.
#include "data/prefetch.h"

#include <utility>

#include "base/error.h"

namespace situ::data {
FillSlot fill_from(Batches& batches, uint64_t first, uint64_t end, int64_t index) {
  SITU_ASSERT(index >= 0 && index < batches.count());
  bool started = false;
  return [&batches, epoch = first, end, index, started](Slot& slot) mutable {
    if (index == batches.count()) {
      index = 0;
      ++epoch;
      started = false;
    }
    if (epoch >= end) return false;
    if (!std::exchange(started, true)) batches.start_epoch(epoch);
    slot.epoch = epoch;
    slot.index = index;
    slot.valid = batches.valid(index);
    batches.fill(index, slot.x, slot.labels, slot.weights);
    ++index;
    return true;
  };
}

Prefetch::Prefetch(FillSlot fill) : fill_(std::move(fill)), thread_([this] { run(); }) {}

Prefetch::~Prefetch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  offered_one_.notify_one();
  thread_.join();
}

void Prefetch::run() {
  try {
    while (true) {
      {
        std::unique_lock lock(mutex_);
        offered_one_.wait(lock, [&] { return stop_ || filled_ < offered_; });
        if (stop_) return;
      }
      if (!fill_(slots_[filled_ % kRooms])) return finish(nullptr);
      {
        const std::lock_guard lock(mutex_);
        ++filled_;
      }
      filled_one_.notify_one();
    }
  } catch (...) {
    finish(std::current_exception());
  }
}

void Prefetch::finish(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
    done_ = true;
  }
  filled_one_.notify_one();
}

void Prefetch::offer(const Slot& room) {
  {
    const std::lock_guard lock(mutex_);
    SITU_ASSERT(offered_ - acquired_ < kRooms, "{} rooms are on offer: acquire one first", kRooms);
    slots_[offered_++ % kRooms] = room;
  }
  offered_one_.notify_one();
}

const Slot* Prefetch::acquire() {
  std::unique_lock lock(mutex_);
  SITU_ASSERT(acquired_ < offered_ || done_, "no room is on offer");
  filled_one_.wait(lock, [&] { return acquired_ < filled_ || done_; });
  if (acquired_ < filled_) return &slots_[acquired_++ % kRooms];
  if (error_) std::rethrow_exception(error_);
  return nullptr;
}

}  // namespace situ::data
