// history.h -- the loss over a training run, kept beside its weights as history.json.
#pragma once
#include <string>
#include <vector>

#include "train/trainer.h"

namespace situ::train {

struct History {
  struct Point {
    int64_t step = 0;  // since the beginning
    double loss = 0;
  };
  std::vector<Point> training, test;  // as often as it was reported; after each epoch
  void add(const Progress& progress);
};

void save_history(const History& history, const std::string& folder);
History load_history(const std::string& folder);  // fails if there is none

}  // namespace situ::train
