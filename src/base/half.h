// half.h -- what storing a number as half (IEEE binary16) does to it. Arithmetic on half exists nowhere in situ.
#pragma once
#include <algorithm>
#include <cmath>

namespace situ {

inline constexpr double kLargestHalf = 65504;

// The distance of neighbouring halves around v.
inline double half_spacing(double v) { return std::ldexp(1.0, std::max(v == 0 ? -14 : std::ilogb(v), -14) - 10); }

// Rounded to the nearest half, ties to even.
inline double rounded_to_half(double v) {
  if (!std::isfinite(v)) return v;
  const double rounded = std::nearbyint(v / half_spacing(v)) * half_spacing(v);
  return std::fabs(rounded) > kLargestHalf ? std::copysign(INFINITY, v) : rounded;
}

}  // namespace situ
