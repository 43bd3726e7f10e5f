#include "backend/cpu/conv_phases.h"

namespace situ::cpu {
namespace {

bool are_consecutive(const std::vector<Tap>& taps) {
  for (size_t i = 1; i < taps.size(); ++i)
    if (taps[i].offset != taps[i - 1].offset + 1 || taps[i].index != taps[i - 1].index + 1) return false;
  return !taps.empty();
}

}  // namespace

std::vector<Phase> forward_phases(const ops::WindowAxis& axis) {
  Phase phase{.count = axis.out, .scale = axis.stride};
  for (int64_t k = 0; k < axis.kernel; ++k) phase.taps.push_back({axis.position(0, k), k});
  phase.consecutive = are_consecutive(phase.taps);
  return {phase};
}

// Input i = first + u * stride receives tap k from output u + (first + before - k * dilation) / stride.
std::vector<Phase> backward_phases(const ops::WindowAxis& axis) {
  std::vector<Phase> phases;
  for (int64_t first = 0; first < std::min(axis.stride, axis.in); ++first) {
    Phase phase{.first = first, .step = axis.stride, .count = ceil_div(axis.in - first, axis.stride)};
    for (int64_t k = axis.kernel - 1; k >= 0; --k) {
      const int64_t reach = first + axis.before - k * axis.dilation;
      if (reach % axis.stride == 0) phase.taps.push_back({reach / axis.stride, axis.kernel - 1 - k});
    }
    phase.consecutive = are_consecutive(phase.taps);
    phases.push_back(std::move(phase));
  }
  return phases;
}

}  // namespace situ::cpu
