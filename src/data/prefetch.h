// prefetch.h -- a thread that fills batches ahead, so that the training loop finds the next one ready.
//
//   slots in a ring:   released <= acquired <= filled <= released + slots     (three counters under one mutex)
//
// All memory is taken at the start. A slot stays the consumer's until it releases it, so an upload may still be reading
// one batch while the next is acquired.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "data/batches.h"

namespace situ::data {

struct Slot {
  uint64_t epoch = 0;
  int64_t index = 0;  // of the batch within its epoch
  int64_t valid = 0;  // rows that count
  float* x = nullptr;
  int32_t* labels = nullptr;
  float* weights = nullptr;
};

// Fills a slot with the next batch; false if there is none. Runs on the prefetcher's thread alone.
using FillSlot = std::function<bool(Slot&)>;

// Batch after batch, epochs first .. end-1, beginning with batch `index` of the first one. The prefetcher then owns
// the use of batches, which must outlive it.
FillSlot fill_from(Batches& batches, uint64_t first, uint64_t end, int64_t index = 0);

class Prefetch {
 public:
  // Room for rows x features values, and rows x places labels and weights, in each slot.
  Prefetch(int64_t rows, int64_t features, int slots, FillSlot fill, int64_t places = 1);
  ~Prefetch();  // stops after the batch being filled
  Prefetch(const Prefetch&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;

  // The next batch, waiting for it if needed; nullptr after the last. Raises what the filling raised, once the batches
  // filled before are consumed. At most `slots` may be held.
  const Slot* acquire();
  // Gives back the oldest slot held.
  void release();

 private:
  struct FreeAligned {
    void operator()(std::byte* memory) const;
  };

  void run();
  void finish(std::exception_ptr error);

  FillSlot fill_;
  std::vector<Slot> slots_;
  std::unique_ptr<std::byte[], FreeAligned> memory_;
  std::mutex mutex_;
  std::condition_variable filled_one_, released_one_;
  size_t filled_ = 0, acquired_ = 0, released_ = 0;
  bool stop_ = false, done_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace situ::data
