// ledger.h -- what a compiled program costs, known before it runs; and where its time went, after it ran.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "device/device.h"

namespace situ::step {

struct Ledger {
  std::string program;
  int64_t launches = 0, waits = 0;      // per run
  int64_t bytes_in = 0, bytes_out = 0;  // crossing to and from the device, per run
  int64_t arena_bytes = 0;              // of the session: the maximum over its programs
  int64_t persistent_bytes = 0;         // batch, constants, states
  double flops = 0, bytes = 0;          // arithmetic and memory traffic of all launches
  struct Launch {
    std::string kernel, detail;
    double flops = 0, bytes = 0;
  };
  std::vector<Launch> list;
};

// Where wall time went: each second is booked once. A running kernel is compute, a running copy is movement; with
// neither running, a host that sits in a blocking call waits, and the rest is launch (work submitted, nothing running).
struct TimeSplit {
  double wall = 0, compute = 0, movement = 0, launch = 0, wait = 0;
};
TimeSplit split(const device::Timeline& timeline, double wall);

}  // namespace situ::step
