// submission.h -- how launches reach the device, as tuning values: when to flush, how much work at once, how to record.
//
// A screen often shares the GPU with training and waits for what is running, so one submission can be kept short: what
// is queued is estimated, and handed over before the estimate passes the limit. None of this waits.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "device/target.h"

namespace situ::opencl {

enum class Recorder { none, khr, qcom };

struct Submission {
  int flush_every = 0;  // launches between two flushes; 0: only when a step is submitted
  double longest = 0;   // seconds of work in one submission, estimated; 0: no limit
  Recorder recorder = Recorder::none;
  int priority = 0;   // of the queue: 0 the driver's, 1 low, 2 medium, 3 high
  bool lend = false;  // who waits for a step waits inside the driver, which may compute with its thread
  double spin = 0;    // seconds for which PoCL's threads look for the next launch before they sleep (pocl_waits.h)
  bool map = true;    // batches are written into mapped memory; no: copied into the device's by a command
  int throttle = 0;   // how fast it may drive the device, the same numbers
};

struct SubmitKey {
  std::string_view key;
  int64_t otherwise, least, most;
  std::string_view meaning;
};
const std::vector<SubmitKey>& submit_keys();

// What the target's tuning says; fails with the key and its limits where a value is impossible.
Submission submission_of(const device::Target& target);

// Every key the OpenCL back end looks at, those of its kernels (kernels/tunables.h) included.
std::vector<std::string> tuning_keys();

}  // namespace situ::opencl
