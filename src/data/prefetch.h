// prefetch.h -- a thread that fills batches ahead, so that the training loop finds the next one ready.
//
//   rooms in a ring:   acquired <= filled <= offered <= acquired + kRooms     (three counters under one mutex)
//
// The consumer offers memory, in the order it wants it filled: memory of the device itself, if the host may write
// there.
#pragma once
#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "data/batches.h"

namespace situ::data {

struct Slot {
  uint64_t epoch = 0;
  int64_t index = 0;          // of the batch within its epoch
  int64_t valid = 0;          // rows that count
  float* x = nullptr;         // [rows, features]
  int32_t* labels = nullptr;  // [rows, places], as are weights
  float* weights = nullptr;
};

// Fills a slot with the next batch; false if there is none. Runs on the prefetcher's thread alone.
using FillSlot = std::function<bool(Slot&)>;

// Batch after batch, epochs first .. end-1, beginning with batch `index` of the first one. The prefetcher then owns
// the use of batches, which must outlive it.
FillSlot fill_from(Batches& batches, uint64_t first, uint64_t end, int64_t index = 0);

class Prefetch {
 public:
  static constexpr size_t kRooms = 4;

  explicit Prefetch(FillSlot fill);
  ~Prefetch();  // stops after the batch being filled
  Prefetch(const Prefetch&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;

  // Memory for one more batch. It is the thread's until acquire() has given it back, filled.
  void offer(const Slot& room);
  // The next batch, waiting for it if needed; nullptr after the last. Raises what the filling raised, once the batches
  // filled before are consumed. Valid until kRooms more are offered. Something must be on offer.
  const Slot* acquire();

 private:
  void run();
  void finish(std::exception_ptr error);

  FillSlot fill_;
  std::array<Slot, kRooms> slots_;
  std::mutex mutex_;
  std::condition_variable filled_one_, offered_one_;
  size_t offered_ = 0, filled_ = 0, acquired_ = 0;
  bool stop_ = false, done_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace situ::data
