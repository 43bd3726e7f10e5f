// statistics.h -- what ops that take statistics of columns and their kernels agree on.
#pragma once
#include <algorithm>
#include <cstdint>

namespace situ::ops {

inline constexpr int64_t kMostCovarianceColumns = 128;  // kernels keep a few rows of x on the stack

// The unbiased variance of a column over the mean square about its mean.
inline double unbiased(double rows) { return rows / std::max(1.0, rows - 1); }

}  // namespace situ::ops
