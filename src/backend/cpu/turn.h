// turn.h -- a matrix of words turned over.
#pragma once
#include <cstdint>

namespace situ::cpu {

// to[c * to_step + r] = from[r * from_step + c]
using Turn = void (*)(const float* from, int64_t from_step, int64_t rows, int64_t cols, float* to, int64_t to_step);
Turn turn_function();

}  // namespace situ::cpu
