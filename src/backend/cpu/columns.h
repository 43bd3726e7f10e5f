// columns.h -- what the normalisation kernels share: blocks of columns, their moments, tensors of statistics.
#pragma once
#include <cstdint>

#include "backend/cpu/kernel.h"
#include "backend/cpu/matrix.h"

namespace situ::cpu {

inline constexpr int64_t kNormColumns = 64;                // of a task: a block of rows of them stays in the L1 cache
inline constexpr int64_t kNormBuffer = kNormColumns + 64;  // room for a whole vector at the end
inline constexpr int64_t kNormRows = 64;                   // rows summed before they join the rest
inline constexpr int64_t kNormBlocks = 32;                 // blocks joined before they join the total

// The mean and the sum of squares around it of each column, over `count` rows.
struct Moments {
  alignas(64) float mean[kNormBuffer] = {};
  alignas(64) float m2[kNormBuffer] = {};
  int64_t count = 0;
};

// A tensor read element by element, in order, whatever its pitch.
struct Statistic {
  float* data = nullptr;
  int64_t cols = 1, pitch = 1;
  Statistic() = default;
  explicit Statistic(const Operand& t) : data(t.f32()), cols(t.cols()), pitch(t.pitch) {}
  float& operator[](int64_t i) const { return data[i / cols * pitch + i % cols]; }
};

}  // namespace situ::cpu
