// dataset.h -- samples in memory, and where they come from. Exactly one of images, series and text is filled:
//
//   images: [count, height, width, channels], NHWC, bytes 0 to 255    labels: [count], 0 to classes - 1, checked
//   series: [count, height (steps), channels], floats; width is 1     labels likewise, or targets
//   text:   bytes; sample i is the `length` bytes from i * length on, its labels are the bytes that follow each
//
// Bytes are a quarter of floats; normalisation happens while a batch is filled (data/batches.h).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/types.h"

namespace situ::data {

struct Dataset {
  std::string name;
  int64_t count = 0, height = 0, width = 0, channels = 0;
  int classes = 0;
  std::vector<uint8_t> images = {};
  std::vector<int32_t> labels = {};
  std::vector<float> targets = {};  // [count], in place of labels: numbers to predict; classes is 1
  std::vector<float> series = {};
  Shape shape = {};  // of a sample of `series` that is not [height, channels]: features a network computed
  std::vector<uint8_t> text = {};
  int64_t length = 0;                         // of a sample of text
  std::vector<std::string> class_names = {};  // where the files name them

  int64_t features() const { return text.empty() ? height * width * channels : length; }  // elements per sample
  int64_t places() const { return text.empty() ? 1 : length; }                            // labels per sample
  Type sample() const;                                                                    // what a model must take
  void set_length(int64_t bytes);                                                         // cuts a text into samples
};

struct DatasetPair {
  Dataset train, test;
};

// spec:
//   fashion-mnist                              $SITU_DATA/fashion-mnist, $SITU_DATA, then where Debian's package puts
//   it a folder, or the name of one in $SITU_DATA    MNIST's four idx files, plain or .gz, or CIFAR-10's six .bin files
//   a folder with NAME_TRAIN.ts and NAME_TEST.ts   time series of sensors, as the UEA archive and aeon have them
//   a file ending in .txt                          bytes of text; the last tenth is for testing
//   synthetic[:HxWxC[:classes[:count]]]        made up; default synthetic:28x28x1:10:4096, a quarter as many for
//   testing
DatasetPair load_dataset(const std::string& spec);

// The three sources by themselves.
DatasetPair load_idx_folder(const std::string& folder);
DatasetPair load_cifar10_folder(const std::string& folder);
DatasetPair make_synthetic(const std::string& spec);
DatasetPair load_series_folder(const std::string& folder);
DatasetPair load_text(const std::string& path);

// Raises if sizes do not fit together or a label is not a class; origin is the name used in errors.
void check_dataset(const Dataset& dataset, const std::string& origin);

}  // namespace situ::data
