// sequence.h -- the order in which recurrent ops walk rows of [N, T, width], forwards or backwards in time.
#pragma once
#include <cstdint>

#include "ir/attrs.h"

namespace situ::ops {

struct Sequence {
  int64_t batch = 0, time = 0, width = 0;  // width: of the hidden state
  bool reverse = false;
  // The row of sequence n that step number `step` works on.
  int64_t row(int64_t n, int64_t step) const { return n * time + (reverse ? time - 1 - step : step); }
  // From a step's row to that of the step before it.
  int64_t back() const { return reverse ? 1 : -1; }
};

}  // namespace situ::ops
