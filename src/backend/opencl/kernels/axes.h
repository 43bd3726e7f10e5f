// axes.h -- operands that are walked together, as few axes as possible.
//
// Each operand moves by its own stride along each axis of the result (0 where it is stretched). Axes of extent 1
// vanish, and neighbours that every operand walks as one become one; what is left innermost is the row a kernel
// vectorises.
#pragma once
#include "backend/opencl/kernels/call.h"

namespace situ::opencl::kernels {

struct Axis {
  int64_t extent = 1;
  std::vector<int64_t> strides;  // one per operand, in elements
};

// How far `tensor` moves along axis `axis` of a result of `rank` axes, aligned at the last.
inline int64_t stride_of(const TensorArg& tensor, int axis, int rank) {
  const Shape& shape = tensor.shape();
  const int own = axis - (rank - shape.rank());
  if (own < 0 || shape[own] == 1) return 0;
  if (own == shape.rank() - 1) return 1;
  int64_t stride = tensor.pitch;
  for (int i = own + 1; i < shape.rank() - 1; ++i) stride *= shape[i];
  return stride;
}

// Drops axes of extent 1 and merges neighbours; the last axis returned has strides 0 and 1 only (its extent may be 1).
inline std::vector<Axis> merged(const std::vector<Axis>& axes, size_t operands) {
  std::vector<Axis> result;
  for (const Axis& axis : axes) {
    if (axis.extent == 1) continue;
    if (!result.empty()) {
      Axis& outer = result.back();
      bool alike = true;
      for (size_t i = 0; i < operands; ++i) alike &= outer.strides[i] == axis.strides[i] * axis.extent;
      if (alike) {
        outer.extent *= axis.extent;
        outer.strides = axis.strides;
        continue;
      }
    }
    result.push_back(axis);
  }
  const auto far = [](int64_t stride) { return stride > 1; };
  if (result.empty() || std::any_of(result.back().strides.begin(), result.back().strides.end(), far))
    result.push_back({1, std::vector<int64_t>(operands, 0)});
  return result;
}

inline std::vector<Axis> merged_axes(const Shape& shape, const std::vector<TensorArg>& operands) {
  std::vector<Axis> axes;
  for (int a = 0; a < shape.rank(); ++a) {
    Axis axis{shape[a], {}};
    for (const TensorArg& t : operands) axis.strides.push_back(stride_of(t, a, shape.rank()));
    axes.push_back(axis);
  }
  return merged(axes, operands.size());
}

// extents, then the strides of each operand: the table that kernels with several outer axes read.
inline TableArg table_of(const std::vector<Axis>& axes, size_t operands) {
  TableArg table;
  for (const Axis& a : axes) table.words.push_back(int_of(a.extent));
  for (size_t i = 0; i < operands; ++i)
    for (const Axis& a : axes) table.words.push_back(int_of(a.strides[i]));
  return table;
}

}  // namespace situ::opencl::kernels
