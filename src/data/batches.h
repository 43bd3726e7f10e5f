// batches.h -- batches of fixed size from a data set: order, normalisation, padding.
//
//   order(seed, epoch): Fisher-Yates from the identity, for i = n-1 .. 1: swap order[i], order[j],
//                       j = random_below(random_key(seed, epoch), i, i + 1)                      (data/random.h)
//   x = (byte / 255 - mean[c]) / std[c], looked up in a table of 256 values per channel
//
// An epoch's order depends on seed and epoch alone, so a run can resume anywhere. Rows missing in the last batch weigh
// 0: shapes stay static and the loss ignores them. They hold the epoch's first samples again, which is what statistics
// over the batch should see, or zeros where the order is that of the file. A shuffled text is cut elsewhere each epoch.
#pragma once
#include <cstdint>
#include <vector>

#include "data/dataset.h"

namespace situ::data {

struct Normalisation {
  std::vector<float> mean, std;           // per channel, of byte / 255
  float target_mean = 0, target_std = 1;  // of targets: a network learns (target - mean) / std
};

// Weights of the classes that make all of them count alike: count / (classes * count of the class).
std::vector<float> balanced_weights(const Dataset& data);

// Mean and standard deviation of each channel over all samples; std is 1 where a channel is constant. None for text.
Normalisation measure_normalisation(const Dataset& data);

enum class Order { shuffled, as_stored };

class Batches {
 public:
  // data must outlive the batches. Starts in epoch 0.
  Batches(const Dataset& data, int64_t rows, const Normalisation& normalisation, Order order = Order::as_stored,
          uint64_t seed = 0, std::vector<float> class_weights = {});

  int64_t count() const { return (data_->count + rows_ - 1) / rows_; }  // batches in an epoch
  int64_t rows() const { return rows_; }                                // of every batch, padding included
  int64_t features() const { return data_->features(); }                // values in a row
  int64_t places() const { return data_->places(); }                    // labels and weights of a row
  int64_t valid(int64_t index) const;                                   // rows of batch `index` that count
  double weight(int64_t index) const;                                   // the sum of its weights

  // Puts the images into the order of this epoch. Allocates nothing.
  void start_epoch(uint64_t epoch);

  // x [rows, features] (tokens as int32 in the same memory), labels (targets as float in the same memory) and weights
  // (1 or the class's, 0 for padding) [rows, places]. Allocates nothing; const, so that several threads may fill
  // different batches of one epoch.
  void fill(int64_t index, float* x, int32_t* labels, float* weights) const;

 private:
  size_t label_at(int64_t place) const {
    return static_cast<size_t>(data_->labels[sample_[static_cast<size_t>(place)]]);
  }
  void fill_row(int64_t sample, float* x, int32_t* labels) const;
  void fill_text(int64_t sample, float* x, int32_t* labels) const;

  const Dataset* data_;
  int64_t rows_;
  Order order_;
  uint64_t seed_;
  std::vector<float> table_;           // [256, channels]
  std::vector<float> mean_, inverse_;  // of a series' channels
  std::vector<uint32_t> sample_;       // the sample at each place of the epoch
  std::vector<float> class_weights_;   // empty: 1
  float target_mean_ = 0, target_inverse_ = 1;
  int64_t shift_ = 0;  // where an epoch's samples of a text begin
};

}  // namespace situ::data
