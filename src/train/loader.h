// loader.h -- an epoch's batches, filled by a thread straight into the memory the session's next runs read.
//
// While steps n-1 and n run, the thread fills batch n+1: its memory is asked for before step n is queued.
#pragma once
#include "data/batches.h"
#include "data/prefetch.h"
#include "step/session.h"

namespace situ::train {

class Loader {
 public:
  // All batches of this epoch, as inputs `x`, `labels` and `weight`; the last two where the session has them. Both
  // arguments outlive the loader, which alone uses the batches.
  Loader(step::Session& session, data::Batches& batches, uint64_t epoch = 0);

  // The next batch, filled, to be run before next() is called again; false after the last.
  bool next();
  const data::Slot& slot() const { return *slot_; }
  step::Batch& batch() { return *batch_; }

 private:
  void offer();

  step::Session& session_;
  const data::Batches& batches_;
  std::vector<int32_t> unread_labels_;  // take what no input of the session holds
  std::vector<float> unread_weights_;
  step::Batch *batch_ = nullptr, *ahead_ = nullptr;
  const data::Slot* slot_ = nullptr;
  data::Prefetch prefetch_;  // last: its thread writes into the above
};

}  // namespace situ::train
