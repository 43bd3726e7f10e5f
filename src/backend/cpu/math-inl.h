// math-inl.h -- exp, log, tanh and sigmoid of vectors, to a few units in the last place, over the whole range of f32.
//
// Highway's own functions leave out what training must not hide: NaN stays NaN, overflow gives infinity.
#if defined(SITU_BACKEND_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SITU_BACKEND_CPU_MATH_INL_H_
#undef SITU_BACKEND_CPU_MATH_INL_H_
#else
#define SITU_BACKEND_CPU_MATH_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>

#include <limits>

#include "backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {

HWY_INLINE Floats exp_of(Floats x) {
  const Tag d;
  const Floats y = hn::Exp(d, hn::IfThenElse(hn::Gt(x, fill(104.0f)), fill(104.0f), x));
  return hn::IfThenElse(hn::Eq(x, x), y, x);
}

HWY_INLINE Floats log_of(Floats x) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Floats y = hn::IfThenElse(hn::Eq(x, fill(kInfinity)), x, hn::Log(Tag(), x));
  const Floats at_zero = hn::IfThenElse(hn::Eq(x, zeros()), fill(-kInfinity), y);
  return hn::IfThenElse(hn::Ge(x, zeros()), at_zero, fill(std::numeric_limits<float>::quiet_NaN()));
}

HWY_INLINE Floats tanh_of(Floats x) { return hn::IfThenElse(hn::Eq(x, x), hn::Tanh(Tag(), x), x); }

HWY_INLINE Floats sigmoid_of(Floats x) {
  const Floats one = fill(1.0f);
  return hn::Div(one, hn::Add(one, exp_of(hn::Neg(x))));
}

// Derivatives, given the function's value.
HWY_INLINE Floats slope_of_sigmoid(Floats y) { return hn::Mul(y, hn::Sub(fill(1.0f), y)); }
HWY_INLINE Floats slope_of_tanh(Floats y) { return hn::NegMulAdd(y, y, fill(1.0f)); }

}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SITU_BACKEND_CPU_MATH_INL_H_
