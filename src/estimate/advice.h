// advice.h -- guidelines, computed: where to train a model, with which batch, precision and frozen part, and what a
// memory budget costs. Every sentence carries the estimates behind it.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "estimate/estimate.h"

namespace situ::estimate {

// A way to train the model on one processor.
struct Variant {
  int64_t batch = 64;
  bool half = false;          // activations stored as half
  std::string train = "all";  // as --train
  int64_t lora = 0;           // its rank; 0: none
};

struct Place {
  std::string name;                             // "GPU", "cpu", "opencl:.."
  bool halves = false;                          // it can store them
  std::string silicon;                          // what it runs on: two places on one piece cannot share the work
  double copy_bandwidth = 0, wait_seconds = 0;  // to bring gradients to the host and back
  std::function<Estimate(const Variant&)> estimate;
};

struct Question {
  int64_t batch = 64;
  int64_t parameter_bytes = 0;   // of what is trained
  std::vector<int64_t> budgets;  // bytes to price; none: a half, a quarter and an eighth of what the batch needs
  std::vector<int64_t> batches;  // to try, small to large
};

struct Advice {
  std::string topic;    // "device", "batch", ..
  std::string say;      // the guideline
  std::string because;  // the numbers
};
std::vector<Advice> advise(const std::vector<Place>& places, const Question& question);

}  // namespace situ::estimate
