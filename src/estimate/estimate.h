// estimate.h -- what a compiled program will take on a device that may not be here. Always an estimate.
//
//   step = sum over launches of (fixed + flops / rate + bytes / bandwidth + launch) + copies + waits
// by residency: a resident step hands over its batch and waits for nothing; the others copy the operands of every
// launch in and its results out, and wait each time (step/session.h).
#pragma once
#include <string>
#include <vector>

#include "estimate/constants.h"
#include "step/compile.h"
#include "step/session.h"

namespace situ::estimate {

struct Machine {
  device::Roofline roofline;
  Constants constants;
};

struct Estimate {
  double compute = 0, movement = 0, launch = 0, wait = 0;  // seconds of a step
  double band = 0;
  int64_t launches = 0;
  int64_t memory = 0, available = 0;  // bytes: batches, constants, states and arena; what the device has
  double flops = 0;
  std::vector<double> launch_seconds;  // of each launch's kernel
  double seconds() const { return compute + movement + launch + wait; }
  double least() const { return seconds() / (1 + band); }
  double most() const { return seconds() * (1 + band); }
  bool fits() const { return memory <= available; }
  double outside() const { return 1 - compute / seconds(); }  // the share of movement, launch and wait
};

// `program` of the compiled ones, on a device of this target.
Estimate estimate(const step::Compiled& compiled, std::string_view program, step::Residency residency,
                  const device::Target& target, const Machine& machine);

// Compiles the program for the device as a session of that residency would, then the above.
Estimate estimate(const ir::Graph& program, step::Residency residency, const device::Device& device,
                  const Machine& machine);

// Rates of a target that nobody measured: its own rough ones.
device::Roofline rough_roofline(const device::Target& target);

}  // namespace situ::estimate
