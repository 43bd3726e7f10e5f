// magnitude.h -- how large the terms behind each result are: the scale of an honest rounding error.
//
// A kernel in f32 is right when |kernel - reference| <= c * eps * magnitude, element by element. For a sum of products
// that is the sum of the absolute products, which is the reference run on |inputs|; ops where this is no bound (a
// difference, an exponential, a maximum's position) bring their own OpDef::magnitude, which sees the inputs with signs.
#pragma once
#include <vector>

#include "ops/op.h"

namespace situ::ops {

// Fills call.out with the magnitude of each result; call.in holds the inputs as the reference sees them.
void run_magnitude(const OpDef& op, const RefCall& call);

// The same call on copies of the inputs without their signs.
class AbsoluteCall {
 public:
  explicit AbsoluteCall(const RefCall& call);
  RefCall call() const { return {attrs_, in_, out_}; }

 private:
  const Attrs& attrs_;
  std::vector<std::vector<double>> values_;
  std::vector<RefTensor> in_;
  std::span<const RefTensor> out_;
};

// |f(v)| plus what errors of these magnitudes in its operands do to it, to first order. A step function (no gradient)
// takes its operands as exact.
double scalar_magnitude(const OpDef& op, const double* values, const double* magnitudes, int arity);
double scalar_magnitude(double (*f)(const double*), const double* values, const double* magnitudes, int arity);

}  // namespace situ::ops
