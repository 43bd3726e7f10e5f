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

// OUT = 4: the points +-P and +-Q, and the products of their distances from the others.
constexpr float P = ops::winograd::kNear, Q = ops::winograd::kFar, PP = P * P, QQ = Q * Q;
constexpr float kAt0 = PP * QQ, kAtP = 2 * PP * (PP - QQ), kAtQ = 2 * QQ * (QQ - PP);

HWY_INLINE Floats times(float a, Floats v) { return hn::Mul(fill(a), v); }
HWY_INLINE Floats plus_times(Floats sum, float a, Floats v) { return hn::MulAdd(fill(a), v, sum); }
HWY_INLINE Floats minus_times(Floats sum, float a, Floats v) { return hn::NegMulAdd(fill(a), v, sum); }

template <int OUT>
struct InputLine {  // B^T x
  static constexpr int kFrom = OUT + 2, kTo = OUT + 2;
  template <class X, class Y>
  static HWY_INLINE void run(const X& x, const Y& y) {
    const Floats x0 = x(0), x1 = x(1), x2 = x(2), x3 = x(3);
    if constexpr (OUT == 4) {
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

template <int OUT>
struct WeightLine {  // G w
  static constexpr int kFrom = 3, kTo = OUT + 2;
  template <class X, class Y>
  static HWY_INLINE void run(const X& w, const Y& y) {
    const Floats w0 = w(0), w1 = w(1), w2 = w(2);
    y(0, OUT == 4 ? times(1 / kAt0, w0) : w0);
    y(OUT + 1, w2);
    const Floats near = OUT == 4 ? times(1 / kAtP, plus_times(w0, PP, w2)) : times(0.5f, hn::Add(w0, w2));
    const Floats near_odd = times(OUT == 4 ? P / kAtP : 0.5f, w1);
    y(1, hn::Add(near, near_odd));
    y(2, hn::Sub(near, near_odd));
    if constexpr (OUT == 4) {
      const Floats far = times(1 / kAtQ, plus_times(w0, QQ, w2)), far_odd = times(Q / kAtQ, w1);
      y(3, hn::Add(far, far_odd));
      y(4, hn::Sub(far, far_odd));
    }
  }
};

template <int OUT>
struct OutputLine {  // A^T m
  static constexpr int kFrom = OUT + 2, kTo = OUT;
  template <class X, class Y>
  static HWY_INLINE void run(const X& m, const Y& y) {
    const Floats m0 = m(0), m1 = m(1), m2 = m(2), m3 = m(3);
    if constexpr (OUT == 4) {
      const Floats m4 = m(4), m5 = m(5);
      const Floats near = hn::Add(m1, m2), near_odd = times(P, hn::Sub(m1, m2));
      const Floats far = hn::Add(m3, m4), far_odd = times(Q, hn::Sub(m3, m4));
      y(0, hn::Add(hn::Add(m0, near), far));
      y(1, hn::Add(near_odd, far_odd));
      y(2, plus_times(times(PP, near), QQ, far));
      y(3, hn::Add(plus_times(times(PP, near_odd), QQ, far_odd), m5));
    } else {
      y(0, hn::Add(hn::Add(m0, m1), m2));
      y(1, hn::Sub(hn::Sub(m1, m2), m3));
    }
  }
};

template <int OUT>
struct DyLine {  // A y
  static constexpr int kFrom = OUT, kTo = OUT + 2;
  template <class X, class Y>
  static HWY_INLINE void run(const X& y, const Y& e) {
    const Floats y0 = y(0), y1 = y(1);
    e(0, y0);
    if constexpr (OUT == 4) {
      const Floats y2 = y(2), y3 = y(3);
      const Floats near = plus_times(y0, PP, y2), near_odd = times(P, plus_times(y1, PP, y3));
      const Floats far = plus_times(y0, QQ, y2), far_odd = times(Q, plus_times(y1, QQ, y3));
      e(1, hn::Add(near, near_odd));
      e(2, hn::Sub(near, near_odd));
      e(3, hn::Add(far, far_odd));
      e(4, hn::Sub(far, far_odd));
      e(5, y3);
    } else {
      e(1, hn::Add(y0, y1));
      e(2, hn::Sub(y0, y1));
      e(3, hn::Neg(y1));
    }
  }
};

template <int OUT>
struct DwLine {  // G^T m
  static constexpr int kFrom = OUT + 2, kTo = 3;
  template <class X, class Y>
  static HWY_INLINE void run(const X& m, const Y& w) {
    const Floats m0 = m(0), m1 = m(1), m2 = m(2), m3 = m(3);
    const Floats near = hn::Add(m1, m2), near_odd = hn::Sub(m1, m2);
    if constexpr (OUT == 4) {
      const Floats m4 = m(4), m5 = m(5), far = hn::Add(m3, m4), far_odd = hn::Sub(m3, m4);
      w(0, plus_times(plus_times(times(1 / kAt0, m0), 1 / kAtP, near), 1 / kAtQ, far));
      w(1, plus_times(times(P / kAtP, near_odd), Q / kAtQ, far_odd));
      w(2, plus_times(plus_times(m5, PP / kAtP, near), QQ / kAtQ, far));
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
