// batches.cpp -- see batches.h.
#include "data/batches.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "data/random.h"

namespace situ::data {
namespace {

using Histogram = std::array<int64_t, 256>;

std::vector<Histogram> histograms(const Dataset& data) {
  const size_t channels = static_cast<size_t>(data.channels);
  std::vector<Histogram> counts(channels, Histogram{});
  for (size_t i = 0; i < data.images.size(); i += channels)
    for (size_t c = 0; c < channels; ++c) ++counts[c][data.images[i + c]];
  return counts;
}

// From counts, not pixel by pixel: 256 exact terms in a fixed order.
double mean_of(const Histogram& counts, double total) {
  double sum = 0;
  for (size_t v = 0; v < 256; ++v) sum += static_cast<double>(counts[v]) * static_cast<double>(v) / 255;
  return sum / total;
}

double deviation_of(const Histogram& counts, double total, double mean) {
  double sum = 0;
  for (size_t v = 0; v < 256; ++v) {
    const double d = static_cast<double>(v) / 255 - mean;
    sum += static_cast<double>(counts[v]) * d * d;
  }
  return std::sqrt(sum / total);
}

std::vector<float> normalisation_table(const Normalisation& n, size_t channels) {
  if (n.mean.size() != channels || n.std.size() != channels)
    fail("the normalisation has {} means and {} deviations but the images {} channels: give one for each",
         n.mean.size(), n.std.size(), channels);
  for (size_t c = 0; c < channels; ++c)
    if (!std::isfinite(n.mean[c]) || !std::isfinite(n.std[c]) || n.std[c] <= 0)
      fail(
          "the normalisation of channel {} is mean {} and deviation {}: both must be finite, and the deviation "
          "positive",
          c, n.mean[c], n.std[c]);
  std::vector<float> table(256 * channels);
  for (size_t v = 0; v < 256; ++v)
    for (size_t c = 0; c < channels; ++c)
      table[v * channels + c] = static_cast<float>((static_cast<double>(v) / 255 - n.mean[c]) / n.std[c]);
  return table;
}

}  // namespace

Normalisation measure_normalisation(const Dataset& data) {
  const double total = static_cast<double>(data.count * data.height * data.width);
  Normalisation result;
  for (const Histogram& counts : histograms(data)) {
    const double mean = mean_of(counts, total), deviation = deviation_of(counts, total, mean);
    const bool constant = std::ranges::count(counts, 0) == 255;
    result.mean.push_back(static_cast<float>(mean));
    result.std.push_back(constant ? 1.0f : static_cast<float>(deviation));
  }
  return result;
}

Batches::Batches(const Dataset& data, int64_t rows, const Normalisation& normalisation, Order order, uint64_t seed)
    : data_(&data), rows_(rows), order_(order), seed_(seed) {
  if (rows < 1) fail("a batch of {} images is impossible: ask for 1 or more", rows);
  if (data.count < 1 || data.count > UINT32_MAX) fail("a data set of {} images cannot be used", data.count);
  table_ = normalisation_table(normalisation, static_cast<size_t>(data.channels));
  image_.resize(static_cast<size_t>(data.count));
  start_epoch(0);
}

int64_t Batches::valid(int64_t index) const {
  SITU_ASSERT(index >= 0 && index < count(), "batch {} of {}", index, count());
  return std::min(rows_, data_->count - index * rows_);
}

void Batches::start_epoch(uint64_t epoch) {
  std::iota(image_.begin(), image_.end(), 0u);
  if (order_ == Order::as_stored) return;
  const uint64_t key = random_key(seed_, epoch);
  for (size_t i = image_.size() - 1; i > 0; --i) std::swap(image_[i], image_[random_below(key, i, i + 1)]);
}

void Batches::fill_row(int64_t image, float* x) const {
  const uint8_t* bytes = data_->images.data() + image * features();
  const int64_t channels = data_->channels, count = features();
  if (channels == 1) {
    for (int64_t i = 0; i < count; ++i) x[i] = table_[bytes[i]];
    return;
  }
  for (int64_t i = 0; i < count; i += channels)
    for (int64_t c = 0; c < channels; ++c) x[i + c] = table_[static_cast<size_t>(bytes[i + c] * channels + c)];
}

void Batches::fill(int64_t index, float* x, int32_t* labels, float* weights) const {
  const int64_t images = valid(index), first = index * rows_;
  for (int64_t row = 0; row < images; ++row) {
    const uint32_t image = image_[static_cast<size_t>(first + row)];
    fill_row(image, x + row * features());
    labels[row] = data_->labels[image];
    weights[row] = 1;
  }
  std::fill(x + images * features(), x + rows_ * features(), 0.0f);
  std::fill(labels + images, labels + rows_, 0);
  std::fill(weights + images, weights + rows_, 0.0f);
}

}  // namespace situ::data
