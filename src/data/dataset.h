// dataset.h -- labelled images in memory, as bytes, and where they come from.
//
//   images: [count, height, width, channels], NHWC, 0 to 255        labels: [count], 0 to classes - 1, checked
//
// Bytes are a quarter of floats; normalisation happens while a batch is filled (data/batches.h).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace situ::data {

struct Dataset {
  std::string name;
  int64_t count = 0, height = 0, width = 0, channels = 0;
  int classes = 0;
  std::vector<uint8_t> images = {};
  std::vector<int32_t> labels = {};

  int64_t features() const { return height * width * channels; }  // values per image
};

struct DatasetPair {
  Dataset train, test;
};

// spec:
//   fashion-mnist                              $SITU_DATA/fashion-mnist, $SITU_DATA, then where Debian's package puts
//   it a folder, or the name of one in $SITU_DATA    MNIST's four idx files, plain or .gz, or CIFAR-10's six .bin files
//   synthetic[:HxWxC[:classes[:count]]]        made up; default synthetic:28x28x1:10:4096, a quarter as many for
//   testing
DatasetPair load_dataset(const std::string& spec);

// The three sources by themselves.
DatasetPair load_idx_folder(const std::string& folder);
DatasetPair load_cifar10_folder(const std::string& folder);
DatasetPair make_synthetic(const std::string& spec);

// Raises if sizes do not fit together or a label is not a class; origin is the name used in errors.
void check_dataset(const Dataset& dataset, const std::string& origin);

}  // namespace situ::data
