// matrix.h -- an operand as rows, for kernels that walk it themselves.
#pragma once
#include "backend/cpu/kernel.h"

namespace situ::cpu {

// Without data it is an operand that was not given.
struct Matrix {
  float* data = nullptr;
  int64_t pitch = 0;
  Matrix() = default;
  Matrix(float* from, int64_t step) : data(from), pitch(step) {}
  explicit Matrix(const Operand& o) : data(o.f32()), pitch(o.pitch) {}
  float* row(int64_t r) const { return data + r * pitch; }
  float* at(int64_t r, int64_t col) const { return row(r) + col; }
  explicit operator bool() const { return data != nullptr; }
};

}  // namespace situ::cpu
