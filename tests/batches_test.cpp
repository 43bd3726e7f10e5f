// batches_test.cpp -- batches and the prefetcher: order, padding, normalisation, who waits for whom.
#include "data/batches.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <numeric>
#include <set>
#include <thread>

#include "alloc_count.h"
#include "base/error.h"
#include "data/dataset.h"
#include "data/prefetch.h"
#include "data/random.h"
#include "harness.h"

namespace situ::data {
namespace {

using test::expect_error;

// ---- batches

Dataset numbered(int64_t count, int64_t channels = 1) {
  Dataset data{.name = "numbered", .count = count, .height = 2, .width = 2, .channels = channels, .classes = 1000};
  for (int64_t i = 0; i < count; ++i) {
    data.labels.push_back(static_cast<int32_t>(i));
    for (int64_t k = 0; k < 4 * channels; ++k) data.images.push_back(static_cast<uint8_t>(i * 5 + k));
  }
  return data;
}

Normalisation identity(size_t channels = 1) {
  return {std::vector<float>(channels, 0.0f), std::vector<float>(channels, 1.0f)};
}

struct Filled {
  std::vector<float> x, weights;
  std::vector<int32_t> labels;
  bool operator==(const Filled&) const = default;
};

Filled fill(const Batches& batches, int64_t index) {
  const size_t rows = static_cast<size_t>(batches.rows()), features = static_cast<size_t>(batches.features());
  Filled f{std::vector<float>(rows * features, -7), std::vector<float>(rows, -7), std::vector<int32_t>(rows, -7)};
  batches.fill(index, f.x.data(), f.labels.data(), f.weights.data());
  return f;
}

std::vector<int32_t> epoch_labels(Batches& batches, uint64_t epoch) {
  batches.start_epoch(epoch);
  std::vector<int32_t> all;
  for (int64_t i = 0; i < batches.count(); ++i) {
    const Filled f = fill(batches, i);
    all.insert(all.end(), f.labels.begin(), f.labels.begin() + batches.valid(i));
  }
  return all;
}

TEST(Batches, PartialBatchIsPadded) {
  const Dataset data = numbered(10);
  const Batches batches(data, 4, identity());
  EXPECT_EQ(batches.count(), 3);
  EXPECT_EQ(batches.valid(0), 4);
  EXPECT_EQ(batches.valid(2), 2);
  const Filled last = fill(batches, 2);
  EXPECT_EQ(last.labels, (std::vector<int32_t>{8, 9, 0, 0}));
  EXPECT_EQ(last.weights, (std::vector<float>{1, 1, 0, 0}));
  EXPECT_EQ(last.x[4], 45 / 255.0f);
  for (size_t i = 8; i < 16; ++i) EXPECT_EQ(last.x[i], 0.0f);
  EXPECT_EQ(fill(batches, 0).weights, std::vector<float>(4, 1.0f));
  EXPECT_THROW(batches.valid(3), Error);
  EXPECT_THROW(batches.valid(-1), Error);
}

TEST(Batches, BatchLargerThanTheData) {
  const Dataset data = numbered(3);
  const Batches batches(data, 8, identity());
  EXPECT_EQ(batches.count(), 1);
  EXPECT_EQ(fill(batches, 0).labels, (std::vector<int32_t>{0, 1, 2, 0, 0, 0, 0, 0}));
}

TEST(Batches, StoredOrderIsKept) {
  const Dataset data = numbered(10);
  Batches batches(data, 3, identity());
  std::vector<int32_t> expected(10);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(epoch_labels(batches, 0), expected);
  EXPECT_EQ(epoch_labels(batches, 5), expected);
}

TEST(Batches, ShuffleIsAPermutationOfSeedAndEpoch) {
  const Dataset data = numbered(101);
  Batches a(data, 8, identity(), Order::shuffled, 1), b(data, 8, identity(), Order::shuffled, 1),
      other(data, 8, identity(), Order::shuffled, 2);
  const std::vector<int32_t> first = epoch_labels(a, 0), second = epoch_labels(a, 1);
  EXPECT_EQ(std::set<int32_t>(first.begin(), first.end()).size(), 101u);
  EXPECT_EQ(std::set<int32_t>(second.begin(), second.end()).size(), 101u);
  EXPECT_NE(first, data.labels);
  EXPECT_NE(first, second);
  EXPECT_NE(first, epoch_labels(other, 0));
  EXPECT_EQ(epoch_labels(b, 1), second);  // whatever came before
  EXPECT_EQ(epoch_labels(a, 0), first);
}

TEST(Batches, ShuffleIsTheDocumentedOne) {
  EXPECT_EQ(random_bits(0, 0), 0xE220A8397B1DCDAFu);  // first outputs of SplitMix64 with seed 0
  EXPECT_EQ(random_bits(0, 1), 0x6E789E6AA1B965F4u);
  std::vector<int32_t> order = {0, 1, 2, 3, 4, 5, 6, 7};
  for (uint64_t i = 7; i > 0; --i) std::swap(order[i], order[random_below(random_key(3, 2), i, i + 1)]);
  const Dataset data = numbered(8);
  Batches batches(data, 8, identity(), Order::shuffled, 3);
  EXPECT_EQ(epoch_labels(batches, 2), order);
  EXPECT_EQ(order, (std::vector<int32_t>{1, 4, 5, 7, 0, 2, 6, 3}));
}

TEST(Batches, ShuffleIsUniform) {
  const Dataset data = numbered(6);
  Batches batches(data, 6, identity(), Order::shuffled, 9);
  std::vector<int> counts(36);
  for (uint64_t epoch = 0; epoch < 6000; ++epoch) {
    const std::vector<int32_t> order = epoch_labels(batches, epoch);
    for (size_t i = 0; i < 6; ++i) ++counts[i * 6 + static_cast<size_t>(order[i])];
  }
  for (int count : counts) EXPECT_NEAR(count, 1000, 150);  // five standard deviations
}

TEST(Batches, RowsKeepImageAndLabelTogether) {
  const Dataset data = numbered(50);
  Batches batches(data, 50, identity(), Order::shuffled, 4);
  batches.start_epoch(3);
  const Filled f = fill(batches, 0);
  for (size_t row = 0; row < 50; ++row)
    EXPECT_EQ(f.x[row * 4 + 3], static_cast<uint8_t>(f.labels[row] * 5 + 3) / 255.0f);
}

TEST(Batches, NormalisationIsMeasuredPerChannel) {
  Dataset data{.name = "n", .count = 2, .height = 1, .width = 2, .channels = 2, .classes = 2};
  data.labels = {0, 1};
  data.images = {0, 51, 255, 51, 0, 51, 255, 51};  // channel 0: 0, 1, 0, 1; channel 1: constant 0.2
  const Normalisation n = measure_normalisation(data);
  EXPECT_EQ(n.mean, (std::vector<float>{0.5f, 0.2f}));
  EXPECT_EQ(n.std, (std::vector<float>{0.5f, 1.0f}));
  const Filled f = fill(Batches(data, 2, n), 0);
  for (size_t i = 0; i < 8; i += 4) {
    EXPECT_EQ(f.x[i], -1.0f);
    EXPECT_EQ(f.x[i + 2], 1.0f);
    EXPECT_NEAR(f.x[i + 1], 0, 1e-7);
  }
}

TEST(Batches, GivenNormalisationIsApplied) {
  const Dataset data = numbered(3, 3);
  const Filled f = fill(Batches(data, 3, {{0.1f, 0.2f, 0.3f}, {0.5f, 0.25f, 2.0f}}), 0);
  for (size_t i = 0; i < f.x.size(); ++i) {
    const double mean[] = {0.1, 0.2, 0.3}, deviation[] = {0.5, 0.25, 2.0};
    EXPECT_NEAR(f.x[i], (data.images[i] / 255.0 - mean[i % 3]) / deviation[i % 3], 1e-6);
  }
}

TEST(Batches, BadArguments) {
  const Dataset data = numbered(3), none{};
  expect_error([&] { Batches(data, 0, identity()); }, "a batch of 0 images is impossible");
  expect_error([&] { Batches(data, -5, identity()); }, "impossible");
  expect_error([&] { Batches(none, 1, identity()); }, "0 images");
  expect_error([&] { Batches(data, 1, identity(3)); }, "3 means and 3 deviations but the data 1 channels");
  expect_error([&] { Batches(data, 1, {{0}, {0}}); }, "deviation positive");
  expect_error([&] { Batches(data, 1, {{NAN}, {1}}); }, "must be finite");
}

// ---- prefetch

// As many rooms as a test wants, offered one after the other.
struct Rooms {
  Rooms(size_t count, size_t rows, size_t features) : all(count) {
    for (Filled& f : all) f = {std::vector<float>(rows * features), std::vector<float>(rows), std::vector<int>(rows)};
  }
  Slot next() {
    Filled& f = all[used++ % all.size()];
    return {.x = f.x.data(), .labels = f.labels.data(), .weights = f.weights.data()};
  }
  std::vector<Filled> all;
  size_t used = 0;
};

TEST(Prefetch, GivesTheSameBatchesAsFillingDirectly) {
  const Dataset data = numbered(23);
  for (size_t ahead_by : {1, 2, 4}) {
    Batches ahead(data, 4, identity(), Order::shuffled, 6), direct(data, 4, identity(), Order::shuffled, 6);
    Rooms rooms(ahead_by, 4, 4);
    Prefetch prefetch(fill_from(ahead, 2, 5, 3));
    for (size_t i = 0; i < ahead_by; ++i) prefetch.offer(rooms.next());
    for (uint64_t epoch = 2; epoch < 5; ++epoch) {
      direct.start_epoch(epoch);
      for (int64_t i = epoch == 2 ? 3 : 0; i < direct.count(); ++i) {
        const Slot* slot = prefetch.acquire();
        ASSERT_NE(slot, nullptr);
        EXPECT_EQ(slot->epoch, epoch);
        EXPECT_EQ(slot->index, i);
        EXPECT_EQ(slot->valid, direct.valid(i));
        const Filled f{{slot->x, slot->x + 16}, {slot->weights, slot->weights + 4}, {slot->labels, slot->labels + 4}};
        EXPECT_EQ(f, fill(direct, i)) << ahead_by << " " << epoch << " " << i;
        prefetch.offer(rooms.next());
      }
    }
    EXPECT_EQ(prefetch.acquire(), nullptr);
    EXPECT_EQ(prefetch.acquire(), nullptr);
  }
}

TEST(Prefetch, FillsWhatIsOfferedAndNothingElse) {
  const Dataset data = numbered(40);
  Batches batches(data, 1, identity());
  Rooms rooms(7, 1, 4);
  Prefetch prefetch(fill_from(batches, 0, 1));
  EXPECT_THROW(prefetch.acquire(), Error) << "nothing is on offer";
  for (int i = 0; i < 3; ++i) prefetch.offer(rooms.next());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(prefetch.acquire()->labels[0], i);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  for (size_t i = 0; i < 7; ++i) EXPECT_EQ(rooms.all[i].labels[0], i < 3 ? static_cast<int>(i) : 0);
  EXPECT_THROW(prefetch.acquire(), Error);
  for (size_t i = 0; i < Prefetch::kRooms; ++i) prefetch.offer(rooms.next());
  EXPECT_THROW(prefetch.offer(rooms.next()), Error) << "more than there is room for";
  for (int i = 3; i < 7; ++i) EXPECT_EQ(prefetch.acquire()->labels[0], i);
}

TEST(Prefetch, ErrorsReachTheConsumerAfterTheBatchesBefore) {
  int calls = 0;
  Prefetch prefetch([&](Slot& slot) {
    if (calls == 2) fail("the third batch is broken");
    slot.index = calls++;
    return true;
  });
  for (int i = 0; i < 4; ++i) prefetch.offer({});
  for (int i = 0; i < 2; ++i) EXPECT_EQ(prefetch.acquire()->index, i);
  expect_error([&] { prefetch.acquire(); }, "the third batch is broken");
  expect_error([&] { prefetch.acquire(); }, "the third batch is broken");
}

TEST(Prefetch, StopsCleanlyAtAnyTime) {
  const Dataset data = numbered(64);
  for (int taken = 0; taken < 20; ++taken) {
    Batches batches(data, 4, identity(), Order::shuffled, 1);
    Rooms rooms(3, 4, 4);
    Prefetch prefetch(fill_from(batches, 0, 1000));
    for (int i = 0; i < 3; ++i) prefetch.offer(rooms.next());
    for (int i = 0; i < taken; ++i) {
      ASSERT_NE(prefetch.acquire(), nullptr);
      prefetch.offer(rooms.next());
    }
  }
}

TEST(Prefetch, NothingIsAllocatedOnceStarted) {
  if (!test::can_count_allocations()) GTEST_SKIP() << "the sanitizer has its own allocator";
  const Dataset data = numbered(50, 3);
  Batches direct(data, 8, identity(3), Order::shuffled, 1), ahead(data, 8, identity(3), Order::shuffled, 1);
  Filled f = fill(direct, 0);
  Slot own{.x = f.x.data(), .labels = f.labels.data(), .weights = f.weights.data()};
  const FillSlot next = fill_from(direct, 0, 3);
  Rooms rooms(2, 8, 12);
  Prefetch prefetch(fill_from(ahead, 0, 3));
  const test::CountAllocations counted;
  while (next(own)) {
  }
  prefetch.offer(rooms.next());
  while (prefetch.acquire()) prefetch.offer(rooms.next());
  EXPECT_EQ(counted.count(), 0) << counted.first();
}

}  // namespace
}  // namespace situ::data
