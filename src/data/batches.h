// batches.h -- batches of fixed size from a data set: order, normalisation, padding.
//
//   order(seed, epoch): Fisher-Yates from the identity, for i = n-1 .. 1: swap order[i], order[j],
//                       j = random_below(random_key(seed, epoch), i, i + 1)                      (data/random.h)
//   x = (byte / 255 - mean[c]) / std[c], looked up in a table of 256 values per channel
//
// An epoch's order depends on seed and epoch alone, so a run can resume anywhere. Rows missing in the last batch are
// zeros with weight 0 and label 0: shapes stay static and the loss ignores them.
#pragma once
#include <cstdint>
#include <vector>

#include "data/dataset.h"

namespace situ::data {

struct Normalisation {
  std::vector<float> mean, std;  // per channel, of byte / 255
};

// Mean and standard deviation over all pixels of each channel; std is 1 where a channel is constant.
Normalisation measure_normalisation(const Dataset& data);

enum class Order { shuffled, as_stored };

class Batches {
 public:
  // data must outlive the batches. Starts in epoch 0.
  Batches(const Dataset& data, int64_t rows, const Normalisation& normalisation, Order order = Order::as_stored,
          uint64_t seed = 0);

  int64_t count() const { return (data_->count + rows_ - 1) / rows_; }  // batches in an epoch
  int64_t rows() const { return rows_; }                                // of every batch, padding included
  int64_t features() const { return data_->features(); }                // values in a row
  int64_t valid(int64_t index) const;                                   // rows of batch `index` that are images

  // Puts the images into the order of this epoch. Allocates nothing.
  void start_epoch(uint64_t epoch);

  // x [rows, height, width, channels], labels [rows], weights [rows] (1 or 0). Allocates nothing; const, so that
  // several threads may fill different batches of one epoch.
  void fill(int64_t index, float* x, int32_t* labels, float* weights) const;

 private:
  void fill_row(int64_t image, float* x) const;

  const Dataset* data_;
  int64_t rows_;
  Order order_;
  uint64_t seed_;
  std::vector<float> table_;     // [256, channels]
  std::vector<uint32_t> image_;  // the image at each place of the epoch
};

}  // namespace situ::data
