// least_squares.h -- three coefficients with lower bounds, by relative errors and with a prior.
//
//   minimise  sum of weight * (x . c / y - 1)^2 + strength * sum of ((c - prior) / spread)^2,  c >= least
#pragma once
#include <array>
#include <vector>

namespace situ::estimate {

using Triple = std::array<double, 3>;

struct Row {
  Triple x{};
  double y = 0, weight = 1;
};
struct Prior {
  Triple middle{}, spread{1, 1, 1}, least{};
  double strength = 0;
};

// Rows that lie above the fit count less in later rounds: noise only ever makes a run slower.
Triple fit_triple(const std::vector<Row>& rows, const Prior& prior);

}  // namespace situ::estimate
