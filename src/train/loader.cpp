#include "train/loader.h"

#include "base/error.h"

namespace situ::train {

Loader::Loader(step::Session& session, data::Batches& batches, uint64_t epoch)
    : session_(session), batches_(batches), prefetch_(data::fill_from(batches, epoch, epoch + 1)) {
  const auto labels = static_cast<size_t>(batches.rows() * batches.places());
  unread_labels_.resize(labels);
  unread_weights_.resize(labels);
  offer();
}

void Loader::offer() {
  ahead_ = &session_.next_batch();
  const size_t labels = unread_labels_.size();
  data::Slot room;
  room.x = static_cast<float*>(ahead_->find("x", static_cast<size_t>(batches_.rows() * batches_.features())));
  room.labels = static_cast<int32_t*>(ahead_->find("labels", labels));
  room.weights = static_cast<float*>(ahead_->find("weight", labels));
  if (!room.labels) room.labels = unread_labels_.data();
  if (!room.weights) room.weights = unread_weights_.data();
  prefetch_.offer(room);
}

bool Loader::next() {
  if (slot_ && slot_->index + 1 == batches_.count()) return false;
  slot_ = prefetch_.acquire();
  SITU_ASSERT(slot_ != nullptr);
  batch_ = ahead_;
  if (slot_->index + 1 == batches_.count()) return true;
  offer();
  SITU_ASSERT(ahead_ != batch_, "this session has one batch, and it must run before it is filled again");
  return true;
}

}  // namespace situ::train
