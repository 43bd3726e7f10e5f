#include "ops/magnitude.h"

#include <algorithm>
#include <cmath>

namespace situ::ops {

AbsoluteCall::AbsoluteCall(const RefCall& call) : attrs_(call.attrs), out_(call.out) {
  for (const RefTensor& t : call.in) {
    auto& copy = values_.emplace_back(t.data, t.data + t.count());
    for (double& v : copy) v = std::fabs(v);
  }
  for (size_t i = 0; i < values_.size(); ++i) in_.push_back({call.in[i].type, values_[i].data()});
}

void run_magnitude(const OpDef& op, const RefCall& call) {
  if (op.magnitude) return op.magnitude(call);
  op.reference(AbsoluteCall(call).call());
}

double scalar_magnitude(double (*f)(const double*), const double* values, const double* magnitudes, int arity) {
  constexpr double kNudge = 0x1p-20;  // of the order of an f32 rounding, large enough for a difference in double
  std::vector<double> args(values, values + arity);
  const double y = f(values);
  double sum = std::fabs(y);
  for (size_t i = 0; i < args.size(); ++i) {
    double change = 0;
    for (double direction : {-kNudge, kNudge}) {
      args[i] = values[i] + direction * magnitudes[i];
      change = std::max(change, std::fabs(f(args.data()) - y));
    }
    args[i] = values[i];
    sum += change / kNudge;
  }
  return sum;
}

double scalar_magnitude(const OpDef& op, const double* values, const double* magnitudes, int arity) {
  if (!op.grad) return std::fabs(op.scalar(values));
  return scalar_magnitude(op.scalar, values, magnitudes, arity);
}

}  // namespace situ::ops
