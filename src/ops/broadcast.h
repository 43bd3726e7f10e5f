// broadcast.h -- index arithmetic of broadcasting: which element of an operand stands at an element of the result.
//
// Shapes are aligned at the last axis; an axis of extent 1 (or a missing one) has stride 0 and so repeats.
#pragma once
#include <array>

#include "base/types.h"

namespace situ::ops {

using Strides = std::array<int64_t, kMaxRank>;

// For each axis of `to`, how far a step along it moves in a dense tensor of shape `from`.
Strides broadcast_strides(const Shape& from, const Shape& to);
bool broadcasts_to(const Shape& from, const Shape& to);

// The element of `from` at flat element i of `to`, with the strides from above.
int64_t broadcast_index(int64_t i, const Shape& to, const Strides& strides);

}  // namespace situ::ops
