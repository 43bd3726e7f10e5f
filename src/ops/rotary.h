// rotary.h -- the angles of rotary positions. They are worked out in double once per launch list: t * frequency in f32
// would lose a digit for every ten positions.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/types.h"
#include "ir/attrs.h"

namespace situ::ops {

struct Rotary {
  int64_t time = 0, heads = 1, half = 0;  // half: of a head's width
  double base = 10000;
  bool inverse = false;
  double angle(int64_t t, int64_t i) const {
    const double turn = static_cast<double>(t) * std::pow(base, -static_cast<double>(i) / static_cast<double>(half));
    return inverse ? -turn : turn;
  }
  // [T][2][half]: cosines, then sines.
  std::vector<float> table() const {
    std::vector<float> values;
    for (int64_t t = 0; t < time; ++t) {
      for (int64_t i = 0; i < half; ++i) values.push_back(static_cast<float>(std::cos(angle(t, i))));
      for (int64_t i = 0; i < half; ++i) values.push_back(static_cast<float>(std::sin(angle(t, i))));
    }
    return values;
  }
};

inline Rotary rotary_of(const ir::Attrs& attrs, const Shape& x) {
  const int64_t heads = attrs.integer("heads");
  return {x[1], heads, x[2] / heads / 2, attrs.number("base", 10000), attrs.flag("inverse")};
}

}  // namespace situ::ops
