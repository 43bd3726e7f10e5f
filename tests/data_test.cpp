// data_test.cpp -- IDX files and data sets, on files made here.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "data/batches.h"
#include "data/dataset.h"
#include "data/idx.h"
#include "data/random.h"
#include "harness.h"

namespace situ::data {
namespace {

using test::expect_error;

// Without syncing to disk: some tests write hundreds of files.
void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    ::setenv(name, value.c_str(), 1);
  }
  ~Environment() { ::setenv(name_, old_.c_str(), 1); }

 private:
  const char* name_;
  std::string old_;
};

std::string gzip(const std::string& bytes) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, bytes.size()) + 32, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string idx(const std::vector<uint32_t>& shape, const std::string& data, char type = 8) {
  std::string out = {'\0', '\0', type, static_cast<char>(shape.size())};
  for (uint32_t extent : shape)
    for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(extent >> shift);
  return out + data;
}

std::string noise(size_t count, uint64_t seed) {
  std::string bytes;
  for (size_t i = 0; i < count; ++i) bytes += static_cast<char>(random_bits(seed, i));
  return bytes;
}

// ---- IDX

TEST(IdxFile, PlainAndCompressed) {
  const TemporaryFolder folder;
  const std::string data = noise(5 * 4 * 3, 1);
  write_bytes(folder.file("a"), idx({5, 4, 3}, data));
  write_bytes(folder.file("b"), gzip(idx({5, 4, 3}, data)));
  for (const char* name : {"a", "b"}) {
    const Idx read = read_idx(folder.file(name));
    EXPECT_EQ(read.shape, (std::vector<int64_t>{5, 4, 3}));
    EXPECT_EQ(std::string(read.data.begin(), read.data.end()), data);
  }
}

void expect_bad_idx(const std::string& bytes, const std::string& part) {
  const TemporaryFolder folder;
  write_bytes(folder.file("bad.idx"), bytes);
  expect_error([&] { read_idx(folder.file("bad.idx")); }, part);
  expect_error([&] { read_idx(folder.file("bad.idx")); }, "bad.idx");
}

TEST(IdxFile, WrongMagicAndType) {
  expect_bad_idx("\x89PNG....", "is no IDX file");
  expect_bad_idx(std::string("\0\1\x08\1\0\0\0\0", 8), "is no IDX file");
  expect_bad_idx(std::string("\0\0\x08\0", 4), "is no IDX file");
  expect_bad_idx(idx({1}, "1234", 0x0D), "IDX type 0x0d");
  expect_bad_idx(gzip("not an idx file"), "is no IDX file");
}

TEST(IdxFile, SizesThatDoNotMatch) {
  expect_bad_idx("", "truncated");
  expect_bad_idx(idx({4}, "123"), "truncated");
  expect_bad_idx(idx({4}, "12345"), "more data than its header says");
  expect_bad_idx(idx({4, 4}, "").substr(0, 9), "truncated");
  expect_bad_idx(gzip(idx({4}, "123")), "truncated");
  expect_bad_idx(gzip(idx({4}, "12345")), "more data than its header says");
}

TEST(IdxFile, SizesThatOverflow) {
  expect_bad_idx(idx({0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, "1"), "claims the size");
  expect_bad_idx(idx({0x80000000, 2}, "1"), "claims the size");
  expect_bad_idx(idx({0x10000, 0x10000, 0x10000, 0x10000}, "1"), "claims the size");  // 2^64: wraps to 0
}

TEST(IdxFile, AFewBytesCannotTakeMuchMemory) {
  rusage before{}, after{};
  ::getrusage(RUSAGE_SELF, &before);
  expect_bad_idx(gzip(idx({0x20000000}, "1")), "truncated");  // 512 MiB: allowed, but far beyond what deflate can hold
  ::getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 64 << 10);
}

TEST(IdxFile, EveryTruncationOfACompressedFileIsSeen) {
  const TemporaryFolder folder;
  const std::string whole = gzip(idx({300}, noise(300, 2)));
  for (size_t n = 0; n < whole.size(); ++n) {
    write_bytes(folder.file("cut.gz"), whole.substr(0, n));
    EXPECT_THROW(read_idx(folder.file("cut.gz")), Error) << n;
  }
  write_bytes(folder.file("cut.gz"), whole.substr(0, whole.size() - 1));
  expect_error([&] { read_idx(folder.file("cut.gz")); }, "cut.gz' is truncated: get the file again");
}

TEST(IdxFile, GarbageAndDamage) {
  const std::string whole = gzip(idx({300}, noise(300, 3)));
  expect_bad_idx(whole + "x", "1 bytes of garbage");
  expect_bad_idx(whole + whole, "bytes of garbage");
  std::string damaged = whole;
  damaged[150] = static_cast<char>(damaged[150] ^ 1);
  expect_bad_idx(damaged, "is damaged");
  damaged = whole;
  damaged[whole.size() - 6] = static_cast<char>(damaged[whole.size() - 6] ^ 1);  // in the checksum
  expect_bad_idx(damaged, "is damaged");
  expect_error([] { read_idx("/nowhere/a.gz"); }, "does not exist");
}

// ---- data sets

struct Half {
  uint32_t images = 6, labels = 6, height = 4, width = 3;
  std::string label_bytes = std::string("\0\1\2\3\4\x09", 6);
};

void write_half(const TemporaryFolder& folder, const std::string& name, const Half& h, bool compressed) {
  const std::string images = idx({h.images, h.height, h.width}, noise(h.images * h.height * h.width, 4));
  const std::string labels = idx({h.labels}, h.label_bytes);
  const std::string ending = compressed ? ".gz" : "";
  write_bytes(folder.file(name + "-images-idx3-ubyte" + ending), compressed ? gzip(images) : images);
  write_bytes(folder.file(name + "-labels-idx1-ubyte" + ending), compressed ? gzip(labels) : labels);
}

TEST(DatasetFolder, IdxFiles) {
  for (bool compressed : {false, true}) {
    const TemporaryFolder folder;
    write_half(folder, "train", {}, compressed);
    write_half(folder, "t10k", {.images = 2, .labels = 2, .label_bytes = "\7\1"}, compressed);
    const DatasetPair pair = load_dataset(folder.path());
    EXPECT_EQ(pair.train.name, folder.path());
    EXPECT_EQ(pair.train.count, 6);
    EXPECT_EQ(pair.train.height, 4);
    EXPECT_EQ(pair.train.width, 3);
    EXPECT_EQ(pair.train.channels, 1);
    EXPECT_EQ(pair.train.classes, 10);
    EXPECT_EQ(pair.train.labels, (std::vector<int32_t>{0, 1, 2, 3, 4, 9}));
    EXPECT_EQ(pair.test.labels, (std::vector<int32_t>{7, 1}));
    const std::string images = noise(6 * 12, 4);
    EXPECT_EQ(std::string(pair.train.images.begin(), pair.train.images.end()), images);
  }
}

void expect_bad_folder(const Half& train, const Half& test, const std::string& part) {
  const TemporaryFolder folder;
  write_half(folder, "train", train, false);
  write_half(folder, "t10k", test, false);
  expect_error([&] { load_dataset(folder.path()); }, part);
}

TEST(DatasetFolder, WhatDoesNotBelongTogether) {
  expect_bad_folder({.labels = 5, .label_bytes = "\1\1\1\1\1"}, {}, "holds 6 images but");
  expect_bad_folder({.label_bytes = std::string("\0\1\x0a\3\4\5", 6)}, {},
                    "has the label 10 at index 2, outside 0 to 9");
  expect_bad_folder({}, {.label_bytes = std::string("\0\1\1\3\4\xFF", 6)}, "has the label 255 at index 5");
  expect_bad_folder({}, {.height = 5}, "training images of 4x3 and test images of 5x3");
  expect_bad_folder({.images = 0, .labels = 0, .label_bytes = ""}, {}, "holds no samples");
}

TEST(DatasetFolder, WrongRanksAndMissingFiles) {
  const TemporaryFolder folder;
  expect_error([&] { load_dataset(folder.path()); },
               "holds neither train-images-idx3-ubyte[.gz], data_batch_1.bin nor NAME_TRAIN.ts");
  write_half(folder, "train", {}, false);
  expect_error([&] { load_dataset(folder.path()); }, "holds neither t10k-images-idx3-ubyte nor");
  write_bytes(folder.file("train-images-idx3-ubyte"), idx({6}, "123456"));
  expect_error([&] { load_dataset(folder.path()); }, "has rank 1 and images have 3");
  write_half(folder, "train", {}, false);
  write_bytes(folder.file("train-labels-idx1-ubyte"), idx({3, 2}, "123456"));
  expect_error([&] { load_dataset(folder.path()); }, "has rank 2 and labels have 1");
}

TEST(DatasetName, FashionMnistComesFromTheEnvironmentFirst) {
  const TemporaryFolder folder;
  write_half(folder, "train", {}, false);
  write_half(folder, "t10k", {}, false);
  const Environment data("SITU_DATA", folder.path());
  const DatasetPair pair = load_dataset("fashion-mnist");
  EXPECT_EQ(pair.train.count, 6);
  EXPECT_EQ(pair.train.name, "fashion-mnist");
}

TEST(DatasetName, NamesAreFoldersOfTheEnvironment) {
  const TemporaryFolder folder;
  const Environment data("SITU_DATA", std::filesystem::path(folder.path()).parent_path().string());
  write_half(folder, "train", {}, false);
  write_half(folder, "t10k", {}, false);
  EXPECT_EQ(load_dataset(std::filesystem::path(folder.path()).filename().string()).train.count, 6);
}

TEST(DatasetName, MissingDataNamesThePackage) {
  const Environment data("SITU_DATA", "");
  expect_error([] { load_dataset("no-such-data"); }, "apt-get install dataset-fashion-mnist");
  expect_error([] { load_dataset(""); }, "has no name");
}

TEST(DatasetName, TheInstalledFashionMnist) {
  const Environment data("SITU_DATA", "");
  if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist")) {
    expect_error([] { load_dataset("fashion-mnist"); }, "apt-get install dataset-fashion-mnist");
    GTEST_SKIP() << "dataset-fashion-mnist is not installed";
  }
  const DatasetPair pair = load_dataset("fashion-mnist");
  EXPECT_EQ(pair.train.count, 60000);
  EXPECT_EQ(pair.test.count, 10000);
  EXPECT_EQ(pair.train.features(), 784);
  std::vector<int> per_class(10);
  for (int32_t label : pair.test.labels) ++per_class[static_cast<size_t>(label)];
  EXPECT_EQ(per_class, std::vector<int>(10, 1000));
  const Normalisation n = measure_normalisation(pair.train);  // the values everyone quotes
  EXPECT_NEAR(n.mean[0], 0.2860, 5e-5);
  EXPECT_NEAR(n.std[0], 0.3530, 5e-5);
}

std::string cifar_file(int records, int first_label) {
  std::string bytes;
  for (int r = 0; r < records; ++r) {
    bytes += static_cast<char>(first_label + r);
    for (int c = 0; c < 3; ++c)
      for (int pixel = 0; pixel < 1024; ++pixel) bytes += static_cast<char>(pixel + 64 * c + r);
  }
  return bytes;
}

void write_cifar(const TemporaryFolder& folder) {
  for (int i = 1; i <= 5; ++i) write_bytes(folder.file("data_batch_" + std::to_string(i) + ".bin"), cifar_file(2, i));
  write_bytes(folder.file("test_batch.bin"), cifar_file(3, 7));
}

TEST(DatasetFolder, Cifar10) {
  const TemporaryFolder folder;
  write_cifar(folder);
  const DatasetPair pair = load_dataset(folder.path());
  EXPECT_EQ(pair.train.count, 10);
  EXPECT_EQ(pair.test.count, 3);
  EXPECT_EQ(pair.train.features(), 3072);
  EXPECT_EQ(pair.train.labels, (std::vector<int32_t>{1, 2, 2, 3, 3, 4, 4, 5, 5, 6}));
  for (size_t record : {0u, 1u, 9u})
    for (size_t pixel : {0u, 5u, 1023u})
      for (size_t c : {0u, 1u, 2u})
        EXPECT_EQ(pair.train.images[record * 3072 + pixel * 3 + c], static_cast<uint8_t>(pixel + 64 * c + record % 2));
}

TEST(DatasetFolder, Cifar10Rejections) {
  const TemporaryFolder folder;
  write_cifar(folder);
  write_bytes(folder.file("data_batch_3.bin"), cifar_file(2, 3).substr(1));
  expect_error([&] { load_dataset(folder.path()); }, "data_batch_3.bin' is 6145 bytes long, not a multiple of 3073");
  write_bytes(folder.file("data_batch_3.bin"), cifar_file(2, 9));
  expect_error([&] { load_dataset(folder.path()); }, "has the label 10 at index 5");
  std::filesystem::remove(folder.file("data_batch_3.bin"));
  expect_error([&] { load_dataset(folder.path()); }, "data_batch_3.bin' does not exist");
  write_cifar(folder);
  write_bytes(folder.file("test_batch.bin"), "");
  expect_error([&] { load_dataset(folder.path()); }, "test_batch.bin' is 0 bytes long");
}

TEST(Synthetic, ShapesAndDefaults) {
  const DatasetPair plain = load_dataset("synthetic");
  EXPECT_EQ(plain.train.count, 4096);
  EXPECT_EQ(plain.test.count, 1024);
  EXPECT_EQ(plain.train.features(), 784);
  EXPECT_EQ(plain.train.classes, 10);
  const DatasetPair given = load_dataset("synthetic:5x6x3:4:9");
  EXPECT_EQ(given.train.height, 5);
  EXPECT_EQ(given.train.width, 6);
  EXPECT_EQ(given.train.channels, 3);
  EXPECT_EQ(given.train.labels, (std::vector<int32_t>{0, 1, 2, 3, 0, 1, 2, 3, 0}));
  EXPECT_EQ(given.test.count, 3);
  EXPECT_EQ(load_dataset("synthetic:5x6x3:4:9").train.images, given.train.images);
  EXPECT_NE(std::vector(given.train.images.begin(), given.train.images.begin() + 90),
            std::vector(given.test.images.begin(), given.test.images.begin() + 90));
}

TEST(Synthetic, SameBytesOnEveryMachine) {
  const Dataset data = load_dataset("synthetic:3x3x1:2:1").train;
  EXPECT_EQ(data.images, (std::vector<uint8_t>{140, 133, 208, 116, 94, 135, 54, 126, 163}));
}

// The nearest class mean, learned from the training half, recognises the test half.
TEST(Synthetic, IsLearnable) {
  const DatasetPair pair = load_dataset("synthetic:14x14x1:10:400");
  const size_t features = 196;
  std::vector<std::vector<double>> mean(10, std::vector<double>(features));
  for (size_t i = 0; i < 400; ++i)
    for (size_t k = 0; k < features; ++k) mean[i % 10][k] += pair.train.images[i * features + k] / 40.0;
  int right = 0;
  for (size_t i = 0; i < 100; ++i) {
    std::vector<double> distance(10);
    for (size_t c = 0; c < 10; ++c)
      for (size_t k = 0; k < features; ++k) distance[c] += std::pow(pair.test.images[i * features + k] - mean[c][k], 2);
    right += std::ranges::min_element(distance) - distance.begin() == pair.test.labels[i];
  }
  EXPECT_GE(right, 95);
}

TEST(Synthetic, BadSpecs) {
  for (const char* spec : {"synthetic:", "synthetic:28", "synthetic:28x28", "synthetic:28x28x", "synthetic:0x28x1",
                           "synthetic:28x28x1:", "synthetic:28x28x1:0", "synthetic:28x28x1:10:",
                           "synthetic:28x28x1:10:0", "synthetic:28x28x1:10:5:6", "synthetic:-1x2x3", "synthetic:axbxc",
                           "synthetic:28x28x1x2", "synthetic:28x28x1:99999999999999999999", "synthetic:28x28x1:10 "})
    expect_error([&] { load_dataset(spec); }, "write synthetic[:HxWxC[:classes[:count]]]");
  expect_error([] { load_dataset("synthetic:100000x100000x100000:10:100000"); }, "ask for fewer images");
}

}  // namespace
}  // namespace situ::data
