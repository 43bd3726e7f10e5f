// choice.h -- which of several devices to train on: by estimate, and by a short measurement where that cannot tell.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "estimate/estimate.h"

namespace situ::estimate {

struct Option {
  std::string device;
  Estimate estimate;
};
struct Choice {
  size_t index = 0;
  std::string why;  // one line, with the numbers
};

// Seconds of a step on each of these options; infinite where it does not run.
using Measure = std::function<std::vector<double>(const std::vector<size_t>&)>;

// Fails where the program fits no device. Measures only those whose band reaches below the upper end of the fastest's.
Choice choose(const std::vector<Option>& options, const Measure& measure);

}  // namespace situ::estimate
