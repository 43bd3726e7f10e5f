// prefetch.cpp -- see prefetch.h.
#include "data/prefetch.h"

#include <new>
#include <utility>

#include "base/error.h"

namespace situ::data {
namespace {

// Pages: what drivers want of host memory they copy from, or use in place.
constexpr size_t kAlignment = 4096;

size_t padded(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

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

void Prefetch::FreeAligned::operator()(std::byte* memory) const {
  ::operator delete[](memory, std::align_val_t{kAlignment});
}

Prefetch::Prefetch(int64_t rows, int64_t features, int slots, FillSlot fill, int64_t places) : fill_(std::move(fill)) {
  SITU_ASSERT(rows > 0 && features > 0 && slots > 0 && places > 0);
  const size_t row_bytes = padded(static_cast<size_t>(rows * places) * sizeof(float));
  const size_t x_bytes = padded(static_cast<size_t>(rows * features) * sizeof(float));
  const size_t slot_bytes = x_bytes + 2 * row_bytes, count = static_cast<size_t>(slots);
  memory_.reset(new (std::align_val_t{kAlignment}) std::byte[slot_bytes * count]());
  for (size_t i = 0; i < count; ++i) {
    std::byte* at = memory_.get() + i * slot_bytes;
    slots_.push_back({.x = reinterpret_cast<float*>(at),
                      .labels = reinterpret_cast<int32_t*>(at + x_bytes),
                      .weights = reinterpret_cast<float*>(at + x_bytes + row_bytes)});
  }
  thread_ = std::thread([this] { run(); });
}

Prefetch::~Prefetch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  released_one_.notify_one();
  thread_.join();
}

void Prefetch::run() {
  try {
    while (true) {
      {
        std::unique_lock lock(mutex_);
        released_one_.wait(lock, [&] { return stop_ || filled_ - released_ < slots_.size(); });
        if (stop_) return;
      }
      if (!fill_(slots_[filled_ % slots_.size()])) return finish(nullptr);
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

const Slot* Prefetch::acquire() {
  std::unique_lock lock(mutex_);
  SITU_ASSERT(acquired_ - released_ < slots_.size(), "all {} slots are held: release one first", slots_.size());
  filled_one_.wait(lock, [&] { return acquired_ < filled_ || done_; });
  if (acquired_ < filled_) return &slots_[acquired_++ % slots_.size()];
  if (error_) std::rethrow_exception(error_);
  return nullptr;
}

void Prefetch::release() {
  {
    const std::lock_guard lock(mutex_);
    SITU_ASSERT(released_ < acquired_, "no slot is held");
    ++released_;
  }
  released_one_.notify_one();
}

}  // namespace situ::data
