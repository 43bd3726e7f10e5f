// reduced_axes.h -- which axes of its operand a `reduce` takes away.
#pragma once
#include <vector>

#include "ops/op.h"

namespace situ::ops {

inline std::vector<bool> reduced_axes(const Attrs& attrs, int rank) {
  std::vector<bool> reduced(static_cast<size_t>(rank));
  for (int64_t axis : attrs.ints("axes")) reduced[static_cast<size_t>(normal_axis(axis, rank))] = true;
  return reduced;
}

}  // namespace situ::ops
