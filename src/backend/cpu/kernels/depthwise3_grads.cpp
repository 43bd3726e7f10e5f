// depthwise3_grads.cpp -- both gradients of a depthwise convolution of 3 x 3 taps in one pass over its image:
//
//   dx[p,c]    = epilogue( sum over taps  dy[output that reads p at tap, c] * w[tap, c] )
//   dw[tap,c]  = sum over pixels p  x[p, c] * dy[output that reads p at tap, c]
// A pixel meets the same values of dy in both, and x is often what masks dx: apart, the two launches read x and dy from
// far memory twice. The sums of dw are parts, one for each task, which is a run of image rows (pass/joint_gradients.cpp
// joins the launches of depthwise3.cpp).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels/depthwise3_grads.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <hwy/cache_control.h>

#include <algorithm>

#include "backend/cpu/epilogue-inl.h"
#include "backend/cpu/matrix.h"
#include "backend/cpu/simd-inl.h"
#include "backend/cpu/tile.h"
#include "base/error.h"
#include "ops/window.h"

#ifndef SITU_BACKEND_CPU_DEPTHWISE3_GRADS_ONCE_
#define SITU_BACKEND_CPU_DEPTHWISE3_GRADS_ONCE_
namespace situ::cpu {
namespace {
struct Depthwise3Grads {
  ops::Window window;
  int64_t images = 0, channels = 0, parts = 1;
  Matrix dy, w, x, dx, dw;
  TileEpilogue epilogue;
};
constexpr int64_t kRun = 16;  // pixels or, by two, pairs of them that a vector of channels goes through

// The rows of dy that one row of the image meets, and the kernel's rows that they meet it with.
struct Meetings {
  const float* dy[3];
  int64_t tap[3];
  int64_t pixel0;  // the image row's first
  float* sums;     // of dw, nine rows
};
}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

template <bool WHOLE>
HWY_INLINE void put(const Depthwise3Grads& g, Floats sum, int64_t pixel, int64_t c, int64_t left) {
  if (g.epilogue.count > 0) sum = apply_epilogue(g.epilogue, sum, pixel, c, WHOLE ? lanes() : left);
  store_up_to<WHOLE>(sum, g.dx.at(pixel, c), left);
  hwy::Prefetch(g.dx.at(pixel + g.window.x.in, c));
}
template <bool WHOLE>
HWY_INLINE Floats pixel_of(const Depthwise3Grads& g, int64_t pixel, int64_t c, int64_t left) {
  hwy::Prefetch(g.x.at(pixel + g.window.x.in, c));
  return load_up_to<WHOLE>(g.x.at(pixel, c), left);
}

// Weights u and sums d of kernel rows a, b, c by taps 0, 1, 2: names, because vectors of unknown length fit no array.
#define SITU_FOR_ROWS(X, t)          \
  if constexpr (ROWS > 0) X(0, a, t) \
  if constexpr (ROWS > 1) X(1, b, t) \
  if constexpr (ROWS > 2) X(2, c, t)
#define SITU_LOAD_WEIGHT(r, row, t) u##row##t = load_up_to<WHOLE>(g.w.at(m.tap[r] * 3 + t, c0), left);
#define SITU_STORE_SUM(r, row, t)                                                        \
  {                                                                                      \
    float* total = m.sums + (m.tap[r] * 3 + t) * g.dw.pitch + c0;                        \
    store_up_to<WHOLE>(hn::Add(load_up_to<WHOLE>(total, left), d##row##t), total, left); \
  }
#define SITU_WEIGHTS_AND_SUMS                                                                                   \
  Floats ua0 = zeros(), ua1 = ua0, ua2 = ua0, ub0 = ua0, ub1 = ua0, ub2 = ua0, uc0 = ua0, uc1 = ua0, uc2 = ua0; \
  Floats da0 = zeros(), da1 = da0, da2 = da0, db0 = da0, db1 = da0, db2 = da0, dc0 = da0, dc1 = da0, dc2 = da0; \
  SITU_FOR_ROWS(SITU_LOAD_WEIGHT, 0)                                                                            \
  SITU_FOR_ROWS(SITU_LOAD_WEIGHT, 1)                                                                            \
  SITU_FOR_ROWS(SITU_LOAD_WEIGHT, 2)
#define SITU_STORE_SUMS            \
  SITU_FOR_ROWS(SITU_STORE_SUM, 0) \
  SITU_FOR_ROWS(SITU_STORE_SUM, 1) \
  SITU_FOR_ROWS(SITU_STORE_SUM, 2)

// Pixels [i0, i1) of the row, stride 1: pixel i meets column i + before - s of dy at tap s.
template <int ROWS, bool WHOLE>
void by_one(const Depthwise3Grads& g, const Meetings& m, int64_t i0, int64_t i1, int64_t c0) {
  const ops::WindowAxis& wx = g.window.x;
  const int64_t left = g.channels - c0;
  SITU_WEIGHTS_AND_SUMS
  for (int64_t i = i0; i < i1; ++i) {
    const Floats x = pixel_of<WHOLE>(g, m.pixel0 + i, c0, left);
    Floats sum = zeros();
#define SITU_MEET(r, row, t)                                                      \
  {                                                                               \
    const Floats v = load_up_to<WHOLE>(m.dy[r] + column * g.dy.pitch + c0, left); \
    sum = hn::MulAdd(v, u##row##t, sum);                                          \
    d##row##t = hn::MulAdd(v, x, d##row##t);                                      \
  }
#define SITU_MEET_COLUMN(t)                                                       \
  if (const int64_t column = i + wx.before - t; column >= 0 && column < wx.out) { \
    SITU_FOR_ROWS(SITU_MEET, t)                                                   \
  }
    SITU_MEET_COLUMN(0)
    SITU_MEET_COLUMN(1)
    SITU_MEET_COLUMN(2)
    put<WHOLE>(g, sum, m.pixel0 + i, c0, left);
  }
  SITU_STORE_SUMS
}

// Pairs [o0, o1) of pixels, stride 2: pixel 2 o - before meets columns o and o - 1 at taps 0 and 2, the next one column
// o at tap 1.
template <int ROWS, bool WHOLE>
void by_two(const Depthwise3Grads& g, const Meetings& m, int64_t o0, int64_t o1, int64_t c0) {
  const ops::WindowAxis& wx = g.window.x;
  const int64_t left = g.channels - c0;
  SITU_WEIGHTS_AND_SUMS
  for (int64_t o = o0; o < o1; ++o) {
    const int64_t first = 2 * o - wx.before;
    if (first >= 0 && first < wx.in) {
      const Floats x = pixel_of<WHOLE>(g, m.pixel0 + first, c0, left);
      Floats sum = zeros();
      if (const int64_t column = o; column < wx.out) {
        SITU_FOR_ROWS(SITU_MEET, 0)
      }
      if (const int64_t column = o - 1; column >= 0 && column < wx.out) {
        SITU_FOR_ROWS(SITU_MEET, 2)
      }
      put<WHOLE>(g, sum, m.pixel0 + first, c0, left);
    }
    if (first + 1 >= 0 && first + 1 < wx.in) {
      const Floats x = pixel_of<WHOLE>(g, m.pixel0 + first + 1, c0, left);
      Floats sum = zeros();
      if (const int64_t column = o; column < wx.out) {
        SITU_FOR_ROWS(SITU_MEET, 1)
      }
      put<WHOLE>(g, sum, m.pixel0 + first + 1, c0, left);
    }
  }
  SITU_STORE_SUMS
}

using Run = void (*)(const Depthwise3Grads&, const Meetings&, int64_t, int64_t, int64_t);
template <int ROWS, bool WHOLE>
Run run_by(int64_t stride) {
  if constexpr (ROWS == 3) return by_one<3, WHOLE>;  // by two a pixel meets at most two rows
  if constexpr (ROWS < 3) return stride == 1 ? by_one<ROWS, WHOLE> : by_two<ROWS, WHOLE>;
}
template <bool WHOLE>
Run run_for(int rows, int64_t stride) {
  return rows == 3   ? run_by<3, WHOLE>(stride)
         : rows == 2 ? run_by<2, WHOLE>(stride)
         : rows == 1 ? run_by<1, WHOLE>(stride)
                     : run_by<0, WHOLE>(stride);
}

void grads_task(const Depthwise3Grads& g, int64_t part) {
  const ops::WindowAxis &wy = g.window.y, &wx = g.window.x;
  const int64_t rows = g.images * wy.in, row1 = rows * (part + 1) / g.parts;
  Meetings m{};
  m.sums = g.dw.row(part * 9);
  for (int64_t tap = 0; tap < 9; ++tap) std::fill_n(m.sums + tap * g.dw.pitch, g.channels, 0.0f);
  for (int64_t row = rows * part / g.parts; row < row1; ++row) {
    int met = 0;
    for (int64_t r = 0; r < 3; ++r) {
      const int64_t o_y = wy.output_at(row % wy.in, r);
      if (o_y < 0) continue;
      m.dy[met] = g.dy.row((row / wy.in * wy.out + o_y) * wx.out);
      m.tap[met++] = r;
    }
    m.pixel0 = row * wx.in;
    const Run whole = run_for<true>(met, wx.stride), part_of = run_for<false>(met, wx.stride);
    const int64_t count = wx.stride == 1 ? wx.in : ceil_div(wx.in + wx.before, 2);
    for (int64_t o = 0; o < count; o += kRun)
      for (int64_t c = 0; c < g.channels; c += lanes())
        (c + lanes() <= g.channels ? whole : part_of)(g, m, o, std::min(count, o + kRun), c);
  }
}

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(grads_task);

Work bind_grads(const Call& call) {
  const Operand &dy = call.in[0], &w = call.in[1], &x = call.in[2], &dx = call.out[0], &dw = call.out[1];
  Depthwise3Grads g{.window = ops::window_of(call.attrs, {dx.shape()[1], dx.shape()[2]}, {3, 3}),
                    .images = dx.shape()[0],
                    .channels = dx.cols(),
                    .parts = dw.shape().rank() == 5 ? dw.shape()[0] : 1,
                    .dy = Matrix(dy),
                    .w = Matrix(w),
                    .x = Matrix(x),
                    .dx = Matrix(dx),
                    .dw = Matrix(dw),
                    .epilogue = bind_epilogue(call, 3)};
  SITU_ASSERT(x.shape() == dx.shape() && dw.rows() == 9 * g.parts);
  const auto run = &HWY_DYNAMIC_DISPATCH(grads_task);
  return {g.parts, [g, run](int64_t task) { run(g, task); }};
}

}  // namespace

namespace kernels {
KernelList depthwise3_grads() {
  static constexpr Kernel kernels[] = {{"conv2d_depthwise3_grads", bind_grads}};
  return {kernels, {}};
}
}  // namespace kernels
}  // namespace situ::cpu
#endif
