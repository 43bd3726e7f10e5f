#include "backend/opencl/submission.h"

#include "backend/opencl/kernels/tunables.h"
#include "base/error.h"

namespace situ::opencl {
namespace {

int64_t value_of(const device::Target& target, std::string_view key) {
  for (const SubmitKey& k : submit_keys()) {
    if (k.key != key) continue;
    const int64_t value = target.tuning.get(key, k.otherwise);
    if (value < k.least || value > k.most)
      fail("tuning {} = {} is not possible: use a number from {} to {} ({})", key, value, k.least, k.most, k.meaning);
    return value;
  }
  SITU_ASSERT(false, "`{}` is no key of submissions", key);
  return 0;
}

}  // namespace

const std::vector<SubmitKey>& submit_keys() {
  static const std::vector<SubmitKey> keys = {
      {"submit.flush", 16, 0, 1 << 20, "launches between two flushes; 0: only at the end of a step"},
      {"submit.max_us", 0, 0, 10'000'000, "microseconds of work in one submission, estimated; 0: no limit"},
      {"submit.record", 0, 0, 2, "replay: 0 launch by launch, 1 cl_khr_command_buffer, 2 cl_qcom_recordable_queues"},
      {"submit.map", 1, 0, 1, "a batch: 0 copied to the device by a command, 1 written into its mapped memory"},
      {"submit.lend", 0, 0, 1,
       "waiting for an earlier step: 0 asleep until its callback, 1 inside the driver, which computes with the thread"},
      {"submit.spin", 0, 0, 1000, "microseconds for which PoCL's threads look for the next launch before they sleep"},
      {"submit.priority", 0, 0, 3, "of the queue: 0 the driver's, 1 low, 2 medium, 3 high (cl_khr_priority_hints)"},
      {"submit.throttle", 0, 0, 3, "how hard it drives the device: 0 the driver's, 1 low .. 3 (cl_khr_throttle_hints)"},
  };
  return keys;
}

Submission submission_of(const device::Target& target) {
  Submission s;
  s.flush_every = static_cast<int>(value_of(target, "submit.flush"));
  s.longest = static_cast<double>(value_of(target, "submit.max_us")) * 1e-6;
  s.recorder = static_cast<Recorder>(value_of(target, "submit.record"));
  s.lend = value_of(target, "submit.lend") != 0;
  s.spin = static_cast<double>(value_of(target, "submit.spin")) * 1e-6;
  s.map = value_of(target, "submit.map") != 0;
  s.priority = static_cast<int>(value_of(target, "submit.priority"));
  s.throttle = static_cast<int>(value_of(target, "submit.throttle"));
  return s;
}

std::vector<std::string> tuning_keys() {
  std::vector<std::string> keys = {"device.gflops", "device.gbytes", "device.launch_ns", "build.threads"};
  for (const SubmitKey& k : submit_keys()) keys.emplace_back(k.key);
  for (const kernels::Tunable& t : kernels::tunables()) keys.emplace_back(t.key);
  return keys;
}

}  // namespace situ::opencl
