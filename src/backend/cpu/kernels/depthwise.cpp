// depthwise.cpp -- convolutions whose groups hold one channel each (w[R,S,1,C]); vectors run over channels.
//
//   conv2d_depthwise     y[q,c]    = epilogue( sum over taps  x[q at tap, c] * w[tap, c] )
//   conv2d_depthwise_dx  dx[p,c]   = epilogue( sum over taps  dy[output that reads p at tap, c] * w[tap, c] )
//   conv2d_depthwise_dw  dw[tap,c] = sum over pixels  x[q at tap, c] * dy[q, c]; split over image rows like conv2d_dw
// A task is one row of pixels (dw: one kernel row of one part).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels/depthwise.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <algorithm>

#include "backend/cpu/conv_splits.h"
#include "backend/cpu/epilogue-inl.h"
#include "backend/cpu/simd-inl.h"
#include "backend/cpu/tile.h"
#include "base/error.h"
#include "ops/window.h"

#ifndef SITU_BACKEND_CPU_DEPTHWISE_ONCE_
#define SITU_BACKEND_CPU_DEPTHWISE_ONCE_
namespace situ::cpu {
namespace {
struct Depthwise {
  ops::Window window;
  int64_t images = 0, channels = 0, splits = 1, rows = 0;
  const float *x = nullptr, *w = nullptr, *dy = nullptr;  // x: the tensor of the size of the input, dy of the output
  float* y = nullptr;                                     // the result
  int64_t x_pitch = 0, w_pitch = 0, dy_pitch = 0, y_pitch = 0;
  TileEpilogue epilogue;
};
}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

void forward_row(const Depthwise& d, int64_t task) {
  const ops::WindowAxis &wy = d.window.y, &wx = d.window.x;
  const int64_t n = task / wy.out, o_y = task % wy.out;
  const ops::Taps ty = wy.taps_inside(o_y);
  for (int64_t o_x = 0; o_x < wx.out; ++o_x) {
    const ops::Taps tx = wx.taps_inside(o_x);
    const int64_t pixel = task * wx.out + o_x;
    for (int64_t c = 0; c < d.channels; c += lanes()) {
      const int64_t left = d.channels - c;
      Floats sum = zeros();
      for (int64_t r = ty.begin; r < ty.end; ++r) {
        const float* x = d.x + ((n * wy.in + wy.position(o_y, r)) * wx.in + wx.position(o_x, 0)) * d.x_pitch + c;
        const float* w = d.w + r * wx.kernel * d.w_pitch + c;
        for (int64_t s = tx.begin; s < tx.end; ++s)
          sum = hn::MulAdd(load_up_to(x + s * wx.dilation * d.x_pitch, left), load_up_to(w + s * d.w_pitch, left), sum);
      }
      store_up_to(apply_epilogue(d.epilogue, sum, pixel, c, left), d.y + pixel * d.y_pitch + c, left);
    }
  }
}

void dx_row(const Depthwise& d, int64_t task) {
  const ops::WindowAxis &wy = d.window.y, &wx = d.window.x;
  const int64_t n = task / wy.in, i_y = task % wy.in;
  for (int64_t i_x = 0; i_x < wx.in; ++i_x) {
    const int64_t pixel = task * wx.in + i_x;
    for (int64_t c = 0; c < d.channels; c += lanes()) {
      const int64_t left = d.channels - c;
      Floats sum = zeros();
      for (int64_t r = 0; r < wy.kernel; ++r) {
        const int64_t o_y = wy.output_at(i_y, r);
        if (o_y < 0) continue;
        for (int64_t s = 0; s < wx.kernel; ++s) {
          const int64_t o_x = wx.output_at(i_x, s);
          if (o_x < 0) continue;
          const float* dy = d.dy + ((n * wy.out + o_y) * wx.out + o_x) * d.dy_pitch + c;
          sum = hn::MulAdd(load_up_to(dy, left), load_up_to(d.w + (r * wx.kernel + s) * d.w_pitch + c, left), sum);
        }
      }
      store_up_to(apply_epilogue(d.epilogue, sum, pixel, c, left), d.y + pixel * d.y_pitch + c, left);
    }
  }
}

// Tap (r,s) for one vector of channels over image rows [row0, row1); each row's sum joins the total.
HWY_INLINE Floats dw_tap(const Depthwise& d, int64_t r, int64_t s, int64_t c, int64_t row0, int64_t row1) {
  const ops::WindowAxis &wy = d.window.y, &wx = d.window.x;
  const int64_t left = d.channels - c;
  Floats total = zeros();
  for (int64_t row = row0; row < row1; ++row) {
    const int64_t i_y = wy.position(row % wy.out, r);
    if (i_y < 0 || i_y >= wy.in) continue;
    Floats sum = zeros();
    for (int64_t o_x = 0; o_x < wx.out; ++o_x) {
      const int64_t i_x = wx.position(o_x, s);
      if (i_x < 0 || i_x >= wx.in) continue;
      const float* x = d.x + ((row / wy.out * wy.in + i_y) * wx.in + i_x) * d.x_pitch + c;
      sum = hn::MulAdd(load_up_to(x, left), load_up_to(d.dy + (row * wx.out + o_x) * d.dy_pitch + c, left), sum);
    }
    total = hn::Add(total, sum);
  }
  return total;
}

void dw_task(const Depthwise& d, int64_t task) {
  const int64_t split = task / d.window.y.kernel, r = task % d.window.y.kernel, taps = d.window.x.kernel;
  const int64_t row0 = d.rows * split / d.splits, row1 = d.rows * (split + 1) / d.splits;
  float* dw = d.y + (split * d.window.y.kernel + r) * taps * d.y_pitch;
  for (int64_t s = 0; s < taps; ++s)
    for (int64_t c = 0; c < d.channels; c += lanes())
      store_up_to(dw_tap(d, r, s, c, row0, row1), dw + s * d.y_pitch + c, d.channels - c);
}

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(forward_row);
HWY_EXPORT(dx_row);
HWY_EXPORT(dw_task);

Depthwise make_depthwise(const Call& call, const Operand& image, const ir::Ints& kernel, const Operand& y) {
  Depthwise d;
  d.window = ops::window_of(call.attrs, {image.shape()[1], image.shape()[2]}, kernel);
  d.images = image.shape()[0];
  d.channels = image.cols();
  d.rows = d.images * d.window.y.out;
  d.y = y.f32();
  d.y_pitch = y.pitch;
  return d;
}
ir::Ints taps_of(const Operand& w) { return {w.shape()[0], w.shape()[1]}; }
template <typename Run>
Work work(const Depthwise& d, int64_t tasks, Run run) {
  return {tasks, [d, run](int64_t task) { run(d, task); }};
}

Work bind_forward(const Call& call) {
  const Operand &x = call.in[0], &w = call.in[1];
  Depthwise d = make_depthwise(call, x, taps_of(w), call.out[0]);
  d.x = x.f32();
  d.x_pitch = x.pitch;
  d.w = w.f32();
  d.w_pitch = w.pitch;
  d.epilogue = bind_epilogue(call, 2);
  return work(d, d.rows, &HWY_DYNAMIC_DISPATCH(forward_row));
}
Work bind_dx(const Call& call) {
  const Operand &dy = call.in[0], &w = call.in[1];
  Depthwise d = make_depthwise(call, call.out[0], taps_of(w), call.out[0]);
  d.dy = dy.f32();
  d.dy_pitch = dy.pitch;
  d.w = w.f32();
  d.w_pitch = w.pitch;
  d.epilogue = bind_epilogue(call, 2);
  return work(d, d.images * d.window.y.in, &HWY_DYNAMIC_DISPATCH(dx_row));
}
Work bind_dw(const Call& call) {
  const Operand &x = call.in[0], &dy = call.in[1], &dw = call.out[0];
  Depthwise d = make_depthwise(call, x, call.attrs.ints("kernel"), dw);
  d.x = x.f32();
  d.x_pitch = x.pitch;
  d.dy = dy.f32();
  d.dy_pitch = dy.pitch;
  d.splits = dw.shape().rank() == 5 ? dw.shape()[0] : 1;
  return work(d, d.splits * d.window.y.kernel, &HWY_DYNAMIC_DISPATCH(dw_task));
}

// --- chosen whenever it applies
// ----------------------------------------------------------------------------------------
bool is_depthwise(int64_t groups, int64_t channels, int64_t outputs) {
  return groups == channels && groups == outputs && groups > 1;
}
bool accepts_forward(const ops::OpView& v, const device::Target&) {
  return is_depthwise(v.attrs.integer("groups", 1), v.in(0).shape[3], v.out(0).shape[3]);
}
double seconds(const ops::OpView&, const device::Target&) { return -1; }

void expand_forward(device::Expansion& e) {
  e.result(0, e.launch("conv2d_depthwise", e.inputs(), e.out_type(0), e.attrs()));
}
void expand_dx(device::Expansion& e) {
  e.result(0, e.launch("conv2d_depthwise_dx", e.inputs(), e.out_type(0), e.attrs()));
}
bool accepts_dw(const ops::OpView& v, const device::Target&) {
  return is_depthwise(v.attrs.integer("groups", 1), v.in(0).shape[3], v.in(1).shape[3]);
}
void expand_dw(device::Expansion& e) {
  const Shape& dy = e.view().in(1).shape;
  const int64_t splits = std::clamp<int64_t>(dy.count() / 16384, 1, std::min<int64_t>(dy[0] * dy[1], 16));
  expand_by_splits(e, "conv2d_depthwise_dw", splits);
}

}  // namespace

namespace kernels {
KernelList depthwise() {
  static constexpr Kernel kernels[] = {
      {"conv2d_depthwise", bind_forward}, {"conv2d_depthwise_dx", bind_dx}, {"conv2d_depthwise_dw", bind_dw}};
  static constexpr device::Candidate candidates[] = {
      {.op = "conv2d", .name = "depthwise", .accepts = accepts_forward, .seconds = seconds, .expand = expand_forward},
      {.op = "conv2d_dx", .name = "depthwise", .accepts = accepts_forward, .seconds = seconds, .expand = expand_dx},
      {.op = "conv2d_dw", .name = "depthwise", .accepts = accepts_dw, .seconds = seconds, .expand = expand_dw}};
  return {kernels, candidates};
}
}  // namespace kernels
}  // namespace situ::cpu
#endif
