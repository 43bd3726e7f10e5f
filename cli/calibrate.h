// calibrate.h -- measures the models of calibration on a device, and keeps the constants of estimates fitted to them.
#pragma once
#include <memory>

#include "cli/verbs.h"
#include "estimate/calibrate.h"

namespace situ::cli {

// Prints what it found. Measures the roofline first, in the same run.
void calibrate(device::Device& device, double seconds);

}  // namespace situ::cli
