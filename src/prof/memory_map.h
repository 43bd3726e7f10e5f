// memory_map.h -- what lives when in a program's arena, what lasts beside it, and who makes the peak.
#pragma once
#include <string>
#include <vector>

#include "step/compile.h"

namespace situ::prof {

struct Tensor {
  std::string layer, kernel;  // of the launch that makes it
  bool backward = false;
  int slab = 0;  // of the arena
  int64_t offset = 0, bytes = 0;
  int first = 0, last = 0;  // launches, both included
};

struct MemoryMap {
  std::vector<Tensor> tensors;  // in order of `first`
  std::vector<int64_t> live;    // bytes of the arena in use, per launch
  int peak = 0;                 // the launch with most of them
  std::vector<int> at_peak;     // tensors alive there, the largest first
  int64_t arena_bytes = 0;      // as planned: alignment and gaps included
  struct Part {
    std::string what;  // parameters, optimizer, statistics, ..., batches
    int64_t bytes = 0;
  };
  std::vector<Part> persistent;  // what lasts from step to step, the largest first
  int64_t peak_bytes() const { return live.empty() ? 0 : live[static_cast<size_t>(peak)]; }
};

MemoryMap memory_map(const step::Compiled& compiled, int program, const device::Target& target);

}  // namespace situ::prof
