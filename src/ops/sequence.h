// sequence.h -- what recurrent ops share: the order in which they walk rows of [N, T, width], forwards or backwards in
// time, the gradient of their recurrent weight, and the parts of their references that know nothing of the cell.
#pragma once
#include <cmath>
#include <cstdint>

#include "ops/op.h"

namespace situ::ops {

struct Sequence {
  int64_t batch = 0, time = 0, width = 0;  // width: of the hidden state
  bool reverse = false;
  // The row of sequence n that step number `step` works on.
  int64_t row(int64_t n, int64_t step) const { return n * time + (reverse ? time - 1 - step : step); }
  // From a step's row to that of the step before it.
  int64_t back() const { return reverse ? 1 : -1; }
  // The same rows from the last step to the first: the way of a gradient.
  Sequence turned() const { return {batch, time, width, !reverse}; }
};
Sequence sequence_of(const Attrs& attrs, const Shape& state);  // state: [N, T, width]
Attrs direction(const Attrs& attrs);                           // for the ops that a gradient rule emits

// Of h_{t-1} w: the sum over all steps of h_{t-1}^T du_t, where du is the gradient of the product.
Value recurrent_weight_gradient(GradBuilder& g, Value h, Value du);
Cost recurrent_cost(const Shape& sums, int64_t width);  // sums: [N, T, gates * width]

// --- references
// -------------------------------------------------------------------------------------------------------
inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// The numbers of a gradient, or with `terms` what makes up its magnitude: every term positive.
struct Terms {
  bool terms = false;
  double part(double v) const { return terms ? std::fabs(v) : v; }
  double sigmoid_slope(double y) const { return terms ? std::fabs(y) * (1 + 2 * std::fabs(y)) : y * (1 - y); }
  double tanh_slope(double y) const { return terms ? 1 + 2 * y * y : 1 - y * y; }
};

// dh + du_{t+1} w^T at channel j of a row, the last step having none after it.
double add_from_next(double dh, const RefTensor& du, const RefTensor& w, const Sequence& s, int64_t row, int64_t step,
                     int64_t j, const Terms& t);

// cell(row, step, j, carry) for every channel of every row, last step first; carry[j] lasts from step to step.
template <typename Cell>
void back_through_time(const Sequence& s, const Cell& cell) {
  for (int64_t n = 0; n < s.batch; ++n) {
    std::vector<double> carry(static_cast<size_t>(s.width));
    for (int64_t step = s.time - 1; step >= 0; --step)
      for (int64_t j = 0; j < s.width; ++j) cell(s.row(n, step), step, j, carry[static_cast<size_t>(j)]);
  }
}

}  // namespace situ::ops
