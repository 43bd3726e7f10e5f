// pool.cpp -- maximum and average over windows of channels-last images, and their gradients; vectors run over channels.
//
//   max_pool       y  = max over the window's elements inside the image
//   max_pool_grad  dx = epilogue( dy at the first maximum of its window in row-major order, 0 elsewhere )
//   avg_pool       y  = sum over the window / number of elements inside (or the whole window: count_pad)
//   avg_pool_grad  dx = sum over the windows that hold the pixel of dy / number
// A task is one row of results (for overlapping windows of max_pool_grad: a few channels of one image, since neighbours
// add to the same pixel and must do so in order). Where each window starts and ends is worked out when binding.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels/pool.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <algorithm>
#include <cstring>
#include <memory>

#include "backend/cpu/epilogue-inl.h"
#include "backend/cpu/kernel.h"
#include "backend/cpu/simd-inl.h"
#include "backend/cpu/tile.h"
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
struct Span {
  int64_t first = 0, count = 0;
};
struct Pool {
  ops::Window window;
  int64_t images = 0, channels = 0;
  float whole_window = 0;                  // count_pad: the divisor of every window
  bool covered = false;                    // every pixel lies in exactly one window
  bool twos = false;                       // every window is 2 x 2 pixels inside the image: loops of known length
  std::vector<Span> ys, xs;                // by result: the pixels of its window inside the image
  std::vector<Span> windows_y, windows_x;  // by pixel: the windows that hold it
  Image x, y, dy, dx;
  bool by_maximum = false;  // masked where x is not above zero, so by its window's maximum: x is read once
  TileEpilogue epilogue;    // what else there is
  float scale(int64_t o_y, int64_t o_x) const {
    const int64_t inside = ys[static_cast<size_t>(o_y)].count * xs[static_cast<size_t>(o_x)].count;
    return 1 / (whole_window > 0 ? whole_window : static_cast<float>(inside));
  }
};
}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

// Stores n channels of a pixel. Up to `room` floats may be spoilt, because what follows is written later: one plain
// store instead of several.
HWY_INLINE void store_ahead(Floats v, float* p, int64_t n, int64_t room) {
  if (room >= lanes())
    hn::StoreU(v, Tag(), p);
  else
    store_up_to(v, p, n);
}
HWY_INLINE int64_t room_of(const Image& image, const float* row_end, const float* p, int64_t channels) {
  return image.pitch == channels ? row_end - p : 0;
}

// The length of a span, known to the compiler if TWOS.
template <bool TWOS>
HWY_INLINE int64_t count_of(Span span) {
  return TWOS ? 2 : span.count;
}

template <bool TWOS, class Join>
HWY_INLINE Floats over_window(const float* x, int64_t row_step, int64_t pitch, Span y, Span s, int64_t left,
                              Floats start, const Join& join) {
  Floats v = start;
  for (int64_t r = 0; r < count_of<TWOS>(y); ++r, x += row_step)
    for (int64_t i = 0; i < count_of<TWOS>(s); ++i) v = join(v, load_up_to(x + i * pitch, left));
  return v;
}

template <bool MAX, bool TWOS>
void forward_row(const Pool& p, int64_t task) {
  const int64_t n = task / p.y.h, o_y = task % p.y.h, row_step = p.x.w * p.x.pitch;
  const Span y = p.ys[static_cast<size_t>(o_y)];
  const float* rows = p.x.row(n, y.first);
  float *to = p.y.row(n, o_y), *end = to + p.y.w * p.y.pitch;
  for (int64_t o_x = 0; o_x < p.y.w; ++o_x, to += p.y.pitch) {
    const Span x = p.xs[static_cast<size_t>(o_x)];
    const Floats scale = fill(MAX ? 1.0f : p.scale(o_y, o_x));
    for (int64_t c = 0; c < p.channels; c += lanes()) {
      const float* from = rows + x.first * p.x.pitch + c;
      const int64_t left = p.channels - c;
      Floats v;
      if constexpr (MAX)
        v = over_window<TWOS>(from, row_step, p.x.pitch, y, x, left, fill(-std::numeric_limits<float>::infinity()),
                              [](Floats a, Floats b) HWY_ATTR { return hn::Max(a, b); });
      else
        v = hn::Mul(scale, over_window<TWOS>(from, row_step, p.x.pitch, y, x, left, zeros(),
                                             [](Floats a, Floats b) HWY_ATTR { return hn::Add(a, b); }));
      store_ahead(v, to + c, left, room_of(p.y, end, to + c, p.channels));
    }
  }
}
void max_row(const Pool& p, int64_t task) {
  p.twos ? forward_row<true, true>(p, task) : forward_row<true, false>(p, task);
}
void avg_row(const Pool& p, int64_t task) { forward_row<false, false>(p, task); }

void avg_grad_row(const Pool& p, int64_t task) {
  const int64_t n = task / p.dx.h, i_y = task % p.dx.h;
  const Span wy = p.windows_y[static_cast<size_t>(i_y)];
  float *to = p.dx.row(n, i_y), *end = to + p.dx.w * p.dx.pitch;
  for (int64_t i_x = 0; i_x < p.dx.w; ++i_x, to += p.dx.pitch) {
    const Span wx = p.windows_x[static_cast<size_t>(i_x)];
    for (int64_t c = 0; c < p.channels; c += lanes()) {
      const int64_t left = p.channels - c;
      Floats sum = zeros();
      for (int64_t o_y = wy.first; o_y < wy.first + wy.count; ++o_y)
        for (int64_t o_x = wx.first; o_x < wx.first + wx.count; ++o_x)
          sum = hn::MulAdd(load_up_to(p.dy.row(n, o_y) + o_x * p.dy.pitch + c, left), fill(p.scale(o_y, o_x)), sum);
      store_ahead(sum, to + c, left, room_of(p.dx, end, to + c, p.channels));
    }
  }
}

// The first maximum of a window in reading order and the number of the pixel that holds it, for each channel.
template <bool TWOS>
HWY_INLINE Floats first_maximum(const float* x, int64_t row_step, int64_t pitch, Span y, Span s, int64_t left,
                                Floats& best) {
  Floats where = zeros();
  best = load_up_to(x, left);
  float number = 0;
  for (int64_t r = 0; r < count_of<TWOS>(y); ++r, x += row_step)
    for (int64_t i = 0; i < count_of<TWOS>(s); ++i, number += 1) {
      const Floats v = load_up_to(x + i * pitch, left);
      const auto better = hn::Gt(v, best);
      best = hn::IfThenElse(better, v, best);
      where = hn::IfThenElse(better, fill(number), where);
    }
  return where;
}

// What the pixel that holds the maximum gets.
HWY_INLINE Floats passed_back(const Pool& p, Floats dy, Floats best) {
  return p.by_maximum ? hn::IfThenElseZero(hn::Gt(best, zeros()), dy) : dy;
}

void clear_pixels(const Image& image, int64_t n, int64_t first, int64_t last, int64_t c, int64_t channels) {
  for (int64_t i = first; i < last; ++i)
    std::memset(image.row(n, 0) + i * image.pitch + c, 0, static_cast<size_t>(channels) * sizeof(float));
}

// Applies the epilogue to pixels that are complete and still in the cache.
void finish_pixels(const Pool& p, int64_t n, int64_t first, int64_t last, int64_t c0, int64_t channels) {
  if (p.epilogue.count == 0) return;
  for (int64_t i = first; i < last; ++i)
    for (int64_t c = c0; c < c0 + channels; c += lanes()) {
      const int64_t left = c0 + channels - c;
      float* dx = p.dx.row(n, 0) + i * p.dx.pitch + c;
      store_up_to(apply_epilogue(p.epilogue, load_up_to(dx, left), n * p.dx.h * p.dx.w + i, c, left), dx, left);
    }
}

// Windows that do not overlap: a task owns the input rows from one window's first to the next one's.
template <bool TWOS>
void max_grad_windows(const Pool& p, int64_t task) {
  const int64_t n = task / p.dy.h, o_y = task % p.dy.h;
  const Span y = p.ys[static_cast<size_t>(o_y)];
  const int64_t begin = o_y == 0 ? 0 : y.first;
  const int64_t end = o_y + 1 == p.dy.h ? p.dx.h : p.ys[static_cast<size_t>(o_y + 1)].first;
  if (!p.covered) clear_pixels(p.dx, n, begin * p.dx.w, end * p.dx.w, 0, p.channels);
  const int64_t x_step = p.x.w * p.x.pitch, dx_step = p.dx.w * p.dx.pitch;
  const bool ahead = p.covered && p.channels <= lanes();  // with more vectors, neighbours would not be written in order
  const float *x = p.x.row(n, y.first), *dy = p.dy.row(n, o_y);
  float* dx = p.dx.row(n, y.first);
  for (int64_t o_x = 0; o_x < p.dy.w; ++o_x, dy += p.dy.pitch) {
    const Span s = p.xs[static_cast<size_t>(o_x)];
    for (int64_t c = 0; c < p.channels; c += lanes()) {
      const int64_t left = p.channels - c;
      Floats best;
      const Floats where = first_maximum<TWOS>(x + s.first * p.x.pitch + c, x_step, p.x.pitch, y, s, left, best);
      const Floats v = passed_back(p, load_up_to(dy + c, left), best);
      float number = 0;
      for (int64_t r = 0; r < count_of<TWOS>(y); ++r)
        for (int64_t i = 0; i < count_of<TWOS>(s); ++i, number += 1) {
          float* to = dx + r * dx_step + (s.first + i) * p.dx.pitch + c;
          const int64_t room = ahead ? room_of(p.dx, dx + (r + 1) * dx_step, to, p.channels) : 0;
          store_ahead(hn::IfThenElseZero(hn::Eq(where, fill(number)), v), to, left, room);
        }
    }
  }
  finish_pixels(p, n, begin * p.dx.w, end * p.dx.w, 0, p.channels);
}

// The same where a pixel is at most a vector and every pixel is in a window of 2 x 2: short loops would cost more than
// what they do. But for a row's last pixels, a store may run into the pixels behind, which are written next.
void max_grad_narrow(const Pool& p, int64_t task) {
  const int64_t n = task / p.dy.h, o_y = task % p.dy.h, channels = p.channels, dx_pitch = p.dx.pitch;
  const float *x0 = p.x.row(n, 2 * o_y), *x1 = x0 + p.x.w * p.x.pitch, *dy = p.dy.row(n, o_y);
  float *to0 = p.dx.row(n, 2 * o_y), *to1 = to0 + p.dx.w * dx_pitch;
  const int64_t in_order = dx_pitch == channels ? (p.dx.w * dx_pitch - lanes()) / (2 * dx_pitch) : 0;
  for (int64_t o_x = 0; o_x < p.dy.w; ++o_x) {
    const Floats a = load_up_to(x0, channels), b = load_up_to(x0 + p.x.pitch, channels);
    const Floats c = load_up_to(x1, channels), d = load_up_to(x1 + p.x.pitch, channels);
    const auto b_better = hn::Gt(b, a);
    const Floats upper = hn::IfThenElse(b_better, b, a);
    const auto c_better = hn::Gt(c, upper);
    const Floats three = hn::IfThenElse(c_better, c, upper);
    const auto d_better = hn::Gt(d, three);
    const Floats v = passed_back(p, load_up_to(dy, channels), hn::IfThenElse(d_better, d, three));
    const Floats left = hn::IfThenZeroElse(d_better, v), first = hn::IfThenZeroElse(c_better, left);
    const Floats to_a = hn::IfThenZeroElse(b_better, first), to_b = hn::IfThenElseZero(b_better, first);
    const Floats to_c = hn::IfThenElseZero(c_better, left), to_d = hn::IfThenElseZero(d_better, v);
    if (o_x < in_order) {
      hn::StoreU(to_a, Tag(), to0);
      hn::StoreU(to_b, Tag(), to0 + dx_pitch);
      hn::StoreU(to_c, Tag(), to1);
      hn::StoreU(to_d, Tag(), to1 + dx_pitch);
    } else {
      store_up_to(to_a, to0, channels);
      store_up_to(to_b, to0 + dx_pitch, channels);
      store_up_to(to_c, to1, channels);
      store_up_to(to_d, to1 + dx_pitch, channels);
    }
    x0 += 2 * p.x.pitch, x1 += 2 * p.x.pitch, to0 += 2 * dx_pitch, to1 += 2 * dx_pitch, dy += p.dy.pitch;
  }
}

void max_grad_row(const Pool& p, int64_t task) {
  if (p.twos && p.covered && p.channels <= lanes() && p.epilogue.count == 0) return max_grad_narrow(p, task);
  p.twos ? max_grad_windows<true>(p, task) : max_grad_windows<false>(p, task);
}

// Overlapping windows: a task owns kPlaneChannels channels of one image.
void max_grad_plane(const Pool& p, int64_t task) {
  const int64_t blocks = ceil_div(p.channels, kPlaneChannels), n = task / blocks, c0 = task % blocks * kPlaneChannels;
  const int64_t count = std::min(kPlaneChannels, p.channels - c0);
  const int64_t x_step = p.x.w * p.x.pitch, dx_step = p.dx.w * p.dx.pitch;
  clear_pixels(p.dx, n, 0, p.dx.h * p.dx.w, c0, count);
  for (int64_t o_y = 0; o_y < p.dy.h; ++o_y)
    for (int64_t o_x = 0; o_x < p.dy.w; ++o_x)
      for (int64_t c = c0; c < c0 + count; c += lanes()) {
        const Span y = p.ys[static_cast<size_t>(o_y)], s = p.xs[static_cast<size_t>(o_x)];
        const int64_t left = c0 + count - c;
        const float* x = p.x.row(n, y.first) + s.first * p.x.pitch + c;
        Floats best;
        const Floats where = first_maximum<false>(x, x_step, p.x.pitch, y, s, left, best);
        const Floats v = passed_back(p, load_up_to(p.dy.row(n, o_y) + o_x * p.dy.pitch + c, left), best);
        float* dx = p.dx.row(n, y.first) + s.first * p.dx.pitch + c;
        float number = 0;
        for (int64_t r = 0; r < y.count; ++r, dx += dx_step)
          for (int64_t i = 0; i < s.count; ++i, number += 1) {
            const Floats add = hn::IfThenElseZero(hn::Eq(where, fill(number)), v);
            store_up_to(hn::Add(load_up_to(dx + i * p.dx.pitch, left), add), dx + i * p.dx.pitch, left);
          }
      }
  finish_pixels(p, n, 0, p.dx.h * p.dx.w, c0, count);
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

std::vector<Span> spans_of(const ops::WindowAxis& axis) {
  std::vector<Span> spans;
  for (int64_t o = 0; o < axis.out; ++o) {
    const ops::Taps taps = axis.taps_inside(o);
    spans.push_back({axis.position(o, taps.begin), taps.end - taps.begin});
  }
  return spans;
}
std::vector<Span> windows_of(const ops::WindowAxis& axis) {
  std::vector<Span> windows(static_cast<size_t>(axis.in));
  for (int64_t i = 0; i < axis.in; ++i)
    for (int64_t k = axis.kernel - 1; k >= 0; --k) {
      const int64_t o = axis.output_at(i, k);
      if (o < 0) continue;
      Span& window = windows[static_cast<size_t>(i)];
      if (window.count++ == 0) window.first = o;
    }
  return windows;
}

bool all_twos(const std::vector<Span>& spans) {
  return std::all_of(spans.begin(), spans.end(), [](Span span) { return span.count == 2; });
}

// `large`: the operand that is pooled, or its gradient.
std::shared_ptr<Pool> make_pool(const Call& call, const Operand& large) {
  auto p = std::make_shared<Pool>();
  p->window = ops::window_of(call.attrs, {large.shape()[1], large.shape()[2]}, call.attrs.ints("kernel"));
  p->images = large.shape()[0];
  p->channels = large.cols();
  if (call.attrs.flag("count_pad")) p->whole_window = static_cast<float>(p->window.y.kernel * p->window.x.kernel);
  p->ys = spans_of(p->window.y);
  p->xs = spans_of(p->window.x);
  p->twos = all_twos(p->ys) && all_twos(p->xs);
  return p;
}

template <typename Run>
Work work(std::shared_ptr<Pool> p, int64_t tasks, Run run) {
  return {tasks, [p, run](int64_t task) { run(*p, task); }};
}

Work bind_forward(const Call& call, bool max) {
  auto p = make_pool(call, call.in[0]);
  p->x = image(call.in[0]);
  p->y = image(call.out[0]);
  return work(p, p->images * p->y.h, max ? &HWY_DYNAMIC_DISPATCH(max_row) : &HWY_DYNAMIC_DISPATCH(avg_row));
}
Work bind_max(const Call& call) { return bind_forward(call, true); }
Work bind_avg(const Call& call) { return bind_forward(call, false); }

Work bind_avg_grad(const Call& call) {
  auto p = make_pool(call, call.out[0]);
  p->dy = image(call.in[0]);
  p->dx = image(call.out[0]);
  p->windows_y = windows_of(p->window.y);
  p->windows_x = windows_of(p->window.x);
  return work(p, p->images * p->dx.h, &HWY_DYNAMIC_DISPATCH(avg_grad_row));
}

bool covers(const ops::WindowAxis& a) { return a.stride == a.kernel && a.before == 0 && a.out * a.stride == a.in; }

Work bind_max_grad(const Call& call) {
  auto p = make_pool(call, call.in[0]);
  p->x = image(call.in[0]);
  p->dy = image(call.in[1]);
  p->dx = image(call.out[0]);
  p->covered = covers(p->window.y) && covers(p->window.x);
  p->epilogue = bind_epilogue(call, 2);
  const TileEpilogue::Word& word = p->epilogue.words[0];
  if (p->epilogue.count == 1 && word.kind == ops::Epilogue::mask && word.operand == p->x.data) {
    p->by_maximum = word.pitch == p->x.pitch;
    p->epilogue.count = p->by_maximum ? 0 : 1;
  }
  if (p->window.y.stride >= p->window.y.kernel && p->window.x.stride >= p->window.x.kernel)
    return work(p, p->images * p->dy.h, &HWY_DYNAMIC_DISPATCH(max_grad_row));
  return work(p, p->images * ceil_div(p->channels, kPlaneChannels), &HWY_DYNAMIC_DISPATCH(max_grad_plane));
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
