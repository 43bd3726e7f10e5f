// dataset.cpp -- finds the files a spec means, and reads the two formats.
#include "data/dataset.h"

#include <array>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "data/idx.h"
#include "data/series.h"

namespace situ::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDebianFolder = "/usr/share/datasets/fashion-mnist";
constexpr int kClasses = 10;  // of MNIST, Fashion-MNIST and CIFAR-10 alike

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// The file or its compressed form, with a dash or a dot before idx; empty if none is there.
std::string plain_or_gz(const std::string& folder, const std::string& name) {
  std::string dotted = name;
  if (const size_t at = name.find("-idx"); at != std::string::npos) dotted[at] = '.';
  for (const std::string& spelled : {name, dotted})
    for (const char* ending : {"", ".gz"})
      if (const fs::path path = fs::path(folder) / (spelled + ending); is_there(path)) return path.string();
  return {};
}

std::string require_idx(const std::string& folder, const std::string& name) {
  const std::string path = plain_or_gz(folder, name);
  if (path.empty()) fail("'{}' holds neither {} nor {}.gz: put MNIST's four files there", folder, name, name);
  return path;
}

Dataset load_idx_half(const std::string& folder, const std::string& half) {
  const std::string image_path = require_idx(folder, half + "-images-idx3-ubyte");
  const std::string label_path = require_idx(folder, half + "-labels-idx1-ubyte");
  Idx images = read_idx(image_path);
  const Idx labels = read_idx(label_path);
  if (images.shape.size() != 3) fail("'{}' has rank {} and images have 3", image_path, images.shape.size());
  if (labels.shape.size() != 1) fail("'{}' has rank {} and labels have 1", label_path, labels.shape.size());
  if (images.shape[0] != labels.shape[0])
    fail("'{}' holds {} images but '{}' {} labels: they do not belong together", image_path, images.shape[0],
         label_path, labels.shape[0]);
  Dataset data{.name = folder,
               .count = images.shape[0],
               .height = images.shape[1],
               .width = images.shape[2],
               .channels = 1,
               .classes = kClasses,
               .images = std::move(images.data),
               .labels = {labels.data.begin(), labels.data.end()}};
  check_dataset(data, label_path);
  return data;
}

void check_same_size(const DatasetPair& pair, const std::string& folder) {
  const Dataset &a = pair.train, &b = pair.test;
  if (a.height != b.height || a.width != b.width)
    fail("'{}' has training images of {}x{} and test images of {}x{}: they do not belong together", folder, a.height,
         a.width, b.height, b.width);
}

// One CIFAR-10 record: a label, then three planes of 32x32, turned into NHWC.
constexpr size_t kPlane = 32 * 32, kRecord = 1 + 3 * kPlane;

void append_cifar_record(Dataset& data, const uint8_t* record) {
  data.labels.push_back(record[0]);
  for (size_t pixel = 0; pixel < kPlane; ++pixel)
    for (size_t c = 0; c < 3; ++c) data.images.push_back(record[1 + c * kPlane + pixel]);
}

void append_cifar_file(Dataset& data, const std::string& path) {
  const std::string bytes = read_file(path, uint64_t{1} << 31);
  if (bytes.empty() || bytes.size() % kRecord != 0)
    fail("'{}' is {} bytes long, not a multiple of {}: it is truncated or not CIFAR-10's binary version", path,
         bytes.size(), kRecord);
  data.images.reserve(data.images.size() + bytes.size());
  for (size_t at = 0; at < bytes.size(); at += kRecord)
    append_cifar_record(data, reinterpret_cast<const uint8_t*>(bytes.data()) + at);
  data.count = static_cast<int64_t>(data.labels.size());
  check_dataset(data, path);
}

Dataset empty_cifar() {
  Dataset data;
  data.name = "cifar-10";
  data.height = data.width = 32;
  data.channels = 3;
  data.classes = kClasses;
  return data;
}

std::string data_root() {
  const char* root = std::getenv("SITU_DATA");
  return root ? root : "";
}

DatasetPair load_folder(const std::string& folder) {
  if (!plain_or_gz(folder, "train-images-idx3-ubyte").empty()) return load_idx_folder(folder);
  if (is_there(fs::path(folder) / "data_batch_1.bin")) return load_cifar10_folder(folder);
  if (has_series(folder)) return load_series_folder(folder);
  fail(
      "'{}' holds neither train-images-idx3-ubyte[.gz], data_batch_1.bin nor NAME_TRAIN.ts: put MNIST's, CIFAR-10's or "
      "a time series' files there",
      folder);
}

DatasetPair load_fashion_mnist() {
  const std::string root = data_root();
  const std::array<std::string, 3> places = {root.empty() ? "" : root + "/fashion-mnist", root, kDebianFolder};
  for (const std::string& place : places)
    if (!place.empty() && !plain_or_gz(place, "train-images-idx3-ubyte").empty()) return load_idx_folder(place);
  fail(
      "Fashion-MNIST is not in {}{}: run `apt-get install dataset-fashion-mnist` as root, or set SITU_DATA to a folder"
      " that holds its four files",
      root.empty() ? "" : "'" + root + "' nor in ", kDebianFolder);
}

DatasetPair find_and_load(const std::string& spec) {
  if (spec == "synthetic" || spec.starts_with("synthetic:")) return make_synthetic(spec);
  if (spec == "fashion-mnist") return load_fashion_mnist();
  if (spec.empty()) fail("the data set has no name: use fashion-mnist, synthetic or a folder");
  if (is_folder(spec)) return load_folder(spec);
  if (spec.ends_with(".txt")) return load_text(spec);
  const std::string root = data_root();
  if (!root.empty() && is_folder(root + "/" + spec)) return load_folder(root + "/" + spec);
  fail(
      "there is no data set '{}': use fashion-mnist (`apt-get install dataset-fashion-mnist`), "
      "synthetic[:HxWxC[:classes"
      "[:count]]] or a folder with MNIST's or CIFAR-10's files",
      spec);
}

}  // namespace

Type Dataset::sample() const {
  if (!text.empty()) return i32({length});
  if (shape.rank() > 0) return f32(shape);
  return series.empty() ? f32({height, width, channels}) : f32({height, channels});
}

void Dataset::set_length(int64_t bytes) {
  length = bytes;
  count = (static_cast<int64_t>(text.size()) - 1) / bytes;  // the last byte of a sample has a successor
  if (count < 1)
    fail("'{}' holds {} bytes, less than one sample of {} and the byte after it", name, text.size(), bytes);
}

void check_dataset(const Dataset& d, const std::string& origin) {
  if (d.count <= 0 || d.features() <= 0) fail("'{}' holds no samples: name another data set", origin);
  SITU_ASSERT(static_cast<int64_t>(d.images.size() + d.series.size()) == d.count * d.features());
  SITU_ASSERT(static_cast<int64_t>(d.labels.size() + d.targets.size()) == d.count);
  for (size_t i = 0; i < d.labels.size(); ++i)
    if (d.labels[i] < 0 || d.labels[i] >= d.classes)
      fail("'{}' has the label {} at index {}, outside 0 to {}: correct the file", origin, d.labels[i], i,
           d.classes - 1);
}

DatasetPair load_idx_folder(const std::string& folder) {
  DatasetPair pair{load_idx_half(folder, "train"), load_idx_half(folder, "t10k")};
  check_same_size(pair, folder);
  return pair;
}

DatasetPair load_cifar10_folder(const std::string& folder) {
  DatasetPair pair{empty_cifar(), empty_cifar()};
  for (int i = 1; i <= 5; ++i) append_cifar_file(pair.train, fmt::format("{}/data_batch_{}.bin", folder, i));
  append_cifar_file(pair.test, folder + "/test_batch.bin");
  return pair;
}

DatasetPair load_dataset(const std::string& spec) {
  DatasetPair pair = find_and_load(spec);
  pair.train.name = pair.test.name = spec;
  return pair;
}

}  // namespace situ::data
