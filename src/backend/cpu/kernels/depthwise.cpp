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
  const float* zeros = nullptr;  // as many as there are channels
  TileEpilogue epilogue;
};
constexpr int64_t kPixels = 4;     // of the result, worked on together
constexpr int64_t kMaxTaps = 128;  // of a window
constexpr int64_t kMaxChannels = device::kZeroRun / 4 - 64;
}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

// What a few pixels of the result sum up: for each tap its weights and, for each pixel, the pixel it reads; zeros where
// that lies outside. The addresses are worked out once for all channels.
struct Taps {
  int64_t count = 0;
  const float* weights[kMaxTaps];
  const float* pixels[kMaxTaps][kPixels];
};

// Four pixels by two vectors of channels: each weight is loaded once for all four.
HWY_INLINE void sum_channels(const Depthwise& d, const Taps& t, const int64_t* to, int64_t count) {
  const Tag tag;
  const int64_t v = lanes();
  const auto put = [&](Floats sum, int64_t i, int64_t c) HWY_ATTR {
    if (i >= count) return;
    const int64_t left = d.channels - c;
    store_up_to(apply_epilogue(d.epilogue, sum, to[i], c, left), d.y + to[i] * d.y_pitch + c, left);
  };
  int64_t c = 0;
  for (; c + 2 * v <= d.channels; c += 2 * v) {
    Floats a0 = zeros(), a1 = zeros(), b0 = zeros(), b1 = zeros();
    Floats c0 = zeros(), c1 = zeros(), d0 = zeros(), d1 = zeros();
    for (int64_t k = 0; k < t.count; ++k) {
      const float* const* from = t.pixels[k];
      const Floats w0 = hn::LoadU(tag, t.weights[k] + c), w1 = hn::LoadU(tag, t.weights[k] + c + v);
      a0 = hn::MulAdd(hn::LoadU(tag, from[0] + c), w0, a0);
      a1 = hn::MulAdd(hn::LoadU(tag, from[0] + c + v), w1, a1);
      b0 = hn::MulAdd(hn::LoadU(tag, from[1] + c), w0, b0);
      b1 = hn::MulAdd(hn::LoadU(tag, from[1] + c + v), w1, b1);
      c0 = hn::MulAdd(hn::LoadU(tag, from[2] + c), w0, c0);
      c1 = hn::MulAdd(hn::LoadU(tag, from[2] + c + v), w1, c1);
      d0 = hn::MulAdd(hn::LoadU(tag, from[3] + c), w0, d0);
      d1 = hn::MulAdd(hn::LoadU(tag, from[3] + c + v), w1, d1);
    }
    put(a0, 0, c), put(a1, 0, c + v), put(b0, 1, c), put(b1, 1, c + v);
    put(c0, 2, c), put(c1, 2, c + v), put(d0, 3, c), put(d1, 3, c + v);
  }
  for (; c < d.channels; c += v) {
    const int64_t left = d.channels - c;
    Floats s0 = zeros(), s1 = zeros(), s2 = zeros(), s3 = zeros();
    for (int64_t k = 0; k < t.count; ++k) {
      const float* const* from = t.pixels[k];
      const Floats w = load_up_to(t.weights[k] + c, left);
      s0 = hn::MulAdd(load_up_to(from[0] + c, left), w, s0);
      s1 = hn::MulAdd(load_up_to(from[1] + c, left), w, s1);
      s2 = hn::MulAdd(load_up_to(from[2] + c, left), w, s2);
      s3 = hn::MulAdd(load_up_to(from[3] + c, left), w, s3);
    }
    put(s0, 0, c), put(s1, 1, c), put(s2, 2, c), put(s3, 3, c);
  }
}

// One row of the result. READS(pixel, s): the column of the source that a pixel reads at tap s, or -1. Pixels that are
// `step` apart read at the same taps. rows[r]: the source row of kernel row r, or null.
template <typename Reads>
HWY_INLINE void sum_row(const Depthwise& d, int64_t first, int64_t width, int64_t step, const float* const* rows,
                        int64_t pitch, const Reads& reads) {
  Taps t;
  int64_t to[kPixels], column[kMaxTaps][kPixels];
  const int64_t across = d.window.x.kernel;
  for (int64_t phase = 0; phase < std::min(step, width); ++phase)
    for (int64_t x0 = phase; x0 < width; x0 += kPixels * step) {
      const int64_t count = std::min<int64_t>(kPixels, (width - x0 + step - 1) / step);
      for (int64_t i = 0; i < kPixels; ++i) {
        const int64_t x = x0 + std::min(i, count - 1) * step;
        to[i] = first + x;
        for (int64_t s = 0; s < across; ++s) column[s][i] = reads(x, s);
      }
      t.count = 0;
      for (int64_t s = 0; s < across; ++s) {
        if (*std::max_element(column[s], column[s] + kPixels) < 0) continue;
        for (int64_t r = 0; r < d.window.y.kernel; ++r) {
          if (!rows[r]) continue;
          t.weights[t.count] = d.w + (r * across + s) * d.w_pitch;
          for (int64_t i = 0; i < kPixels; ++i)
            t.pixels[t.count][i] = column[s][i] < 0 ? d.zeros : rows[r] + column[s][i] * pitch;
          ++t.count;
        }
      }
      sum_channels(d, t, to, count);
    }
}

void forward_row(const Depthwise& d, int64_t task) {
  const ops::WindowAxis &wy = d.window.y, &wx = d.window.x;
  const int64_t n = task / wy.out, o_y = task % wy.out;
  const float* rows[kMaxTaps];
  for (int64_t r = 0; r < wy.kernel; ++r) {
    const int64_t i_y = wy.position(o_y, r);
    rows[r] = i_y < 0 || i_y >= wy.in ? nullptr : d.x + (n * wy.in + i_y) * wx.in * d.x_pitch;
  }
  sum_row(d, task * wx.out, wx.out, 1, rows, d.x_pitch, [&](int64_t o_x, int64_t s) {
    const int64_t i_x = wx.position(o_x, s);
    return i_x < wx.in ? std::max<int64_t>(i_x, -1) : -1;
  });
}

void dx_row(const Depthwise& d, int64_t task) {
  const ops::WindowAxis &wy = d.window.y, &wx = d.window.x;
  const int64_t n = task / wy.in, i_y = task % wy.in;
  const float* rows[kMaxTaps];
  for (int64_t r = 0; r < wy.kernel; ++r) {
    const int64_t o_y = wy.output_at(i_y, r);
    rows[r] = o_y < 0 ? nullptr : d.dy + (n * wy.out + o_y) * wx.out * d.dy_pitch;
  }
  sum_row(d, task * wx.in, wx.in, wx.stride, rows, d.dy_pitch,
          [&](int64_t i_x, int64_t s) { return wx.output_at(i_x, s); });
}

// Taps s0 .. s0+2 of one kernel row (fewer if the last ones are `none`) for two vectors of channels over image rows
// [row0, row1): each row's sums join the totals. Pixels at the edges read zeros.
HWY_INLINE void dw_taps(const Depthwise& d, int64_t r, int64_t s0, int64_t c, int64_t row0, int64_t row1, float* dw) {
  const Tag tag;
  const ops::WindowAxis &wy = d.window.y, &wx = d.window.x;
  const int64_t v = lanes(), left = d.channels - c, taps = std::min<int64_t>(3, wx.kernel - s0);
  const bool whole = left >= 2 * v;
  Floats t00 = zeros(), t01 = zeros(), t10 = zeros(), t11 = zeros(), t20 = zeros(), t21 = zeros();
  for (int64_t row = row0; row < row1; ++row) {
    const int64_t i_y = wy.position(row % wy.out, r);
    if (i_y < 0 || i_y >= wy.in) continue;
    const float* x_row = d.x + (row / wy.out * wy.in + i_y) * wx.in * d.x_pitch + c;
    const float* dy = d.dy + row * wx.out * d.dy_pitch + c;
    const auto at = [&](int64_t o_x, int64_t s) {
      const int64_t i_x = wx.position(o_x, s0 + s);
      return s < taps && i_x >= 0 && i_x < wx.in ? x_row + i_x * d.x_pitch : d.zeros;
    };
    Floats p00 = zeros(), p01 = zeros(), p10 = zeros(), p11 = zeros(), p20 = zeros(), p21 = zeros();
    for (int64_t o_x = 0; o_x < wx.out; ++o_x, dy += d.dy_pitch) {
      const float *x0 = at(o_x, 0), *x1 = at(o_x, 1), *x2 = at(o_x, 2);
      if (whole) {
        const Floats g0 = hn::LoadU(tag, dy), g1 = hn::LoadU(tag, dy + v);
        p00 = hn::MulAdd(hn::LoadU(tag, x0), g0, p00);
        p01 = hn::MulAdd(hn::LoadU(tag, x0 + v), g1, p01);
        p10 = hn::MulAdd(hn::LoadU(tag, x1), g0, p10);
        p11 = hn::MulAdd(hn::LoadU(tag, x1 + v), g1, p11);
        p20 = hn::MulAdd(hn::LoadU(tag, x2), g0, p20);
        p21 = hn::MulAdd(hn::LoadU(tag, x2 + v), g1, p21);
      } else {
        const Floats g = load_up_to(dy, left);
        p00 = hn::MulAdd(load_up_to(x0, left), g, p00);
        p10 = hn::MulAdd(load_up_to(x1, left), g, p10);
        p20 = hn::MulAdd(load_up_to(x2, left), g, p20);
      }
    }
    t00 = hn::Add(t00, p00), t01 = hn::Add(t01, p01), t10 = hn::Add(t10, p10);
    t11 = hn::Add(t11, p11), t20 = hn::Add(t20, p20), t21 = hn::Add(t21, p21);
  }
  const auto put = [&](Floats first, Floats second, int64_t s) HWY_ATTR {
    if (s >= taps) return;
    float* to = dw + (s0 + s) * d.y_pitch + c;
    store_up_to(first, to, left);
    if (whole) store_up_to(second, to + v, left - v);
  };
  put(t00, t01, 0), put(t10, t11, 1), put(t20, t21, 2);
}

void dw_task(const Depthwise& d, int64_t task) {
  const int64_t split = task / d.window.y.kernel, r = task % d.window.y.kernel, taps = d.window.x.kernel, v = lanes();
  const int64_t row0 = d.rows * split / d.splits, row1 = d.rows * (split + 1) / d.splits;
  float* dw = d.y + (split * d.window.y.kernel + r) * taps * d.y_pitch;
  for (int64_t s = 0; s < taps; s += 3)
    for (int64_t c = 0; c < d.channels; c += c + 2 * v <= d.channels ? 2 * v : v) dw_taps(d, r, s, c, row0, row1, dw);
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
  d.zeros = image.zeros;
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
bool is_depthwise(int64_t groups, int64_t channels, int64_t outputs, int64_t taps) {
  return groups == channels && groups == outputs && groups > 1 && groups <= kMaxChannels && taps <= kMaxTaps;
}
bool accepts_forward(const ops::OpView& v, const device::Target&) {
  const Shape& w = v.in(1).shape;
  return is_depthwise(v.attrs.integer("groups", 1), v.in(0).shape[3], v.out(0).shape[3], w[0] * w[1]);
}
double seconds(const ops::OpView&, const device::Target&) { return -1; }

void expand_forward(device::Expansion& e) {
  e.result(0, e.launch("conv2d_depthwise", e.inputs(), e.out_type(0), e.attrs()));
}
void expand_dx(device::Expansion& e) {
  e.result(0, e.launch("conv2d_depthwise_dx", e.inputs(), e.out_type(0), e.attrs()));
}
bool accepts_dw(const ops::OpView& v, const device::Target&) {
  const Shape& dw = v.out(0).shape;
  return is_depthwise(v.attrs.integer("groups", 1), v.in(0).shape[3], v.in(1).shape[3], dw[0] * dw[1]);
}
void expand_dw(device::Expansion& e) { expand_by_splits(e, "conv2d_depthwise_dw", depthwise_dw_splits(e.view())); }

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
