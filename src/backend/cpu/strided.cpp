#include "backend/cpu/strided.h"

namespace situ::cpu {

Axes axes_of(const Operand& operand) {
  const Shape& shape = operand.shape();
  Axes axes(static_cast<size_t>(shape.rank()));
  int64_t stride = operand.pitch;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    const bool last = i == shape.rank() - 1;
    axes[static_cast<size_t>(i)] = {shape[i], last ? 1 : stride};
    if (!last) stride *= shape[i];
  }
  return axes;
}

Axes broadcast_axes(const Operand& operand, const Shape& to) {
  const Axes own = axes_of(operand);
  Axes axes(static_cast<size_t>(to.rank()));
  const size_t missing = axes.size() - own.size();
  for (size_t i = 0; i < axes.size(); ++i) {
    axes[i].extent = to[static_cast<int>(i)];
    if (i >= missing && own[i - missing].extent != 1) axes[i].stride = own[i - missing].stride;
  }
  return axes;
}

Axes collapsed(const Axes& axes) {
  Axes result;
  for (const Axis& axis : axes) {
    if (axis.extent == 1) continue;
    if (!result.empty() && result.back().stride == axis.stride * axis.extent)
      result.back() = {result.back().extent * axis.extent, axis.stride};
    else
      result.push_back(axis);
  }
  return result;
}

int64_t offset_of(const Axes& axes, int64_t index) {
  int64_t offset = 0;
  for (size_t i = axes.size(); i-- > 0; index /= axes[i].extent) offset += index % axes[i].extent * axes[i].stride;
  return offset;
}

}  // namespace situ::cpu
