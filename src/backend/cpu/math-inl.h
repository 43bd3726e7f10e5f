// math-inl.h -- exp, log, tanh, erf and activations made of them, for vectors, to a few units in the last place, over
// the whole range of f32.
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

// e^x for x from -87 to 88, where it is a normal number; a NaN is not one any more. x = n ln 2 + r; adding 3 * 2^22
// rounds to n and leaves it in the lowest bits.
HWY_INLINE Floats exp_of_normal(Floats x) {
  const Tag d;
  const IntTag di;
  const Floats shifter = fill(0x1.8p23f), shifted = hn::MulAdd(x, fill(0x1.715476p0f), shifter);
  const Floats n = hn::Sub(shifted, shifter);
  const Floats r = hn::MulAdd(n, fill(0x1.bd0106p-13f), hn::NegMulAdd(n, fill(0x1.63p-1f), x));
  Floats p = fill(0x1.6a21acp-10f);  // fitted at Chebyshev's points
  p = hn::MulAdd(p, r, fill(0x1.123b6ap-7f));
  p = hn::MulAdd(p, r, fill(0x1.5558fap-5f));
  p = hn::MulAdd(p, r, fill(0x1.555490p-3f));
  p = hn::MulAdd(p, r, fill(0x1.fffffcp-2f));
  p = hn::MulAdd(p, r, fill(1.0f));
  p = hn::MulAdd(p, r, fill(1.0f));
  return hn::BitCast(d, hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
}

// Up to 5/8 an odd polynomial, fitted likewise, which keeps the digits of small values and a NaN.
HWY_INLINE Floats tanh_of(Floats x) {
  const Floats a = hn::Abs(x), s = hn::Mul(x, x), one = fill(1.0f);
  Floats p = fill(-0x1.75e1c4p-8f);
  p = hn::MulAdd(p, s, fill(0x1.52269ap-6f));
  p = hn::MulAdd(p, s, fill(-0x1.b83c5ap-5f));
  p = hn::MulAdd(p, s, fill(0x1.110726p-3f));
  p = hn::MulAdd(p, s, fill(-0x1.555532p-2f));
  const Floats e = exp_of_normal(hn::Min(hn::Add(a, a), fill(40.0f)));
  const Floats far = hn::Sub(one, hn::Div(fill(2.0f), hn::Add(e, one)));
  return hn::IfThenElse(hn::Ge(a, fill(0.625f)), hn::CopySign(far, x), hn::MulAdd(hn::Mul(x, s), p, x));
}

HWY_INLINE Floats sigmoid_of(Floats x) {
  const Floats one = fill(1.0f), e = exp_of_normal(hn::Min(hn::Max(hn::Neg(x), fill(-87.0f)), fill(88.0f)));
  return hn::IfThenElse(hn::Eq(x, x), hn::Div(one, hn::Add(one, e)), x);
}

HWY_INLINE Floats expm1_of(Floats x) {
  const Floats top = fill(104.0f);
  return hn::IfThenElse(hn::Eq(x, x), hn::Expm1(Tag(), hn::IfThenElse(hn::Gt(x, top), top, x)), x);
}

// erfc(t) exp(t^2) of t >= 0: u P(u), u = 1 / (1 + t / 2), fitted at Chebyshev's points of u for t from 0 to 10.
HWY_INLINE Floats scaled_erfc(Floats t) {
  const Floats u = hn::Div(fill(1.0f), hn::MulAdd(t, fill(0.5f), fill(1.0f)));
  Floats p = fill(0x1.337846p-6f);
  p = hn::MulAdd(p, u, fill(-0x1.41317ep-3f));
  p = hn::MulAdd(p, u, fill(0x1.01e576p-1f));
  p = hn::MulAdd(p, u, fill(-0x1.8700acp-1f));
  p = hn::MulAdd(p, u, fill(0x1.f99284p-2f));
  p = hn::MulAdd(p, u, fill(-0x1.129a6ap-3f));
  p = hn::MulAdd(p, u, fill(0x1.e4e75cp-3f));
  p = hn::MulAdd(p, u, fill(0x1.e45536p-3f));
  p = hn::MulAdd(p, u, fill(0x1.21e138p-2f));
  p = hn::MulAdd(p, u, fill(0x1.20d2d6p-2f));
  return hn::Mul(p, u);
}

// Up to 1 an odd polynomial, fitted likewise; beyond, the rest to 1.
HWY_INLINE Floats erf_of(Floats x) {
  const Floats t = hn::Abs(x), s = hn::Mul(x, x);
  Floats p = fill(0x1.4a569p-14f);
  p = hn::MulAdd(p, s, fill(-0x1.a45088p-11f));
  p = hn::MulAdd(p, s, fill(0x1.54127p-8f));
  p = hn::MulAdd(p, s, fill(-0x1.b7fabap-6f));
  p = hn::MulAdd(p, s, fill(0x1.ce2d1p-4f));
  p = hn::MulAdd(p, s, fill(-0x1.81273ep-2f));
  p = hn::MulAdd(p, s, fill(0x1.20dd74p+0f));
  const Floats far = hn::NegMulAdd(scaled_erfc(t), exp_of(hn::Neg(s)), fill(1.0f));
  return hn::IfThenElse(hn::Gt(t, fill(1.0f)), hn::CopySign(far, x), hn::Mul(p, x));
}

// The normal distribution below x, given e = exp(-x^2 / 2): from the nearer end, so that small values keep their
// digits.
HWY_INLINE Floats normal_below(Floats x, Floats e) {
  const Floats tail = hn::Mul(fill(0.5f), hn::Mul(scaled_erfc(hn::Mul(hn::Abs(x), fill(0.70710678f))), e));
  return hn::IfThenElse(hn::Gt(x, zeros()), hn::Sub(fill(1.0f), tail), tail);
}
HWY_INLINE Floats half_square_exp(Floats x) { return exp_of(hn::Mul(hn::Mul(x, fill(-0.5f)), x)); }
HWY_INLINE Floats gelu_of(Floats x) { return hn::Mul(x, normal_below(x, half_square_exp(x))); }
HWY_INLINE Floats gelu_slope_of(Floats x) {
  const Floats e = half_square_exp(x);
  return hn::MulAdd(x, hn::Mul(e, fill(0.39894228f)), normal_below(x, e));
}

// 2 sqrt(2 / pi) (x + 0.044715 x^3)
HWY_INLINE Floats gelu_tanh_inner(Floats x) {
  return hn::Mul(hn::Mul(x, fill(1.59576912f)), hn::MulAdd(hn::Mul(x, x), fill(0.044715f), fill(1.0f)));
}
HWY_INLINE Floats gelu_tanh_of(Floats x) { return hn::Mul(x, sigmoid_of(gelu_tanh_inner(x))); }
// s + x s (1 - s) inner', where s (1 - s) = e / (1 + e)^2 with e = exp(-|inner|): no 1 - s, which loses its digits.
HWY_INLINE Floats gelu_tanh_slope_of(Floats x) {
  const Floats one = fill(1.0f), e = exp_of(hn::Neg(hn::Abs(gelu_tanh_inner(x)))), r = hn::Div(one, hn::Add(one, e));
  const Floats slope = hn::Mul(fill(1.59576912f), hn::MulAdd(hn::Mul(x, x), fill(3 * 0.044715f), one));
  const Floats s = hn::IfThenElse(hn::Gt(x, zeros()), r, hn::Mul(e, r));
  return hn::MulAdd(hn::Mul(x, hn::Mul(hn::Mul(e, r), r)), slope, s);
}

HWY_INLINE Floats softplus_of(Floats x) { return hn::Add(relu_of(x), hn::Log1p(Tag(), exp_of(hn::Neg(hn::Abs(x))))); }
HWY_INLINE Floats hard_sigmoid_of(Floats x) { return hn::Mul(relu6_of(hn::Add(x, fill(3.0f))), fill(1.0f / 6)); }
HWY_INLINE Floats hard_swish_slope_of(Floats x) {
  const Floats three = fill(3.0f), one = fill(1.0f);
  const Floats inner = hn::IfThenElse(hn::Gt(x, three), one, hn::MulAdd(x, fill(1.0f / 3), fill(0.5f)));
  return hn::IfThenElse(hn::Lt(x, hn::Neg(three)), zeros(), inner);
}

// Derivatives, given the function's value.
HWY_INLINE Floats slope_of_sigmoid(Floats y) { return hn::Mul(y, hn::Sub(fill(1.0f), y)); }
HWY_INLINE Floats slope_of_tanh(Floats y) { return hn::NegMulAdd(y, y, fill(1.0f)); }

}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SITU_BACKEND_CPU_MATH_INL_H_
