// launch.h -- one launch, placed: a node of the lowered graph and where each operand lies.
//
// A tensor is rows x cols in a slab: element (r, c) lies at offset + (r * pitch + c) * element size, where cols is the
// last axis and rows all others. Dense tensors have pitch == cols; a slice along the last axis keeps its parent's
// pitch.
#pragma once
#include <vector>

#include "base/types.h"
#include "ir/graph.h"

namespace situ::device {

struct TensorArg {
  int slab = 0;
  int64_t offset = 0;  // bytes
  int64_t pitch = 0;   // elements
  Type type;
  const Shape& shape() const { return type.shape; }
  int64_t count() const { return type.count(); }
  int64_t rows() const { return type.shape.rows(); }
  int64_t cols() const { return type.shape.cols(); }
  bool dense() const { return pitch == cols() || rows() == 1; }
};

struct LaunchSpec {
  ir::Node node;
  std::vector<TensorArg> in;
  std::vector<TensorArg> out;
  double flops = 0, bytes = 0;  // the op's own cost, for the ledger
};

}  // namespace situ::device
