// strided.h -- a tensor seen as nested loops of (extent, stride), with as few loops as its layout allows.
//
// Kernels that stream elements in the order of the result use it for operands that are pitched, broadcast or permuted.
#pragma once
#include <vector>

#include "backend/cpu/kernel.h"

namespace situ::cpu {

struct Axis {
  int64_t extent = 1, stride = 0;
};
using Axes = std::vector<Axis>;  // outermost first

Axes axes_of(const Operand& operand);                          // one per axis of the tensor
Axes broadcast_axes(const Operand& operand, const Shape& to);  // stretched axes have stride 0
Axes collapsed(const Axes& axes);                              // no axis of extent 1; joined where it makes one run
int64_t offset_of(const Axes& axes, int64_t index);            // of an element counted in row-major order
inline bool is_run(const Axes& axes) { return axes.empty() || (axes.size() == 1 && axes[0].stride == 1); }
inline bool is_constant(const Axes& axes) { return axes.empty() || (axes.size() == 1 && axes[0].stride == 0); }

// Calls visit(done, offset, count, stride) for the runs along the innermost axis that make up elements
// [first, first + n); done counts from 0.
template <typename Visit>
void each_run(const Axes& axes, int64_t first, int64_t n, const Visit& visit) {
  if (axes.empty()) return visit(int64_t{0}, int64_t{0}, n, int64_t{0});
  const Axis inner = axes.back();
  int64_t row = first / inner.extent, col = first % inner.extent;
  for (int64_t done = 0; done < n; ++row, col = 0) {
    int64_t offset = 0, rest = row;
    for (size_t i = axes.size() - 1; i-- > 0; rest /= axes[i].extent) offset += rest % axes[i].extent * axes[i].stride;
    const int64_t count = std::min(inner.extent - col, n - done);
    visit(done, offset + col * inner.stride, count, inner.stride);
    done += count;
  }
}

}  // namespace situ::cpu
