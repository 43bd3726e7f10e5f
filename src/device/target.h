// target.h -- what a device can do, as plain data: limits for the planner, rates for the cost model, tuning for
// kernels.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/types.h"

namespace situ::device {

// Numbers that select a kernel's shape ("gemm.TM" -> 6). Data, never code: devices/*.json, later the tuner's database.
class Tuning {
 public:
  int64_t get(std::string_view key, int64_t otherwise) const;
  void set(std::string_view key, int64_t value) { values_.insert_or_assign(std::string(key), value); }
  const std::map<std::string, int64_t, std::less<>>& values() const { return values_; }

 private:
  std::map<std::string, int64_t, std::less<>> values_;
};

// The first record of devices/*.json whose `backend` is this one and whose `match` is found in the device's name.
Tuning tuning_for(std::string_view backend, std::string_view device_name);

struct Target {
  std::string backend;                  // "ref", "cpu", "opencl"
  std::string name;                     // as printed by `situ devices`
  std::string driver;                   // its version, where there is one
  std::string kernels;                  // a hash of the sources its driver compiles; empty: they came with situ
  int64_t alignment = 128;              // of every tensor's offset, bytes
  int64_t max_slab = int64_t{1} << 40;  // the largest single allocation, bytes
  int64_t memory = int64_t{1} << 40;    // bytes there are
  int64_t element_bytes = 4;            // of f32 and i32; 8 on ref, which stores every element as double
  bool pitched = true;                  // kernels take a pitch of the last axis, so slices and concats need no copy
  int compute_units = 1;
  double peak_flops = 100e9;  // rough, for choosing between candidates
  double bandwidth = 20e9;
  double launch_seconds = 2e-6;
  Tuning tuning;

  int64_t bytes(DType dtype) const { return element_bytes * bytes_of(dtype) / 4; }  // of an element in memory
};

// A run of zeros at the start of every slab: out-of-bounds taps of a convolution read it instead of branching.
inline constexpr int64_t kZeroRun = 16384;  // bytes

}  // namespace situ::device
