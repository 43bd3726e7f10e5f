// depthwise3.cpp -- depthwise convolutions of 3 x 3 taps, stride 1 or 2 along x; vectors run over channels.
//
//   conv2d_depthwise3     y[q,c]    = epilogue( sum over taps  x[q at tap, c] * w[tap, c] )
//   conv2d_depthwise3_dx  dx[p,c]   = epilogue( sum over taps  dy[output that reads p at tap, c] * w[tap, c] )
//   conv2d_depthwise3_dw  dw[tap,c] = sum over pixels  x[q at tap, c] * dy[q, c]; split over image rows like conv2d_dw
// For a vector of channels the nine weights (dw: sums) stay in registers while a column of three pixels slides along
// the row. Each pixel is loaded once and added to every result that reads it, where a sum per result would load it nine
// times. A task is one row of results; of dw, one part by some channels.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels/depthwise3.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <hwy/cache_control.h>

#include <algorithm>

#include "backend/cpu/conv_splits.h"
#include "backend/cpu/depthwise3-inl.h"
#include "backend/cpu/epilogue-inl.h"
#include "backend/cpu/simd-inl.h"
#include "backend/cpu/tile.h"
#include "ops/conv_chain.h"
#include "ops/window.h"

#ifndef SITU_BACKEND_CPU_DEPTHWISE3_ONCE_
#define SITU_BACKEND_CPU_DEPTHWISE3_ONCE_
namespace situ::cpu {
namespace {
struct Depthwise3 {
  ops::Window window;
  int64_t images = 0, channels = 0;
  const float* from = nullptr;  // forward and dw: x; dx: dy
  int64_t from_pitch = 0;
  const float* w = nullptr;  // dw: dy
  int64_t w_pitch = 0;
  float* y = nullptr;  // the result
  int64_t y_pitch = 0;
  const float* zeros = nullptr;  // as many as there are channels
  TileEpilogue epilogue;
  SumRange range;               // instead of an epilogue that is no more
  int64_t row = 0;              // pixels of a row of results
  const float* like = nullptr;  // the epilogue's last operand that is like the result
  int64_t like_pitch = 0;
  int64_t splits = 1;  // dw

  DepthwiseResult result() const {
    return {channels, y, y_pitch, range, epilogue.count ? &epilogue : nullptr, row, like, like_pitch};
  }
};
constexpr int64_t kMaxChannels = device::kZeroRun / 4 - 64;
constexpr int64_t kBlock = 16;  // results along a row

using Lines = DepthwiseLines;
using Row = DepthwiseRow;
using Weights = DepthwiseWeights;
}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

// The three pixels of column i, or zeros where it lies outside. Three references, because vectors of unknown length are
// no members of a struct.
// FRESH: rows that the next task reads for the first time.
template <int FRESH>
HWY_INLINE void load_column(const Lines& l, int64_t i, int64_t c, int64_t left, Floats& x, Floats& y, Floats& z) {
  for (int r = 0; r < FRESH; ++r) hwy::Prefetch(l.next + r * l.line + i * l.pitch + c);
  x = load_up_to(l.first[0] + i * l.step[0] + c, left);
  y = load_up_to(l.first[1] + i * l.step[1] + c, left);
  z = load_up_to(l.first[2] + i * l.step[2] + c, left);
}
template <int FRESH>
HWY_INLINE void load_inside(const Lines& l, int64_t columns, int64_t i, int64_t c, int64_t left, Floats& x, Floats& y,
                            Floats& z) {
  if (i >= 0 && i < columns) return load_column<FRESH>(l, i, c, left, x, y, z);
  x = zeros();
  y = x;
  z = x;
}
template <bool RANGE>
HWY_INLINE void put(const DepthwiseResult& d, Floats sum, int64_t pixel, int64_t c, int64_t left) {
  if constexpr (RANGE)
    sum = at_most(fill(d.range.high), at_least(fill(d.range.low), sum));
  else
    sum = apply_epilogue(*d.epilogue, sum, pixel, c, left);
  store_up_to(sum, d.y + pixel * d.y_pitch + c, left);
  const int64_t below = pixel + d.below;
  hwy::Prefetch(d.y + below * d.y_pitch + c);
  if (d.like) hwy::Prefetch(d.like + below * d.like_pitch + c);
}

// Result o sums columns o - before + 0, 1, 2. A column finishes one result, goes on with another, begins a third.
template <bool RANGE>
void slide_by_one(const DepthwiseResult& d, const Row& row, int64_t o0, int64_t o1) {
  const int64_t first = std::max<int64_t>(0, o0 - row.before), last = std::min(row.columns, o1 - row.before + 2);
  for (int64_t c = 0; c < d.channels; c += lanes()) {
    const int64_t left = d.channels - c;
    Floats u0, v0, w0, u1, v1, w1, u2, v2, w2;  // taps 0, 1, 2 of the three lines
    load_weights(row.weights, 0, c, left, u0, v0, w0);
    load_weights(row.weights, 1, c, left, u1, v1, w1);
    load_weights(row.weights, 2, c, left, u2, v2, w2);
    const Floats begin = begin_of(d.range, c, left);
    Floats begun = begin, half = begin;
    int64_t o = first + row.before - 2;  // the result that the first column finishes
    for (int64_t i = first; i < last; ++i, ++o) {
      Floats x, y, z;
      load_column<1>(row.lines, i, c, left, x, y, z);
      const Floats done = plus(half, x, y, z, u2, v2, w2);
      half = plus(begun, x, y, z, u1, v1, w1);
      begun = plus(begin, x, y, z, u0, v0, w0);
      if (o >= o0) put<RANGE>(d, done, row.pixel0 + o, c, left);
    }
    for (; o < o1; ++o) {  // what the image's last columns began
      if (o >= o0) put<RANGE>(d, half, row.pixel0 + o, c, left);
      half = begun;
      begun = begin;
    }
  }
}

// Result o sums columns 2 o - before + 0, 1, 2; two results share a column.
template <bool RANGE>
void slide_by_two(const DepthwiseResult& d, const Row& row, int64_t o0, int64_t o1) {
  for (int64_t c = 0; c < d.channels; c += lanes()) {
    const int64_t left = d.channels - c;
    Floats u0, v0, w0, u1, v1, w1, u2, v2, w2;  // taps 0, 1, 2 of the three lines
    load_weights(row.weights, 0, c, left, u0, v0, w0);
    load_weights(row.weights, 1, c, left, u1, v1, w1);
    load_weights(row.weights, 2, c, left, u2, v2, w2);
    const Floats begin = begin_of(d.range, c, left);
    Floats x, y, z;
    load_inside<2>(row.lines, row.columns, 2 * o0 - row.before, c, left, x, y, z);
    Floats begun = plus(begin, x, y, z, u0, v0, w0);
    for (int64_t o = o0, i = 2 * o0 + 1 - row.before; o < o1; ++o, i += 2) {
      load_inside<2>(row.lines, row.columns, i, c, left, x, y, z);
      const Floats half = plus(begun, x, y, z, u1, v1, w1);
      load_inside<2>(row.lines, row.columns, i + 1, c, left, x, y, z);
      put<RANGE>(d, plus(half, x, y, z, u2, v2, w2), row.pixel0 + o, c, left);
      begun = plus(begin, x, y, z, u0, v0, w0);
    }
  }
}

// Column o goes to results 2 o - before + 0, 1, 2, of which the last gets the next column too. ROWS of the three lines
// are there, the first ones.
template <int ROWS, bool RANGE>
void spread_by_two(const DepthwiseResult& d, const Row& row, int64_t o0, int64_t o1) {
  for (int64_t c = 0; c < d.channels; c += lanes()) {
    const int64_t left = d.channels - c;
    const auto weight = [&](int r, int64_t s)
                            HWY_ATTR { return load_up_to(row.weights.row[r] + s * row.weights.along + c, left); };
    const auto pixel = [&](int r, int64_t o)
                           HWY_ATTR { return load_up_to(row.lines.first[r] + o * row.lines.step[r] + c, left); };
    const Floats a0 = weight(0, 0), a1 = weight(0, 1), a2 = weight(0, 2);
    const Floats b0 = ROWS > 1 ? weight(1, 0) : a0, b1 = ROWS > 1 ? weight(1, 1) : a0,
                 b2 = ROWS > 1 ? weight(1, 2) : a0;
    const Floats begin = begin_of(d.range, c, left);
    Floats shared = begin;
    if (o0 > 0) {
      shared = hn::MulAdd(pixel(0, o0 - 1), a2, begin);
      if constexpr (ROWS > 1) shared = hn::MulAdd(pixel(1, o0 - 1), b2, shared);
    }
    for (int64_t o = o0, i = 2 * o0 - row.before; o < o1; ++o, i += 2) {
      Floats first = shared, second = begin;
      shared = begin;
      if (o < row.columns) {
        const Floats x = pixel(0, o);
        first = hn::MulAdd(x, a0, first), second = hn::MulAdd(x, a1, begin), shared = hn::MulAdd(x, a2, begin);
        if constexpr (ROWS > 1) {
          const Floats z = pixel(1, o);
          first = hn::MulAdd(z, b0, first), second = hn::MulAdd(z, b1, second), shared = hn::MulAdd(z, b2, shared);
        }
      }
      if (i >= 0) put<RANGE>(d, first, row.pixel0 + i, c, left);
      if (i + 1 >= 0 && i + 1 < row.results) put<RANGE>(d, second, row.pixel0 + i + 1, c, left);
    }
  }
}

template <typename Run>
HWY_INLINE void in_blocks(const DepthwiseResult& d, const Row& row, int64_t count, const Run& run) {
  for (int64_t o = 0; o < count; o += kBlock) run(d, row, o, std::min(count, o + kBlock));
}

template <int STRIDE>
void slide_row(const DepthwiseResult& d, const Row& row) {
  constexpr auto with_epilogue = STRIDE == 1 ? slide_by_one<false> : slide_by_two<false>;
  constexpr auto with_range = STRIDE == 1 ? slide_by_one<true> : slide_by_two<true>;
  in_blocks(d, row, row.results, d.epilogue ? with_epilogue : with_range);
}

void forward_row(const Depthwise3& d, int64_t task) {
  const ops::WindowAxis &wy = d.window.y, &wx = d.window.x;
  Lines lines;
  Weights weights{{}, d.w_pitch};
  for (int64_t r = 0; r < 3; ++r) {
    const int64_t i_y = wy.position(task % wy.out, r);
    const bool inside = i_y >= 0 && i_y < wy.in;
    lines.first[r] = inside ? d.from + (task / wy.out * wy.in + i_y) * wx.in * d.from_pitch : d.zeros;
    lines.step[r] = inside ? d.from_pitch : 0;
    weights.row[r] = d.w + r * 3 * d.w_pitch;
  }
  lines.next = d.from + (task / wy.out * wy.in + wy.position(task % wy.out, 3)) * wx.in * d.from_pitch;
  lines.pitch = d.from_pitch;
  lines.line = wx.in * d.from_pitch;
  const auto slide = wx.stride == 1 ? slide_row<1> : slide_row<2>;
  slide(d.result(), {lines, weights, wx.before, wx.in, task * wx.out, wx.out});
}

void dx_row(const Depthwise3& d, int64_t task) {
  const ops::WindowAxis &wy = d.window.y, &wx = d.window.x;
  const bool back = wx.stride == 1;  // a convolution with taps in reverse order
  Lines lines;
  Weights weights{{}, back ? -d.w_pitch : d.w_pitch};
  int rows = 0;
  for (int64_t r = 0; r < 3; ++r) {
    const int64_t o_y = wy.output_at(task % wy.in, r);
    if (o_y < 0) continue;
    lines.first[rows] = d.from + (task / wy.in * wy.out + o_y) * wx.out * d.from_pitch;
    lines.step[rows] = d.from_pitch;
    weights.row[rows++] = d.w + (r * 3 + (back ? 2 : 0)) * d.w_pitch;
  }
  const int present = rows;
  lines.next = present > 0 ? lines.first[0] + wx.out * d.from_pitch : d.from;  // tap 0 reads the lowest row
  lines.pitch = d.from_pitch;
  lines.line = wx.out * d.from_pitch;
  for (; rows < 3; ++rows) lines.first[rows] = d.zeros, lines.step[rows] = 0, weights.row[rows] = d.w + 2 * d.w_pitch;
  const Row row{lines, weights, back ? 2 - wx.before : wx.before, wx.out, task * wx.in, wx.in};
  const DepthwiseResult result = d.result();
  if (back) return slide_row<1>(result, row);
  const auto spread = [&](auto two, auto one)
                          HWY_ATTR { in_blocks(result, row, ceil_div(wx.in + wx.before, 2), present > 1 ? two : one); };
  if (result.epilogue)
    spread(spread_by_two<2, false>, spread_by_two<1, false>);
  else
    spread(spread_by_two<2, true>, spread_by_two<1, true>);
}

// Adds what pixels [o0, o1) of row `row` of dy give to nine sums of a vector of channels.
template <int STRIDE>
void dw_block(const Depthwise3& d, const Lines& x, int64_t row, int64_t o0, int64_t o1, int64_t c, float* totals) {
  const ops::WindowAxis& wx = d.window.x;
  const int64_t left = d.channels - c;
  const float* dy = d.w + (row * wx.out + o0) * d.w_pitch + c;
  Floats s00 = zeros(), s01 = s00, s02 = s00, s10 = s00, s11 = s00, s12 = s00, s20 = s00, s21 = s00, s22 = s00;
  Floats x00, x10, x20, x01, x11, x21, x02, x12, x22;  // rows and columns under the taps
  int64_t i = o0 * STRIDE - wx.before;
  load_inside<STRIDE>(x, wx.in, i, c, left, x00, x10, x20);
  load_inside<STRIDE>(x, wx.in, i + 1, c, left, x01, x11, x21);
  i += 2;
  for (int64_t o = o0; o < o1; ++o, i += STRIDE, dy += d.w_pitch) {
    load_inside<STRIDE>(x, wx.in, i, c, left, x02, x12, x22);
    const Floats g = load_up_to(dy, left);
    hwy::Prefetch(dy + wx.out * d.w_pitch);
    s00 = hn::MulAdd(x00, g, s00), s10 = hn::MulAdd(x10, g, s10), s20 = hn::MulAdd(x20, g, s20);
    s01 = hn::MulAdd(x01, g, s01), s11 = hn::MulAdd(x11, g, s11), s21 = hn::MulAdd(x21, g, s21);
    s02 = hn::MulAdd(x02, g, s02), s12 = hn::MulAdd(x12, g, s12), s22 = hn::MulAdd(x22, g, s22);
    if constexpr (STRIDE == 1) {
      x00 = x01, x10 = x11, x20 = x21;
      x01 = x02, x11 = x12, x21 = x22;
    } else {
      x00 = x02, x10 = x12, x20 = x22;
      load_inside<STRIDE>(x, wx.in, i + 1, c, left, x01, x11, x21);
    }
  }
  const auto join = [&](int64_t tap, Floats v) HWY_ATTR {
    float* total = totals + tap * d.y_pitch + c;
    store_up_to(hn::Add(load_up_to(total, left), v), total, left);
  };
  join(0, s00), join(1, s01), join(2, s02), join(3, s10), join(4, s11), join(5, s12);
  join(6, s20), join(7, s21), join(8, s22);
}

void dw_task(const Depthwise3& d, int64_t split) {
  const ops::WindowAxis &wy = d.window.y, &wx = d.window.x;
  const int64_t rows = d.images * wy.out, row0 = rows * split / d.splits, row1 = rows * (split + 1) / d.splits;
  float* dw = d.y + split * 9 * d.y_pitch;
  for (int64_t tap = 0; tap < 9; ++tap) std::fill_n(dw + tap * d.y_pitch, d.channels, 0.0f);
  for (int64_t row = row0; row < row1; ++row) {
    Lines lines;
    for (int64_t r = 0; r < 3; ++r) {
      const int64_t i_y = wy.position(row % wy.out, r);
      const bool inside = i_y >= 0 && i_y < wy.in;
      lines.first[r] = inside ? d.from + (row / wy.out * wy.in + i_y) * wx.in * d.from_pitch : d.zeros;
      lines.step[r] = inside ? d.from_pitch : 0;
    }
    lines.next = d.from + (row / wy.out * wy.in + wy.position(row % wy.out, 3)) * wx.in * d.from_pitch;
    lines.pitch = d.from_pitch;
    lines.line = wx.in * d.from_pitch;
    const auto block = wx.stride == 1 ? dw_block<1> : dw_block<2>;
    for (int64_t o = 0; o < wx.out; o += kBlock)
      for (int64_t c = 0; c < d.channels; c += lanes()) block(d, lines, row, o, std::min(wx.out, o + kBlock), c, dw);
  }
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

// `image`: the operand or result of the size of the input.
Depthwise3 make(const Call& call, const Operand& image, const Operand& from, const Operand& w) {
  const Operand& y = call.out[0];
  return {.window = ops::window_of(call.attrs, {image.shape()[1], image.shape()[2]}, {3, 3}),
          .images = image.shape()[0],
          .channels = image.cols(),
          .from = from.f32(),
          .from_pitch = from.pitch,
          .w = w.f32(),
          .w_pitch = w.pitch,
          .y = y.f32(),
          .y_pitch = y.pitch,
          .zeros = image.zeros,
          .epilogue = {},
          .range = {}};
}
void set_epilogue(Depthwise3& d, const Call& call) {
  d.row = call.out[0].shape()[2];
  d.epilogue = bind_epilogue(call, 2);
  if (is_range(d.epilogue, &d.range)) d.epilogue.count = 0;
  for (int e = 0; e < d.epilogue.count; ++e) {
    const TileEpilogue::Word& word = d.epilogue.words[static_cast<size_t>(e)];
    if (ops::takes_like_result(word.kind)) d.like = word.operand, d.like_pitch = word.pitch;
  }
}
template <typename Run>
Work work(const Depthwise3& d, int64_t tasks, Run run) {
  return {tasks, [d, run](int64_t task) { run(d, task); }};
}

Work bind_forward(const Call& call) {
  Depthwise3 d = make(call, call.in[0], call.in[0], call.in[1]);
  set_epilogue(d, call);
  return work(d, d.images * d.window.y.out, &HWY_DYNAMIC_DISPATCH(forward_row));
}
Work bind_dx(const Call& call) {
  Depthwise3 d = make(call, call.out[0], call.in[0], call.in[1]);
  set_epilogue(d, call);
  return work(d, d.images * d.window.y.in, &HWY_DYNAMIC_DISPATCH(dx_row));
}
Work bind_dw(const Call& call) {
  Depthwise3 d = make(call, call.in[0], call.in[0], call.in[1]);
  d.splits = call.out[0].shape().rank() == 5 ? call.out[0].shape()[0] : 1;
  return work(d, d.splits, &HWY_DYNAMIC_DISPATCH(dw_task));
}

// `x`: of the size of the input; `channels`: of its results.
bool fits(const ops::OpView& v, const Shape& x, int64_t channels, const ir::Ints& kernel) {
  const int64_t groups = v.attrs.integer("groups", 1);
  if (groups != x[3] || groups != channels || groups < 2 || groups > kMaxChannels) return false;
  return ops::chain_takes(v.attrs, {x[1], x[2]}, kernel);
}
ir::Ints taps_of(const Shape& w) { return {w[0], w[1]}; }
bool accepts_forward(const ops::OpView& v, const device::Target&) {
  return fits(v, v.in(0).shape, v.out(0).shape[3], taps_of(v.in(1).shape));
}
bool accepts_dx(const ops::OpView& v, const device::Target&) {
  return fits(v, v.out(0).shape, v.in(0).shape[3], taps_of(v.in(1).shape));
}
bool accepts_dw(const ops::OpView& v, const device::Target&) {
  return fits(v, v.in(0).shape, v.in(1).shape[3], v.attrs.ints("kernel"));
}
double seconds(const ops::OpView&, const device::Target&) { return -2; }  // chosen whenever it applies

void expand_forward(device::Expansion& e) {
  e.result(0, e.launch("conv2d_depthwise3", e.inputs(), e.out_type(0), e.attrs()));
}
// Both gradients of a layer may become one launch (depthwise3_grads.cpp).
ir::Attrs joint(const ir::Attrs& attrs) { return ir::Attrs(attrs).set("joint", "conv2d_depthwise3_grads"); }
void expand_dx(device::Expansion& e) {
  e.result(0, e.launch("conv2d_depthwise3_dx", e.inputs(), e.out_type(0), joint(e.attrs())));
}
void expand_dw(device::Expansion& e) {
  const int64_t splits = depthwise_dw_splits(e.view());
  e.result(0, launch_by_splits(e, "conv2d_depthwise3_dw", splits, e.inputs(), joint(e.attrs()), e.out_type(0)));
}

}  // namespace

namespace kernels {
KernelList depthwise3() {
  static constexpr Kernel kernels[] = {
      {"conv2d_depthwise3", bind_forward}, {"conv2d_depthwise3_dx", bind_dx}, {"conv2d_depthwise3_dw", bind_dw}};
  static constexpr device::Candidate candidates[] = {
      {.op = "conv2d", .name = "depthwise3", .accepts = accepts_forward, .seconds = seconds, .expand = expand_forward},
      {.op = "conv2d_dx", .name = "depthwise3", .accepts = accepts_dx, .seconds = seconds, .expand = expand_dx},
      {.op = "conv2d_dw", .name = "depthwise3", .accepts = accepts_dw, .seconds = seconds, .expand = expand_dw}};
  return {kernels, candidates};
}
}  // namespace kernels
}  // namespace situ::cpu
#endif
