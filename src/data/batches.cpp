// batches.cpp -- see batches.h.
#include "data/batches.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
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

void measure_targets(const std::vector<float>& targets, Normalisation& result) {
  if (targets.empty()) return;
  const auto count = static_cast<double>(targets.size());
  double sum = 0, squares = 0;
  for (float t : targets) sum += t;
  const double mean = sum / count;
  for (float t : targets) squares += std::pow(t - mean, 2);
  result.target_mean = static_cast<float>(mean);
  if (squares > 0) result.target_std = static_cast<float>(std::sqrt(squares / count));
}

Normalisation series_normalisation(const Dataset& data) {
  const auto channels = static_cast<size_t>(data.channels);
  const double rows = static_cast<double>(data.series.size()) / static_cast<double>(channels);
  Normalisation result;
  for (size_t c = 0; c < channels; ++c) {
    double sum = 0, squares = 0;
    for (size_t i = c; i < data.series.size(); i += channels) sum += data.series[i];
    const double mean = sum / rows;
    for (size_t i = c; i < data.series.size(); i += channels) squares += std::pow(data.series[i] - mean, 2);
    const double deviation = std::sqrt(squares / rows);
    result.mean.push_back(static_cast<float>(mean));
    result.std.push_back(deviation > 0 ? static_cast<float>(deviation) : 1.0f);
  }
  measure_targets(data.targets, result);
  return result;
}

void check_normalisation(const Normalisation& n, size_t channels) {
  if (n.mean.size() != channels || n.std.size() != channels)
    fail("the normalisation has {} means and {} deviations but the data {} channels: give one for each", n.mean.size(),
         n.std.size(), channels);
  for (size_t c = 0; c < channels; ++c)
    if (!std::isfinite(n.mean[c]) || !std::isfinite(n.std[c]) || n.std[c] <= 0)
      fail(
          "the normalisation of channel {} is mean {} and deviation {}: both must be finite, and the deviation "
          "positive",
          c, n.mean[c], n.std[c]);
}

std::vector<float> normalisation_table(const Normalisation& n, size_t channels) {
  std::vector<float> table(256 * channels);
  for (size_t v = 0; v < 256; ++v)
    for (size_t c = 0; c < channels; ++c)
      table[v * channels + c] = static_cast<float>((static_cast<double>(v) / 255 - n.mean[c]) / n.std[c]);
  return table;
}

}  // namespace

Normalisation measure_normalisation(const Dataset& data) {
  if (!data.text.empty()) return {};
  if (!data.series.empty()) return series_normalisation(data);
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

std::vector<float> balanced_weights(const Dataset& data) {
  if (data.labels.empty()) fail("{} has no classes to balance", data.name);
  std::vector<float> weights(static_cast<size_t>(data.classes));
  for (int32_t label : data.labels) ++weights[static_cast<size_t>(label)];
  for (float& w : weights)
    if (w > 0) w = static_cast<float>(data.count) / (static_cast<float>(data.classes) * w);
  return weights;
}

Batches::Batches(const Dataset& data, int64_t rows, const Normalisation& normalisation, Order order, uint64_t seed,
                 std::vector<float> class_weights)
    : data_(&data),
      rows_(rows),
      order_(order),
      seed_(seed),
      class_weights_(std::move(class_weights)),
      target_mean_(normalisation.target_mean),
      target_inverse_(1 / normalisation.target_std) {
  if (!class_weights_.empty() && (data.labels.empty() || class_weights_.size() < static_cast<size_t>(data.classes)))
    fail("{} class weights for {} classes of {}: give one for each", class_weights_.size(),
         data.labels.empty() ? 0 : data.classes, data.name);
  if (rows < 1) fail("a batch of {} images is impossible: ask for 1 or more", rows);
  if (data.count < 1 || data.count > UINT32_MAX) fail("a data set of {} images cannot be used", data.count);
  const auto channels = static_cast<size_t>(data.channels);
  if (data.text.empty()) check_normalisation(normalisation, channels);
  if (!data.series.empty()) {
    mean_ = normalisation.mean;
    for (float std : normalisation.std) inverse_.push_back(1 / std);
  } else if (data.text.empty()) {
    table_ = normalisation_table(normalisation, channels);
  }
  sample_.resize(static_cast<size_t>(data.count));
  start_epoch(0);
}

int64_t Batches::valid(int64_t index) const {
  SITU_ASSERT(index >= 0 && index < count(), "batch {} of {}", index, count());
  return std::min(rows_, data_->count - index * rows_);
}

double Batches::weight(int64_t index) const {
  const int64_t count = valid(index);
  if (class_weights_.empty()) return static_cast<double>(count * places());
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += class_weights_[label_at(index * rows_ + i)];
  return sum;
}

void Batches::start_epoch(uint64_t epoch) {
  std::iota(sample_.begin(), sample_.end(), 0u);
  if (order_ == Order::as_stored) return;
  const uint64_t key = random_key(seed_, epoch);
  for (size_t i = sample_.size() - 1; i > 0; --i) std::swap(sample_[i], sample_[random_below(key, i, i + 1)]);
  if (data_->text.empty()) return;
  const auto spare = static_cast<int64_t>(data_->text.size()) - 1 - data_->count * data_->length;
  shift_ = static_cast<int64_t>(random_below(key, sample_.size(), static_cast<uint64_t>(spare) + 1));
}

// Tokens are written as the 32-bit integers a device reads, whatever the pointer calls them.
void Batches::fill_text(int64_t sample, float* x, int32_t* labels) const {
  const uint8_t* bytes = data_->text.data() + shift_ + sample * data_->length;
  for (int64_t i = 0; i < data_->length; ++i) {
    const int32_t token = bytes[i];
    std::memcpy(x + i, &token, sizeof token);
    labels[i] = bytes[i + 1];
  }
}

void Batches::fill_row(int64_t sample, float* x, int32_t* labels) const {
  if (!data_->text.empty()) return fill_text(sample, x, labels);
  if (data_->targets.empty()) {
    labels[0] = data_->labels[static_cast<size_t>(sample)];
  } else {
    const float target = (data_->targets[static_cast<size_t>(sample)] - target_mean_) * target_inverse_;
    std::memcpy(labels, &target, sizeof target);
  }
  const int64_t channels = data_->channels, count = features();
  if (!data_->series.empty()) {
    const float* values = data_->series.data() + sample * count;
    for (int64_t i = 0; i < count; i += channels)
      for (int64_t c = 0; c < channels; ++c)
        x[i + c] = (values[i + c] - mean_[static_cast<size_t>(c)]) * inverse_[static_cast<size_t>(c)];
    return;
  }
  const uint8_t* bytes = data_->images.data() + sample * count;
  if (channels == 1) {
    for (int64_t i = 0; i < count; ++i) x[i] = table_[bytes[i]];
    return;
  }
  for (int64_t i = 0; i < count; i += channels)
    for (int64_t c = 0; c < channels; ++c) x[i + c] = table_[static_cast<size_t>(bytes[i + c] * channels + c)];
}

void Batches::fill(int64_t index, float* x, int32_t* labels, float* weights) const {
  const int64_t count = valid(index), first = index * rows_, n = features(), p = places();
  const int64_t filled = order_ == Order::shuffled ? rows_ : count;
  for (int64_t row = 0; row < filled; ++row) {
    const int64_t at = row < count ? first + row : (row - count) % data_->count;
    fill_row(sample_[static_cast<size_t>(at)], x + row * n, labels + row * p);
  }
  std::fill(x + filled * n, x + rows_ * n, 0.0f);
  std::fill(labels + filled * p, labels + rows_ * p, 0);
  std::fill(weights, weights + count * p, 1.0f);
  if (!class_weights_.empty())
    for (int64_t row = 0; row < count; ++row) weights[row] = class_weights_[label_at(first + row)];
  std::fill(weights + count * p, weights + rows_ * p, 0.0f);
}

}  // namespace situ::data
