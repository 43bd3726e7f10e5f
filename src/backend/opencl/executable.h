// executable.h -- a bound launch list that is replayed, launch by launch or as one recording.
#pragma once
#include <optional>

#include "backend/opencl/bind.h"
#include "backend/opencl/recording.h"

namespace situ::opencl {

class LaunchList : public device::Executable {
 public:
  LaunchList(Runtime& run, BoundLaunches bound);
  void enqueue() override;
  void enqueue(int first, int count) override;
  int launches() const override { return static_cast<int>(bound_.launches.size()); }
  bool recorded() const { return recording_.has_value(); }

 private:
  void enqueue_one(int index);
  void record();

  Runtime& run_;
  BoundLaunches bound_;
  int flush_every_ = 0;  // 0: only when a step is submitted
  std::optional<Recording> recording_;
};

}  // namespace situ::opencl
