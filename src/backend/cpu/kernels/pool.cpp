// pool.cpp -- maximum and average over windows of channels-last images, and their gradients; vectors run over channels.
//
//   max_pool       y  = max over the window's elements inside the image
//   max_pool_grad  dx = dy at the first maximum of its window in row-major order, 0 elsewhere
//   avg_pool       y  = sum over the window / number of elements inside (or the whole window: count_pad)
//   avg_pool_grad  dx = sum over the windows that hold the pixel of dy / number
// A task is one row of results (for overlapping windows of max_pool_grad: a few channels of one image, since neighbours
// add to the same pixel and must do so in order).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels/pool.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <algorithm>
#include <cstring>

#include "backend/cpu/kernel.h"
#include "backend/cpu/simd-inl.h"
#include "ops/window.h"

#ifndef SITU_BACKEND_CPU_POOL_ONCE_
#define SITU_BACKEND_CPU_POOL_ONCE_
namespace situ::cpu {
namespace {
constexpr int64_t kPlaneChannels = 16;  // of a task that owns whole image planes

struct Image {
  float* data = nullptr;
  int64_t h = 0, w = 0, pitch = 0;
  float* row(int64_t n, int64_t y) const { return data + (n * h + y) * w * pitch; }
};
struct Pool {
  ops::Window window;
  int64_t images = 0, channels = 0;
  bool count_pad = false;
  bool covered = false;  // every pixel lies in exactly one window
  Image x, y, dy, dx;
  float scale(int64_t o_y, int64_t o_x) const {
    const ops::Taps ty = window.y.taps_inside(o_y), tx = window.x.taps_inside(o_x);
    const int64_t count = count_pad ? window.y.kernel * window.x.kernel : (ty.end - ty.begin) * (tx.end - tx.begin);
    return 1.0f / static_cast<float>(count);
  }
};
}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

// Calls visit(input row pointer of tap, tap number) for the taps of output (o_y, o_x) inside image n.
template <class Visit>
HWY_INLINE void each_tap(const Pool& p, const Image& image, int64_t n, int64_t o_y, int64_t o_x, const Visit& visit) {
  const ops::Taps ty = p.window.y.taps_inside(o_y), tx = p.window.x.taps_inside(o_x);
  for (int64_t r = ty.begin; r < ty.end; ++r) {
    float* row = image.row(n, p.window.y.position(o_y, r));
    for (int64_t s = tx.begin; s < tx.end; ++s)
      visit(row + p.window.x.position(o_x, s) * image.pitch, static_cast<float>(r * p.window.x.kernel + s));
  }
}

void max_row(const Pool& p, int64_t task) {
  const int64_t n = task / p.y.h, o_y = task % p.y.h;
  float* to = p.y.row(n, o_y);
  for (int64_t o_x = 0; o_x < p.y.w; ++o_x, to += p.y.pitch)
    for (int64_t c = 0; c < p.channels; c += lanes()) {
      const int64_t left = p.channels - c;
      Floats best = fill(-std::numeric_limits<float>::infinity());
      each_tap(p, p.x, n, o_y, o_x,
               [&](const float* x, float) HWY_ATTR { best = hn::Max(best, load_up_to(x + c, left)); });
      store_up_to(best, to + c, left);
    }
}

void avg_row(const Pool& p, int64_t task) {
  const int64_t n = task / p.y.h, o_y = task % p.y.h;
  float* to = p.y.row(n, o_y);
  for (int64_t o_x = 0; o_x < p.y.w; ++o_x, to += p.y.pitch) {
    const Floats scale = fill(p.scale(o_y, o_x));
    for (int64_t c = 0; c < p.channels; c += lanes()) {
      const int64_t left = p.channels - c;
      Floats sum = zeros();
      each_tap(p, p.x, n, o_y, o_x,
               [&](const float* x, float) HWY_ATTR { sum = hn::Add(sum, load_up_to(x + c, left)); });
      store_up_to(hn::Mul(sum, scale), to + c, left);
    }
  }
}

void avg_grad_row(const Pool& p, int64_t task) {
  const int64_t n = task / p.dx.h, i_y = task % p.dx.h;
  const ops::WindowAxis &wy = p.window.y, &wx = p.window.x;
  float* to = p.dx.row(n, i_y);
  for (int64_t i_x = 0; i_x < p.dx.w; ++i_x, to += p.dx.pitch)
    for (int64_t c = 0; c < p.channels; c += lanes()) {
      const int64_t left = p.channels - c;
      Floats sum = zeros();
      for (int64_t r = 0; r < wy.kernel; ++r) {
        const int64_t o_y = wy.output_at(i_y, r);
        if (o_y < 0) continue;
        for (int64_t s = 0; s < wx.kernel; ++s) {
          const int64_t o_x = wx.output_at(i_x, s);
          if (o_x < 0) continue;
          const float* dy = p.dy.row(n, o_y) + o_x * p.dy.pitch + c;
          sum = hn::MulAdd(load_up_to(dy, left), fill(p.scale(o_y, o_x)), sum);
        }
      }
      store_up_to(sum, to + c, left);
    }
}

// The number of the tap that holds the first maximum of a window, for each channel of one vector.
HWY_INLINE Floats first_maximum(const Pool& p, int64_t n, int64_t o_y, int64_t o_x, int64_t c, int64_t left) {
  Floats best = zeros(), where = fill(-1.0f);
  each_tap(p, p.x, n, o_y, o_x, [&](const float* x, float tap) HWY_ATTR {
    const Floats v = load_up_to(x + c, left);
    const auto better = hn::Or(hn::Gt(v, best), hn::Lt(where, zeros()));
    best = hn::IfThenElse(better, v, best);
    where = hn::IfThenElse(better, fill(tap), where);
  });
  return where;
}

// Windows that do not overlap: a task owns the input rows from one window's first to the next one's.
void max_grad_row(const Pool& p, int64_t task) {
  const int64_t n = task / p.dy.h, o_y = task % p.dy.h;
  const int64_t begin = o_y == 0 ? 0 : std::max<int64_t>(p.window.y.position(o_y, 0), 0);
  const int64_t end = o_y + 1 == p.dy.h ? p.dx.h : std::max<int64_t>(p.window.y.position(o_y + 1, 0), 0);
  if (!p.covered)
    for (int64_t i = begin * p.dx.w; i < end * p.dx.w; ++i)
      std::memset(p.dx.row(n, 0) + i * p.dx.pitch, 0, static_cast<size_t>(p.channels) * sizeof(float));
  for (int64_t o_x = 0; o_x < p.dy.w; ++o_x)
    for (int64_t c = 0; c < p.channels; c += lanes()) {
      const int64_t left = p.channels - c;
      const Floats where = first_maximum(p, n, o_y, o_x, c, left);
      const Floats dy = load_up_to(p.dy.row(n, o_y) + o_x * p.dy.pitch + c, left);
      each_tap(p, p.dx, n, o_y, o_x, [&](float* dx, float tap) HWY_ATTR {
        store_up_to(hn::IfThenElseZero(hn::Eq(where, fill(tap)), dy), dx + c, left);
      });
    }
}

// Overlapping windows: a task owns kPlaneChannels channels of one image.
void max_grad_plane(const Pool& p, int64_t task) {
  const int64_t blocks = ceil_div(p.channels, kPlaneChannels), n = task / blocks, c0 = task % blocks * kPlaneChannels;
  const int64_t count = std::min(kPlaneChannels, p.channels - c0);
  for (int64_t i = 0; i < p.dx.h * p.dx.w; ++i)
    std::memset(p.dx.row(n, 0) + i * p.dx.pitch + c0, 0, static_cast<size_t>(count) * sizeof(float));
  for (int64_t o_y = 0; o_y < p.dy.h; ++o_y)
    for (int64_t o_x = 0; o_x < p.dy.w; ++o_x)
      for (int64_t c = c0; c < c0 + count; c += lanes()) {
        const int64_t left = c0 + count - c;
        const Floats where = first_maximum(p, n, o_y, o_x, c, left);
        const Floats dy = load_up_to(p.dy.row(n, o_y) + o_x * p.dy.pitch + c, left);
        each_tap(p, p.dx, n, o_y, o_x, [&](float* dx, float tap) HWY_ATTR {
          const Floats add = hn::IfThenElseZero(hn::Eq(where, fill(tap)), dy);
          store_up_to(hn::Add(load_up_to(dx + c, left), add), dx + c, left);
        });
      }
}

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(max_row);
HWY_EXPORT(avg_row);
HWY_EXPORT(avg_grad_row);
HWY_EXPORT(max_grad_row);
HWY_EXPORT(max_grad_plane);

Image image(const Operand& operand) { return {operand.f32(), operand.shape()[1], operand.shape()[2], operand.pitch}; }

// `large`: the operand that is pooled, or its gradient.
Pool make_pool(const Call& call, const Operand& large) {
  Pool p;
  p.window = ops::window_of(call.attrs, {large.shape()[1], large.shape()[2]}, call.attrs.ints("kernel"));
  p.images = large.shape()[0];
  p.channels = large.cols();
  p.count_pad = call.attrs.flag("count_pad");
  return p;
}

template <typename Run>
Work work(const Pool& p, int64_t tasks, Run run) {
  return {tasks, [p, run](int64_t task) { run(p, task); }};
}

Work bind_forward(const Call& call, bool max) {
  Pool p = make_pool(call, call.in[0]);
  p.x = image(call.in[0]);
  p.y = image(call.out[0]);
  return work(p, p.images * p.y.h, max ? &HWY_DYNAMIC_DISPATCH(max_row) : &HWY_DYNAMIC_DISPATCH(avg_row));
}
Work bind_max(const Call& call) { return bind_forward(call, true); }
Work bind_avg(const Call& call) { return bind_forward(call, false); }

Work bind_avg_grad(const Call& call) {
  Pool p = make_pool(call, call.out[0]);
  p.dy = image(call.in[0]);
  p.dx = image(call.out[0]);
  return work(p, p.images * p.dx.h, &HWY_DYNAMIC_DISPATCH(avg_grad_row));
}

bool covers(const ops::WindowAxis& a) { return a.stride == a.kernel && a.before == 0 && a.out * a.stride == a.in; }

Work bind_max_grad(const Call& call) {
  Pool p = make_pool(call, call.in[0]);
  p.x = image(call.in[0]);
  p.dy = image(call.in[1]);
  p.dx = image(call.out[0]);
  p.covered = covers(p.window.y) && covers(p.window.x);
  if (p.window.y.stride >= p.window.y.kernel && p.window.x.stride >= p.window.x.kernel)
    return work(p, p.images * p.dy.h, &HWY_DYNAMIC_DISPATCH(max_grad_row));
  return work(p, p.images * ceil_div(p.channels, kPlaneChannels), &HWY_DYNAMIC_DISPATCH(max_grad_plane));
}

}  // namespace

namespace kernels {
KernelList pool() {
  static constexpr Kernel kernels[] = {{"max_pool", bind_max},
                                       {"max_pool_grad", bind_max_grad},
                                       {"avg_pool", bind_avg},
                                       {"avg_pool_grad", bind_avg_grad}};
  return {kernels, {}};
}
}  // namespace kernels
}  // namespace situ::cpu
#endif
