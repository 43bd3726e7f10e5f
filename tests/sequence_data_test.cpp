// sequence_data_test.cpp -- time series and text: reading, cutting, batches, and what strangers' files may hold.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "base/file.h"
#include "data/batches.h"
#include "data/select.h"
#include "data/series.h"
#include "harness.h"

namespace situ::data {
namespace {

const std::string kSeries =
    "# a comment\n@problemName p\n@dimensions 2\n@classLabel true a b\n@data\n1,2,3:10,20,30:b\n4,5,6:40,50,60:a\n";

std::string error_of(const std::string& text) {
  const TemporaryFolder folder;
  write_file_atomic(folder.path() + "/x.ts", text);
  try {
    read_series(folder.path() + "/x.ts");
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(Series, ReadsSensorsAsChannels) {
  const TemporaryFolder folder;
  write_file_atomic(folder.path() + "/p_TRAIN.ts", kSeries);
  write_file_atomic(folder.path() + "/p_TEST.ts", kSeries);
  const DatasetPair pair = load_dataset(folder.path());
  EXPECT_EQ(pair.train.sample(), f32({3, 2}));
  EXPECT_EQ(pair.train.series, (std::vector<float>{1, 10, 2, 20, 3, 30, 4, 40, 5, 50, 6, 60}));
  EXPECT_EQ(pair.train.labels, (std::vector<int32_t>{1, 0}));
  EXPECT_EQ(pair.train.class_names, (std::vector<std::string>{"a", "b"}));
}

TEST(Series, ReadsTargets) {
  const TemporaryFolder folder;
  write_file_atomic(folder.path() + "/x.ts", "@targetLabel true\n@data\n1,2:0.5\n3,4:-2\n5,6:4.5\n");
  const Dataset data = read_series(folder.path() + "/x.ts");
  EXPECT_EQ(data.targets, (std::vector<float>{0.5f, -2, 4.5f}));
  EXPECT_TRUE(data.labels.empty());
  EXPECT_EQ(data.classes, 1);
  const Normalisation n = measure_normalisation(data);
  EXPECT_FLOAT_EQ(n.target_mean, 1);
  EXPECT_FLOAT_EQ(n.target_std, std::sqrt(21.5f / 3));
  EXPECT_NE(error_of("@targetLabel true\n@data\n1,2:a\n").find("line 3: `a` is no number"), std::string::npos);
}

TEST(Series, BadFilesAreNamedWithTheirLine) {
  EXPECT_NE(error_of("@classLabel true a\n@data\n1,x:a\n").find("line 3: `x` is no number"), std::string::npos);
  EXPECT_NE(error_of("@classLabel true a\n@data\n1,nan:a\n").find("is no number"), std::string::npos);
  EXPECT_NE(error_of("@classLabel true a\n@data\n1,2:a\n1:a\n").find("line 4"), std::string::npos);
  EXPECT_NE(error_of("@classLabel true a\n@data\n1,2:b\n").find("class `b`"), std::string::npos);
  EXPECT_NE(error_of("@data\n").find("neither classes nor targets"), std::string::npos);
  EXPECT_NE(error_of("@classLabel true a\n@data\n").find("holds no samples"), std::string::npos);
  EXPECT_NE(error_of("@classLabel true a\n@data\n:\n").find("line 3"), std::string::npos);
}

TEST(Series, BatchesAreNormalisedPerChannel) {
  Dataset data;
  data.count = 2;
  data.height = 2;
  data.width = data.classes = 1;
  data.channels = 2;
  data.series = {0, 5, 2, 5, 4, 5, 6, 5};
  data.labels = {0, 0};
  const Normalisation n = measure_normalisation(data);
  EXPECT_EQ(n.mean, (std::vector<float>{3, 5}));
  EXPECT_FLOAT_EQ(n.std[0], std::sqrt(5.0f));
  EXPECT_EQ(n.std[1], 1);  // constant
  Batches batches(data, 2, n);
  std::vector<float> x(8), weights(2);
  std::vector<int32_t> labels(2);
  batches.fill(0, x.data(), labels.data(), weights.data());
  EXPECT_FLOAT_EQ(x[0], -3 / std::sqrt(5.0f));
  EXPECT_FLOAT_EQ(x[6], 3 / std::sqrt(5.0f));
  EXPECT_EQ(x[1], 0);
}

Dataset text_of(const std::string& bytes, int64_t length) {
  Dataset data;
  data.name = "text";
  data.classes = 256;
  data.text.assign(bytes.begin(), bytes.end());
  data.set_length(length);
  return data;
}

TEST(TextData, EveryByteIsFollowedByItsLabel) {
  const Dataset data = text_of("abcdefgh", 3);
  EXPECT_EQ(data.count, 2);
  EXPECT_EQ(data.sample(), i32({3}));
  Batches batches(data, 3, {});
  std::vector<float> x(9), weights(9);
  std::vector<int32_t> labels(9), tokens(9);
  batches.fill(0, x.data(), labels.data(), weights.data());
  std::memcpy(tokens.data(), x.data(), 36);
  EXPECT_EQ(tokens, (std::vector<int32_t>{'a', 'b', 'c', 'd', 'e', 'f', 0, 0, 0}));
  EXPECT_EQ(labels, (std::vector<int32_t>{'b', 'c', 'd', 'e', 'f', 'g', 0, 0, 0}));
  EXPECT_EQ(weights, (std::vector<float>{1, 1, 1, 1, 1, 1, 0, 0, 0}));
}

TEST(TextData, AShuffledTextIsCutElsewhereEachEpochAndStaysInside) {
  std::string bytes;
  for (int i = 0; i < 50; ++i) bytes += static_cast<char>(i);
  const Dataset data = text_of(bytes, 16);  // 3 samples, one byte to spare
  Batches batches(data, 3, {}, Order::shuffled, 7);
  std::set<int32_t> starts;
  for (uint64_t epoch = 0; epoch < 20; ++epoch) {
    batches.start_epoch(epoch);
    std::vector<float> x(48), weights(48);
    std::vector<int32_t> labels(48), tokens(48);
    batches.fill(0, x.data(), labels.data(), weights.data());
    std::memcpy(tokens.data(), x.data(), 192);
    for (size_t i = 0; i < 48; ++i) EXPECT_EQ(labels[i], tokens[i] + 1);
    starts.insert(*std::min_element(tokens.begin(), tokens.end()));
  }
  EXPECT_EQ(starts, (std::set<int32_t>{0, 1}));
}

TEST(TextData, TooShortForOneSample) {
  EXPECT_THROW(text_of("abc", 3), Error);
  EXPECT_NO_THROW(text_of("abcd", 3));
}

// Statistics over a batch should see real samples, and the loss must not.
TEST(Batches, MissingRowsOfAShuffledBatchRepeatSamplesAtWeightZero) {
  Dataset data;
  data.count = 3;
  data.height = data.width = data.channels = 1;
  data.classes = 3;
  data.images = {10, 20, 30};
  data.labels = {0, 1, 2};
  Batches batches(data, 2, {{0}, {1}}, Order::shuffled, 1);
  std::vector<float> x(2), weights(2);
  std::vector<int32_t> labels(2);
  batches.fill(1, x.data(), labels.data(), weights.data());
  EXPECT_EQ(weights, (std::vector<float>{1, 0}));
  EXPECT_GT(x[1], 0);
  EXPECT_NE(labels[1], labels[0]);
}

TEST(Select, ClassesAndTheFirstOfEach) {
  Dataset data;
  data.count = 6;
  data.height = data.width = 1;
  data.channels = 2;
  data.classes = 3;
  data.images = {1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6};
  data.labels = {0, 1, 2, 1, 1, 2};
  const Dataset part = select(data, parse_classes("1-2", 3), 2);
  EXPECT_EQ(part.labels, (std::vector<int32_t>{1, 2, 1, 2}));
  EXPECT_EQ(part.images, (std::vector<uint8_t>{2, 2, 3, 3, 4, 4, 6, 6}));
  EXPECT_EQ(part.count, 4);
  EXPECT_EQ(select(data, {}, 0).images, data.images);
  EXPECT_EQ(parse_classes("2,0", 3), (std::vector<int>{2, 0}));
  EXPECT_THROW(parse_classes("1-3", 3), Error);
  EXPECT_THROW(parse_classes("x", 3), Error);
}

}  // namespace
}  // namespace situ::data
