#include "ops/broadcast.h"

namespace situ::ops {

Strides broadcast_strides(const Shape& from, const Shape& to) {
  Strides strides{};
  int64_t step = 1;
  for (int i = from.rank() - 1, j = to.rank() - 1; i >= 0 && j >= 0; --i, --j) {
    strides[static_cast<size_t>(j)] = from[i] == 1 ? 0 : step;
    step *= from[i];
  }
  return strides;
}

bool broadcasts_to(const Shape& from, const Shape& to) {
  if (from.rank() > to.rank()) return false;
  for (int i = from.rank() - 1, j = to.rank() - 1; i >= 0; --i, --j)
    if (from[i] != 1 && from[i] != to[j]) return false;
  return true;
}

int64_t broadcast_index(int64_t i, const Shape& to, const Strides& strides) {
  int64_t index = 0;
  for (int axis = to.rank() - 1; axis >= 0; --axis) {
    index += i % to[axis] * strides[static_cast<size_t>(axis)];
    i /= to[axis];
  }
  return index;
}

}  // namespace situ::ops
