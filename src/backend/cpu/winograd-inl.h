// winograd-inl.h -- Winograd's transforms (ops/winograd.h), a vector of channels at a time.
//
// A line is one axis of a square of vectors: `x(i)` gives vector i of the line, `y(i, v)` takes a result. Squares rest
// half done in memory, which the L1 cache holds: vectors of unknown length fit no array.
#if defined(SITU_BACKEND_CPU_WINOGRAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SITU_BACKEND_CPU_WINOGRAD_INL_H_
#undef SITU_BACKEND_CPU_WINOGRAD_INL_H_
#else
#define SITU_BACKEND_CPU_WINOGRAD_INL_H_
#endif

#include "backend/cpu/simd-inl.h"
#include "backend/cpu/winograd.h"

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {

// The six points: +-P and +-Q, and the products of their distances from the others.
constexpr float P = ops::winograd::kNear, Q = ops::winograd::kFar, PP = P * P, QQ = Q * Q;
constexpr float kFinitePoints[] = {0, P, -P, Q, -Q};
constexpr float kAt0 = PP * QQ, kAtP = 2 * PP * (PP - QQ), kAtQ = 2 * QQ * (QQ - PP);

HWY_INLINE Floats times(float a, Floats v) { return hn::Mul(fill(a), v); }
HWY_INLINE Floats plus_times(Floats sum, float a, Floats v) { return hn::MulAdd(fill(a), v, sum); }
HWY_INLINE Floats minus_times(Floats sum, float a, Floats v) { return hn::NegMulAdd(fill(a), v, sum); }

template <int OUT_, int KERNEL_>
struct Scheme {
  static constexpr int kOut = OUT_, kKernel = KERNEL_, kSide = OUT_ + KERNEL_ - 1;
  static constexpr bool kSixPoints = kSide == 6;
};
using Tiles43 = Scheme<4, 3>;
using Tiles23 = Scheme<2, 3>;
using Tiles25 = Scheme<2, 5>;

template <class S>
struct InputLine {  // B^T x
  static constexpr int kFrom = S::kSide, kTo = S::kSide;
  template <class X, class Y>
  static HWY_INLINE void run(const X& x, const Y& y) {
    const Floats x0 = x(0), x1 = x(1), x2 = x(2), x3 = x(3);
    if constexpr (S::kSixPoints) {
      const Floats x4 = x(4), x5 = x(5);
      const Floats near = minus_times(x4, QQ, x2), near_odd = times(P, minus_times(x3, QQ, x1));
      const Floats far = minus_times(x4, PP, x2), far_odd = times(Q, minus_times(x3, PP, x1));
      y(0, plus_times(minus_times(x4, PP + QQ, x2), kAt0, x0));
      y(1, hn::Add(near, near_odd));
      y(2, hn::Sub(near, near_odd));
      y(3, hn::Add(far, far_odd));
      y(4, hn::Sub(far, far_odd));
      y(5, plus_times(minus_times(x5, PP + QQ, x3), kAt0, x1));
    } else {
      y(0, hn::Sub(x0, x2));
      y(1, hn::Add(x1, x2));
      y(2, hn::Sub(x2, x1));
      y(3, hn::Sub(x1, x3));
    }
  }
};

template <class S>
struct WeightLine {  // G w
  static constexpr int kFrom = S::kKernel, kTo = S::kSide;
  template <class X, class Y>
  static HWY_INLINE void run(const X& w, const Y& y) {
    const Floats w0 = w(0), w1 = w(1), w2 = w(2);
    if constexpr (S::kSixPoints) {
      Floats near = w2, near_odd = w1, far = w2, far_odd = w1;
      if constexpr (S::kKernel == 5) {
        const Floats w3 = w(3), w4 = w(4);
        near = plus_times(w2, PP, w4);
        near_odd = plus_times(w1, PP, w3);
        far = plus_times(w2, QQ, w4);
        far_odd = plus_times(w1, QQ, w3);
        y(5, w4);
      } else {
        y(5, w2);
      }
      near = times(1 / kAtP, plus_times(w0, PP, near));
      near_odd = times(P / kAtP, near_odd);
      far = times(1 / kAtQ, plus_times(w0, QQ, far));
      far_odd = times(Q / kAtQ, far_odd);
      y(0, times(1 / kAt0, w0));
      y(1, hn::Add(near, near_odd));
      y(2, hn::Sub(near, near_odd));
      y(3, hn::Add(far, far_odd));
      y(4, hn::Sub(far, far_odd));
    } else {
      const Floats near = times(0.5f, hn::Add(w0, w2)), near_odd = times(0.5f, w1);
      y(0, w0);
      y(1, hn::Add(near, near_odd));
      y(2, hn::Sub(near, near_odd));
      y(3, w2);
    }
  }
};

template <class S>
struct OutputLine {  // A^T m
  static constexpr int kFrom = S::kSide, kTo = S::kOut;
  template <class X, class Y>
  static HWY_INLINE void run(const X& m, const Y& y) {
    const Floats m0 = m(0), m1 = m(1), m2 = m(2), m3 = m(3);
    if constexpr (S::kSixPoints) {
      const Floats m4 = m(4), m5 = m(5);
      const Floats near = hn::Add(m1, m2), near_odd = times(P, hn::Sub(m1, m2)), far = hn::Add(m3, m4);
      y(0, hn::Add(hn::Add(m0, near), far));
      if constexpr (S::kOut == 4) {
        const Floats far_odd = times(Q, hn::Sub(m3, m4));
        y(1, hn::Add(near_odd, far_odd));
        y(2, plus_times(times(PP, near), QQ, far));
        y(3, hn::Add(plus_times(times(PP, near_odd), QQ, far_odd), m5));
      } else {
        y(1, hn::Add(plus_times(near_odd, Q, hn::Sub(m3, m4)), m5));
      }
    } else {
      y(0, hn::Add(hn::Add(m0, m1), m2));
      y(1, hn::Sub(hn::Sub(m1, m2), m3));
    }
  }
};

template <class S>
struct DyLine {  // A y
  static constexpr int kFrom = S::kOut, kTo = S::kSide;
  template <class X, class Y>
  static HWY_INLINE void run(const X& y, const Y& e) {
    const Floats y0 = y(0), y1 = y(1);
    e(0, y0);
    if constexpr (S::kSixPoints) {
      Floats near = y0, near_odd = y1, far = y0, far_odd = y1;
      if constexpr (S::kOut == 4) {
        const Floats y2 = y(2), y3 = y(3);
        near = plus_times(y0, PP, y2);
        near_odd = plus_times(y1, PP, y3);
        far = plus_times(y0, QQ, y2);
        far_odd = plus_times(y1, QQ, y3);
        e(5, y3);
      } else {
        e(5, y1);
      }
      e(1, plus_times(near, P, near_odd));
      e(2, minus_times(near, P, near_odd));
      e(3, plus_times(far, Q, far_odd));
      e(4, minus_times(far, Q, far_odd));
    } else {
      e(1, hn::Add(y0, y1));
      e(2, hn::Sub(y0, y1));
      e(3, hn::Neg(y1));
    }
  }
};

template <class S>
struct DwLine {  // G^T m
  static constexpr int kFrom = S::kSide, kTo = S::kKernel;
  template <class X, class Y>
  static HWY_INLINE void run(const X& m, const Y& w) {
    const Floats m0 = m(0), m1 = m(1), m2 = m(2), m3 = m(3);
    const Floats near = hn::Add(m1, m2), near_odd = hn::Sub(m1, m2);
    if constexpr (S::kSixPoints) {
      const Floats m4 = m(4), m5 = m(5), far = hn::Add(m3, m4), far_odd = hn::Sub(m3, m4);
      w(0, plus_times(plus_times(times(1 / kAt0, m0), 1 / kAtP, near), 1 / kAtQ, far));
      w(1, plus_times(times(P / kAtP, near_odd), Q / kAtQ, far_odd));
      const Floats last = S::kKernel == 5 ? zeros() : m5;
      w(2, plus_times(plus_times(last, PP / kAtP, near), QQ / kAtQ, far));
      if constexpr (S::kKernel == 5) {
        w(3, plus_times(times(P * PP / kAtP, near_odd), Q * QQ / kAtQ, far_odd));
        w(4, plus_times(plus_times(m5, PP * PP / kAtP, near), QQ * QQ / kAtQ, far));
      }
    } else {
      w(0, plus_times(m0, 0.5f, near));
      w(1, times(0.5f, near_odd));
      w(2, plus_times(m3, 0.5f, near));
    }
  }
};

// One transform down the columns and along the rows of a square: y(i, j, v) of x(i, j).
template <class Line, class X, class Y>
HWY_INLINE void transform(const X& x, const Y& y) {
  const Tag d;
  HWY_ALIGN float half_done[Line::kTo * Line::kFrom * hn::MaxLanes(d)];
  const int64_t width = lanes();
  for (int j = 0; j < Line::kFrom; ++j)
    Line::run([&](int i) HWY_ATTR { return x(i, j); },
              [&](int i, Floats v) HWY_ATTR { hn::Store(v, d, half_done + (i * Line::kFrom + j) * width); });
  for (int i = 0; i < Line::kTo; ++i)
    Line::run([&](int j) HWY_ATTR { return hn::Load(d, half_done + (i * Line::kFrom + j) * width); },
              [&](int j, Floats v) HWY_ATTR { y(i, j, v); });
}

// That of n channels from c on of a tile of pixels; `to` takes the first point, the others are `plane` apart.
template <class Line>
HWY_INLINE void transform_pixels(const TilePixels<Line::kFrom>& pixels, int64_t c, int64_t n, float* to,
                                 int64_t plane) {
  constexpr int kSide = Line::kFrom;
  const auto store = [&](int i, int j, Floats v) HWY_ATTR { hn::StoreU(v, Tag(), to + (i * Line::kTo + j) * plane); };
  if (pixels.first && n >= lanes()) {
    const float* first = pixels.first + c;
    transform<Line>([&](int i, int j) HWY_ATTR { return hn::LoadU(Tag(), first + i * pixels.line + j * pixels.pitch); },
                    store);
  } else if (pixels.first) {
    const float* first = pixels.first + c;
    transform<Line>([&](int i, int j) HWY_ATTR { return load_part(first + i * pixels.line + j * pixels.pitch, n); },
                    store);
  } else {
    transform<Line>(
        [&](int i, int j) HWY_ATTR {
          const int64_t p = i * kSide + j;
          return load_up_to(pixels.at[p] + pixels.step[p] * c, n);
        },
        store);
  }
}

}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SITU_BACKEND_CPU_WINOGRAD_INL_H_
