// depthwise3.cpp -- rows of a depthwise convolution that lie in the nearest cache, one vector of channels after the
// other: no prefetching, and what a loop needs in registers.
#include "backend/cpu/depthwise3.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/depthwise3.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include "backend/cpu/depthwise3-inl.h"
#include "backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

// x u + y v + z w
HWY_INLINE Floats three(Floats x, Floats y, Floats z, Floats u, Floats v, Floats w) {
  return hn::MulAdd(z, w, hn::MulAdd(y, v, hn::Mul(x, u)));
}

// Products of a column are summed before they meet those of others, or each result would be a chain of nine
// multiply-adds, whose latency shows.
#define SITU_NEAR_ROW                                                                                   \
  const int64_t left = d.channels - c, pitch = d.y_pitch, columns = row.columns, results = row.results; \
  const int64_t step0 = row.lines.step[0], step1 = row.lines.step[1], step2 = row.lines.step[2];        \
  const float *p0 = row.lines.first[0] + c, *p1 = row.lines.first[1] + c, *p2 = row.lines.first[2] + c; \
  Floats u0, v0, w0, u1, v1, w1, u2, v2, w2; /* taps 0, 1, 2 of the three lines */                      \
  load_weights(row.weights, 0, c, left, u0, v0, w0);                                                    \
  load_weights(row.weights, 1, c, left, u1, v1, w1);                                                    \
  load_weights(row.weights, 2, c, left, u2, v2, w2);                                                    \
  const Floats begin = begin_of(d.range, c, left), low = fill(d.range.low), high = fill(d.range.high);  \
  float* to = d.y + row.pixel0 * pitch + c;                                                             \
  const auto put_next = [&](Floats sum) HWY_ATTR {                                                      \
    store_up_to<WHOLE>(at_most(high, at_least(low, sum)), to, left);                                    \
    to += pitch;                                                                                        \
  };

template <bool WHOLE>
void near_by_one(const DepthwiseResult& d, const DepthwiseRow& row, int64_t c) {
  SITU_NEAR_ROW
  Floats begun = begin, half = begin;
  int64_t i = 0, o = row.before - 2;  // the result that column i finishes
  const auto next_column = [&]() HWY_ATTR {
    const Floats x = load_up_to<WHOLE>(p0, left), y = load_up_to<WHOLE>(p1, left), z = load_up_to<WHOLE>(p2, left);
    p0 += step0, p1 += step1, p2 += step2;
    const Floats done = hn::Add(half, three(x, y, z, u2, v2, w2));
    half = hn::Add(begun, three(x, y, z, u1, v1, w1));
    begun = plus(begin, x, y, z, u0, v0, w0);
    return done;
  };
  for (; o < 0 && i < columns; ++o, ++i) next_column();
  for (; o < results && i < columns; ++o, ++i) put_next(next_column());
  for (; o < results; ++o) {  // what the image's last columns began
    if (o >= 0) put_next(half);
    half = begun;
    begun = begin;
  }
}

template <bool WHOLE>
void near_by_two(const DepthwiseResult& d, const DepthwiseRow& row, int64_t c) {
  SITU_NEAR_ROW
  Floats x, y, z;
  int64_t i = -row.before;
  p0 += i * step0, p1 += i * step1, p2 += i * step2;
  const auto next_column = [&]() HWY_ATTR {
    const bool inside = i >= 0 && i < columns;
    x = inside ? load_up_to<WHOLE>(p0, left) : zeros();
    y = inside ? load_up_to<WHOLE>(p1, left) : zeros();
    z = inside ? load_up_to<WHOLE>(p2, left) : zeros();
    p0 += step0, p1 += step1, p2 += step2;
    ++i;
  };
  next_column();
  for (int64_t o = 0; o < results; ++o) {
    const Floats begun = plus(begin, x, y, z, u0, v0, w0);
    next_column();
    const Floats half = hn::Add(begun, three(x, y, z, u1, v1, w1));
    next_column();
    put_next(hn::Add(half, three(x, y, z, u2, v2, w2)));
  }
}
#undef SITU_NEAR_ROW

// The sum of three products of a column, of which those with rows outside the image are left out.
template <bool X, bool Y, bool Z>
HWY_INLINE Floats some_of_three(Floats x, Floats y, Floats z, Floats u, Floats v, Floats w) {
  if constexpr (!X && !Y) return hn::Mul(z, w);
  Floats sum = X ? hn::Mul(x, u) : hn::Mul(y, v);
  if constexpr (X && Y) sum = hn::MulAdd(y, v, sum);
  if constexpr (Z) sum = hn::MulAdd(z, w, sum);
  return sum;
}

// All rows of an image with one load of the weights: short rows would be over as soon as those are there.
template <bool WHOLE>
void near_image(const DepthwiseResult& d, const DepthwiseImage& image, int64_t c) {
  const int64_t left = d.channels - c, pitch = d.y_pitch, columns = image.in_w, results = image.out_w;
  Floats u0, v0, w0, u1, v1, w1, u2, v2, w2;  // taps 0, 1, 2 of the three lines
  load_weights(image.weights, 0, c, left, u0, v0, w0);
  load_weights(image.weights, 1, c, left, u1, v1, w1);
  load_weights(image.weights, 2, c, left, u2, v2, w2);
  const Floats begin = begin_of(d.range, c, left), low = fill(d.range.low), high = fill(d.range.high);
  float* to = d.y + c;
  const auto put_next = [&](Floats sum) HWY_ATTR {
    store_up_to<WHOLE>(at_most(high, at_least(low, sum)), to, left);
    to += pitch;
  };
#define SITU_NEAR_LINES(X, Y, Z)                                                                             \
  {                                                                                                          \
    Floats begun = begin, half = begin;                                                                      \
    int64_t i = 0, q = image.before - 2; /* the result that column i finishes */                             \
    for (; q < results && i < columns; ++q, ++i) {                                                           \
      const Floats x = X ? load_up_to<WHOLE>(p0, left) : begin, y = Y ? load_up_to<WHOLE>(p1, left) : begin, \
                   z = Z ? load_up_to<WHOLE>(p2, left) : begin;                                              \
      p0 += step0, p1 += step1, p2 += step2;                                                                 \
      if (q >= 0) put_next(hn::Add(half, some_of_three<X, Y, Z>(x, y, z, u2, v2, w2)));                      \
      half = hn::Add(begun, some_of_three<X, Y, Z>(x, y, z, u1, v1, w1));                                    \
      begun = begin;                                                                                         \
      if constexpr (X) begun = hn::MulAdd(x, u0, begun);                                                     \
      if constexpr (Y) begun = hn::MulAdd(y, v0, begun);                                                     \
      if constexpr (Z) begun = hn::MulAdd(z, w0, begun);                                                     \
    }                                                                                                        \
    for (; q < results; ++q) { /* what the image's last columns began */                                     \
      if (q >= 0) put_next(half);                                                                            \
      half = begun;                                                                                          \
      begun = begin;                                                                                         \
    }                                                                                                        \
  }
  for (int64_t o = 0; o < image.out_h; ++o) {
    const int64_t top = o - image.above;
    const auto inside = [&](int64_t r) { return top + r >= 0 && top + r < image.in_h; };
    const bool first = inside(0), second = inside(1), third = inside(2);
    const auto line = [&](int64_t r) { return (inside(r) ? image.first + (top + r) * image.line : image.zeros) + c; };
    const float *p0 = line(0), *p1 = line(1), *p2 = line(2);
    const int64_t step0 = first ? image.step : 0, step1 = second ? image.step : 0, step2 = third ? image.step : 0;
    if (!first && second && third)
      SITU_NEAR_LINES(false, true, true)
    else if (first && second && !third)
      SITU_NEAR_LINES(true, true, false)
    else
      SITU_NEAR_LINES(true, true, true)
  }
#undef SITU_NEAR_LINES
}
void near_image_of(const DepthwiseResult& d, const DepthwiseImage& image) {
  int64_t c = 0;
  for (; c + lanes() <= d.channels; c += lanes()) near_image<true>(d, image, c);
  if (c < d.channels) near_image<false>(d, image, c);
}
DepthwiseWhole near_image_function() { return near_image_of; }

// Transformed weights of one tap, of three lines.
HWY_INLINE void turn_weights(const DepthwiseWeights& w, int64_t s, int64_t c, int64_t left, Floats& g0, Floats& g1,
                             Floats& g2, Floats& g3) {
  Floats middle;
  load_weights(w, s, c, left, g0, middle, g3);
  const Floats half = fill(0.5f), outer = hn::Mul(half, hn::Add(g0, g3));
  g1 = hn::MulAdd(half, middle, outer);
  g2 = hn::NegMulAdd(half, middle, outer);
}

template <bool WHOLE>
void near_pair(const DepthwiseResult& d, const DepthwiseRows& rows, int64_t c) {
  const int64_t left = d.channels - c, pitch = d.y_pitch, columns = rows.columns, results = rows.results;
  const int64_t step0 = rows.step[0], step1 = rows.step[1], step2 = rows.step[2], step3 = rows.step[3];
  const float *p0 = rows.first[0] + c, *p1 = rows.first[1] + c, *p2 = rows.first[2] + c, *p3 = rows.first[3] + c;
  Floats a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3;
  turn_weights(rows.weights, 0, c, left, a0, a1, a2, a3);
  turn_weights(rows.weights, 1, c, left, b0, b1, b2, b3);
  turn_weights(rows.weights, 2, c, left, c0, c1, c2, c3);
  const Floats begin = begin_of(d.range, c, left), low = fill(d.range.low), high = fill(d.range.high);
  float *upper = d.y + c, *lower = upper + d.below * pitch;
  // Sums begin with the bias where each result meets it once.
  Floats begun0 = begin, begun1 = zeros(), begun2 = begun1, begun3 = hn::Neg(begin);
  Floats half0 = begun0, half1 = begun1, half2 = begun2, half3 = begun3;
  const auto put_next = [&](Floats m0, Floats m1, Floats m2, Floats m3) HWY_ATTR {
    const Floats one = hn::Add(hn::Add(m0, m1), m2), other = hn::Sub(hn::Sub(m1, m2), m3);
    store_up_to<WHOLE>(at_most(high, at_least(low, one)), upper, left);
    store_up_to<WHOLE>(at_most(high, at_least(low, other)), lower, left);
    upper += pitch, lower += pitch;
  };
  int64_t i = 0, q = rows.before - 2;  // the result that column i finishes
  for (; q < results && i < columns; ++q, ++i) {
    const Floats x0 = load_up_to<WHOLE>(p0, left), x1 = load_up_to<WHOLE>(p1, left), x2 = load_up_to<WHOLE>(p2, left),
                 x3 = load_up_to<WHOLE>(p3, left);
    p0 += step0, p1 += step1, p2 += step2, p3 += step3;
    const Floats t0 = hn::Sub(x0, x2), t1 = hn::Add(x1, x2), t2 = hn::Sub(x2, x1), t3 = hn::Sub(x1, x3);
    if (q >= 0)
      put_next(hn::MulAdd(t0, c0, half0), hn::MulAdd(t1, c1, half1), hn::MulAdd(t2, c2, half2),
               hn::MulAdd(t3, c3, half3));
    half0 = hn::MulAdd(t0, b0, begun0), half1 = hn::MulAdd(t1, b1, begun1);
    half2 = hn::MulAdd(t2, b2, begun2), half3 = hn::MulAdd(t3, b3, begun3);
    begun0 = hn::MulAdd(t0, a0, begin), begun1 = hn::Mul(t1, a1);
    begun2 = hn::Mul(t2, a2), begun3 = hn::MulSub(t3, a3, begin);
  }
  for (; q < results; ++q) {  // what the image's last columns began
    if (q >= 0) put_next(half0, half1, half2, half3);
    half0 = begun0, half1 = begun1, half2 = begun2, half3 = begun3;
    begun0 = begin, begun1 = zeros(), begun2 = zeros(), begun3 = hn::Neg(begin);
  }
}
void near_pair_of(const DepthwiseResult& d, const DepthwiseRows& rows) {
  int64_t c = 0;
  for (; c + lanes() <= d.channels; c += lanes()) near_pair<true>(d, rows, c);
  if (c < d.channels) near_pair<false>(d, rows, c);
}
DepthwisePair near_pair_function() { return near_pair_of; }

template <int STRIDE>
void near_row(const DepthwiseResult& d, const DepthwiseRow& row) {
  int64_t c = 0;
  for (; c + lanes() <= d.channels; c += lanes())
    STRIDE == 1 ? near_by_one<true>(d, row, c) : near_by_two<true>(d, row, c);
  if (c < d.channels) STRIDE == 1 ? near_by_one<false>(d, row, c) : near_by_two<false>(d, row, c);
}

DepthwiseForward near_row_function(int64_t stride) { return stride == 1 ? near_row<1> : near_row<2>; }

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(near_row_function);
HWY_EXPORT(near_image_function);
HWY_EXPORT(near_pair_function);
}  // namespace

DepthwiseForward depthwise3_near_function(int64_t stride) { return HWY_DYNAMIC_DISPATCH(near_row_function)(stride); }

DepthwisePair depthwise3_near_pair_function() { return HWY_DYNAMIC_DISPATCH(near_pair_function)(); }
DepthwiseWhole depthwise3_near_image_function() { return HWY_DYNAMIC_DISPATCH(near_image_function)(); }

}  // namespace situ::cpu
#endif
