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
    ir::Origin origin = {};  // the layer it serves
  };
  std::vector<Launch> list;
};

// Where wall time went: each second is booked once.
//   compute    a kernel runs
//   movement   no kernel runs, a copy does
//   launch     nothing runs, though work is queued, or the host is queueing it
//   wait       nothing runs or is queued, and the host is still in the call that waits for it
//   idle       nothing runs or is queued: the host does something else, such as making the batch
struct TimeSplit {
  double wall = 0, compute = 0, movement = 0, launch = 0, wait = 0, idle = 0;
  TimeSplit operator/(double by) const {
    return {wall / by, compute / by, movement / by, launch / by, wait / by, idle / by};
  }
};
TimeSplit split(const device::Timeline& timeline, double begin, double end);  // of the seconds in between
double kernel_seconds(const device::Timeline& timeline);                      // in which at least one kernel runs

}  // namespace situ::step
