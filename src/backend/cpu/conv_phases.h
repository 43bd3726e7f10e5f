// conv_phases.h -- which input positions each result of a convolution, or of its data gradient, is made from, per axis.
//
// A forward result u reads positions u * stride + offset(tap). A data gradient of stride s falls into s phases: results
// first, first + s, first + 2s, ... are reached by the same taps, from outputs u + offset(tap).
#pragma once
#include <vector>

#include "ops/window.h"

namespace situ::cpu {

struct Tap {
  int64_t offset = 0;  // input position = u * scale + offset
  int64_t index = 0;   // its place in the panels' K
};
// The results of one phase along one axis: positions first + u * step, u < count.
struct Phase {
  int64_t first = 0, step = 1, count = 0, scale = 1;
  std::vector<Tap> taps = {};
  bool consecutive = false;  // taps are neighbours, in memory and in the panels
};

std::vector<Phase> forward_phases(const ops::WindowAxis& axis);
// Taps are numbered from the far end, as pack_dx lays them out: then offsets grow with them.
std::vector<Phase> backward_phases(const ops::WindowAxis& axis);

}  // namespace situ::cpu
