// winograd_images.cpp -- 5x5 convolutions of few channels by Winograd's tiles F(2x2, 5x5) (ops/winograd.h), images in
// the lanes: few channels would leave most of a vector of channels empty, and transforms would cost more than products.
//
//   winograd_weights_images   u[i,k,j,o] = (G w G^T)[i,j] of channel k that is summed and result o
//   conv2d_winograd_images    y tile  = A^T [ sum over c:  u . (B^T x B) ] A, epilogue
//   conv2d_dx_winograd_images dx     += B [ sum over o:  u . (A dy A^T) ] B^T    over tiles, which overlap
//
// Images come and go side by side, [N / L, H, W, C * L] (interleave.cpp). Those read hold whole tiles, with zeros
// around. The gradient is the forward pass turned round, not a convolution of a padded dy: it has no tiles of mostly
// zeros, and a pixel at the border rounds no more than its own few terms.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels/winograd_images.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <algorithm>

#include "backend/cpu/image_tiles-inl.h"
#include "backend/cpu/image_tiles.h"
#include "backend/cpu/tile.h"
#include "base/error.h"

#ifndef SITU_BACKEND_CPU_WINOGRAD_IMAGES_ONCE_
#define SITU_BACKEND_CPU_WINOGRAD_IMAGES_ONCE_
namespace situ::cpu {
namespace {

constexpr int64_t kTaps = 25;
constexpr int64_t kMostTerms = 8;      // of a sum in one piece
constexpr int64_t kFewestTerms = 400;  // of a data gradient: its pixels at the border have few of them

struct ImageTiles {
  Sheaves from, to;
  int64_t tiles_h = 0, tiles_w = 0, groups = 0;
  int64_t top = 0, left = 0;  // of dx, how far its first tile reaches into the padding
  const float* u = nullptr;
  int64_t u_pitch = 0;  // results of a point, padded to blocks
  TileEpilogue epilogue;
};

struct ImageWeights {
  const float* w = nullptr;
  int64_t channels = 0, results = 0, pitch = 0;  // of w[5,5,channels,results]
  bool backward = false;
  float* u = nullptr;
  int64_t u_pitch = 0;
};

}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

struct BackLine {  // B m
  static constexpr int kFrom = kSide, kTo = kSide;
  template <class X, class Y>
  static HWY_INLINE void run(const X& m, const Y& x) {
    const Floats m0 = m(0), m1 = m(1), m2 = m(2), m3 = m(3), m4 = m(4), m5 = m(5);
    const Floats near = hn::Add(m1, m2), near_odd = hn::Sub(m1, m2);
    const Floats far = hn::Add(m3, m4), far_odd = hn::Sub(m3, m4);
    x(0, times(kAt0, m0));
    x(1, minus_times(minus_times(times(kAt0, m5), P * QQ, near_odd), Q * PP, far_odd));
    x(2, minus_times(minus_times(times(-(PP + QQ), m0), QQ, near), PP, far));
    x(3, plus_times(plus_times(times(-(PP + QQ), m5), P, near_odd), Q, far_odd));
    x(4, hn::Add(hn::Add(m0, near), far));
    x(5, m5);
  }
};

// Sums of six points by BLOCK results are named: vectors of unknown length fit no array.
#define SITU_POINTS(DO, b) DO(0, b) DO(1, b) DO(2, b) DO(3, b) DO(4, b) DO(5, b)
#define SITU_CLEAR(j, b) Floats m##j##b = zeros();
#define SITU_HOLD(j, b)                                        \
  if constexpr (BLOCK > b) {                                   \
    hn::Store(m##j##b, d, held + ((b)*kSide + (j)) * lanes()); \
    m##j##b = zeros();                                         \
  }
#define SITU_JOIN(j, b) \
  if constexpr (BLOCK > b) m##j##b = hn::Add(m##j##b, hn::Load(d, held + ((b)*kSide + (j)) * lanes()));
#define SITU_ADD(j, b)                                               \
  if constexpr (BLOCK > b) {                                         \
    m##j##b = hn::MulAdd(fill(u[(j)*u_pitch + (b)]), v##j, m##j##b); \
  }
#define SITU_ADD_POINT(j)                                 \
  const Floats v##j = kept(hn::Load(d, v + (j)*lanes())); \
  SITU_ADD(j, 0) SITU_ADD(j, 1) SITU_ADD(j, 2) SITU_ADD(j, 3)
#define SITU_TAKE(b)                                                                                         \
  if constexpr (BLOCK > b)                                                                                   \
    Line::run(                                                                                               \
        [&](int j) HWY_ATTR {                                                                                \
          return j == 0 ? m0##b : j == 1 ? m1##b : j == 2 ? m2##b : j == 3 ? m3##b : j == 4 ? m4##b : m5##b; \
        },                                                                                                   \
        [&](int j, Floats x) HWY_ATTR { take(b, j, x); });

// One row of points: the sums over k of u[k, j, b] * v[k, j], transformed along the row. Of more than kMostTerms the
// first half rests in memory meanwhile: what they are off grows with the length of a sum, and the transform doubles it.
template <class Line, int BLOCK, class Take>
HWY_INLINE void multiply_row(const float* v, const float* u, int64_t u_pitch, int64_t depth, const Take& take) {
  const Tag d;
  HWY_ALIGN float held[4 * kSide * hn::MaxLanes(d)];
  const bool halves = depth > kMostTerms;
  SITU_POINTS(SITU_CLEAR, 0)
  SITU_POINTS(SITU_CLEAR, 1)
  SITU_POINTS(SITU_CLEAR, 2)
  SITU_POINTS(SITU_CLEAR, 3)
  const auto add = [&](int64_t terms) HWY_ATTR {
    for (int64_t k = 0; k < terms; ++k, v += kSide * lanes(), u += kSide * u_pitch) {
      SITU_ADD_POINT(0)
      SITU_ADD_POINT(1)
      SITU_ADD_POINT(2)
      SITU_ADD_POINT(3)
      SITU_ADD_POINT(4)
      SITU_ADD_POINT(5)
    }
  };
  add(halves ? depth / 2 : depth);
  if (halves) {
    SITU_POINTS(SITU_HOLD, 0)
    SITU_POINTS(SITU_HOLD, 1)
    SITU_POINTS(SITU_HOLD, 2)
    SITU_POINTS(SITU_HOLD, 3)
    add(depth - depth / 2);
    SITU_POINTS(SITU_JOIN, 0)
    SITU_POINTS(SITU_JOIN, 1)
    SITU_POINTS(SITU_JOIN, 2)
    SITU_POINTS(SITU_JOIN, 3)
  }
  SITU_TAKE(0)
  SITU_TAKE(1)
  SITU_TAKE(2)
  SITU_TAKE(3)
}
#undef SITU_POINTS
#undef SITU_CLEAR
#undef SITU_HOLD
#undef SITU_JOIN
#undef SITU_ADD
#undef SITU_ADD_POINT
#undef SITU_TAKE

template <class Run>
HWY_INLINE void for_blocks(int64_t results, const Run& run) {
  if constexpr (SITU_FEW_REGISTERS)
    for (int64_t o = 0; o < results; o += 2) run.template operator()<2>(o);
  else if (results % 4 != 0 && results % 3 == 0)
    for (int64_t o = 0; o < results; o += 3) run.template operator()<3>(o);
  else
    for (int64_t o = 0; o < results; o += 4) run.template operator()<4>(o);
}

HWY_INLINE Floats finish(const TileEpilogue& epilogue, Floats v, int64_t o) {
  for (int e = 0; e < epilogue.count; ++e) {
    const TileEpilogue::Word& word = epilogue.words[static_cast<size_t>(e)];
    if (word.kind == ops::Epilogue::bias)
      v = hn::Add(v, fill(word.operand[o]));
    else
      v = word.kind == ops::Epilogue::relu ? relu_of(v) : relu6_of(v);
  }
  return v;
}

// Results of one tile from v, its transformed channels [i, c, j].
template <bool WHOLE>
HWY_INLINE void finish_tile(const ImageTiles& t, const float* v, int64_t ty, int64_t tx, int64_t n) {
  const Tag d;
  const int64_t depth = t.from.channels, results = t.to.channels, width = lanes();
  const int64_t row = kSide * depth;  // pairs of channel and point in a row of points
  const int64_t rest = t.to.all_images() - n, pixel = t.to.pixel(), line = t.to.line();
  for_blocks(results, [&]<int BLOCK>(int64_t o) HWY_ATTR {
    HWY_ALIGN float half_done[BLOCK * kSide * kOut * hn::MaxLanes(d)];
    for (int64_t i = 0; i < kSide; ++i)
      multiply_row<OutputLine<Tiles25>, BLOCK>(
          v + i * row * width, t.u + i * row * t.u_pitch + o, t.u_pitch, depth,
          [&](int b, int s, Floats x) HWY_ATTR { hn::Store(x, d, half_done + ((b * kSide + i) * kOut + s) * width); });
    float* first = t.to.at(ty * kOut, tx * kOut, o, n);
    for (int64_t b = 0; b < std::min<int64_t>(BLOCK, results - o); ++b)
      for (int s = 0; s < kOut; ++s)
        OutputLine<Tiles25>::run(
            [&](int i) HWY_ATTR { return hn::Load(d, half_done + ((b * kSide + i) * kOut + s) * width); },
            [&](int r, Floats x) HWY_ATTR {
              if (ty * kOut + r < t.to.h && tx * kOut + s < t.to.w)
                store_up_to<WHOLE>(finish(t.epilogue, x, o + b), first + r * line + s * pixel + b * t.to.images, rest);
            });
  });
}

template <bool WHOLE>
HWY_INLINE void forward_row(const ImageTiles& t, int64_t ty, int64_t n) {
  const Tag d;
  const int64_t depth = t.from.channels;
  HWY_ALIGN float v[kSide * kSide * kMostChannels * hn::MaxLanes(d)];
  for (int64_t tx = 0; tx < t.tiles_w; ++tx) {
    for (int64_t c = 0; c < depth; ++c)
      transform_tile<WHOLE>(t.from, ty, tx, c, n, v + c * kSide * lanes(), depth * kSide * lanes(), lanes());
    finish_tile<WHOLE>(t, v, ty, tx, n);
  }
}
void run_forward(const ImageTiles& t, int64_t task) {
  const int64_t ty = task % t.tiles_h, n = task / t.tiles_h * lanes();
  n + lanes() <= t.from.all_images() ? forward_row<true>(t, ty, n) : forward_row<false>(t, ty, n);
}

// Row i of the points of dy's tile, [o, j]: upper + at * lower, two pixels each, transformed along the row.
template <bool WHOLE, bool UPPER, bool LOWER>
HWY_INLINE void transform_dy_row(const Sheaves& dy, const float* upper, float at, int64_t n, float* e) {
  const int64_t rest = dy.all_images() - n, pixel = dy.pixel(), line = dy.line();
  for (int64_t o = 0; o < dy.channels; ++o, upper += dy.images, e += kSide * lanes())
    DyLine<Tiles25>::run(
        [&](int s) HWY_ATTR {
          const float* p = upper + s * pixel;
          if constexpr (!LOWER) return load_up_to<WHOLE>(p, rest);
          const Floats lower = load_up_to<WHOLE>(p + line, rest);
          return UPPER ? plus_times(load_up_to<WHOLE>(p, rest), at, lower) : lower;
        },
        [&](int j, Floats x) HWY_ATTR { hn::Store(x, Tag(), e + j * lanes()); });
}
template <bool WHOLE>
HWY_INLINE void transform_dy_row(const Sheaves& dy, int64_t i, int64_t ty, int64_t tx, int64_t n, float* e) {
  const float* upper = dy.at(ty * kOut, tx * kOut, 0, n);
  if (i == 0)
    transform_dy_row<WHOLE, true, false>(dy, upper, 0, n, e);
  else if (i == kSide - 1)
    transform_dy_row<WHOLE, false, true>(dy, upper, 0, n, e);
  else
    transform_dy_row<WHOLE, true, true>(dy, upper, kFinitePoints[i], n, e);
}

// Adds a tile's pixels to dx, from m[c, i, j] that is transformed along its rows.
template <bool WHOLE>
HWY_INLINE void add_tile(const ImageTiles& t, const float* m, int64_t ty, int64_t tx, int64_t n) {
  const Tag d;
  const int64_t top = ty * kOut - t.top, left = tx * kOut - t.left, rest = t.to.all_images() - n;
  const int64_t pixel = t.to.pixel(), line = t.to.line();
  const bool inside = top >= 0 && top + kSide <= t.to.h;
  for (int64_t c = 0; c < t.to.channels; ++c) {
    float* first = t.to.at(top, left, c, n);
    for (int64_t j = std::max<int64_t>(0, -left); j < std::min(kSide, t.to.w - left); ++j)
      BackLine::run([&](int i) HWY_ATTR { return hn::Load(d, m + ((c * kSide + i) * kSide + j) * lanes()); },
                    [&](int i, Floats more) HWY_ATTR {
                      if (!inside && (top + i < 0 || top + i >= t.to.h)) return;
                      float* to = first + i * line + j * pixel;
                      store_up_to<WHOLE>(hn::Add(load_up_to<WHOLE>(to, rest), more), to, rest);
                    });
  }
}

template <bool WHOLE>
HWY_INLINE void dx_of_images(const ImageTiles& t, int64_t n) {
  const Tag d;
  const int64_t depth = t.from.channels, results = t.to.channels, width = lanes();
  HWY_ALIGN float e[kSide * kMostChannels * hn::MaxLanes(d)];
  HWY_ALIGN float m[kSide * kSide * (kMostChannels + 4) * hn::MaxLanes(d)];
  float* first = t.to.at(0, 0, 0, n);
  for (int64_t i = 0; i < t.to.size(); i += t.to.images) store_up_to<WHOLE>(zeros(), first + i, t.to.all_images() - n);
  for (int64_t ty = 0; ty < t.tiles_h; ++ty)
    for (int64_t tx = 0; tx < t.tiles_w; ++tx) {
      for (int64_t i = 0; i < kSide; ++i) {
        transform_dy_row<WHOLE>(t.from, i, ty, tx, n, e);
        for_blocks(results, [&]<int BLOCK>(int64_t c) HWY_ATTR {
          multiply_row<BackLine, BLOCK>(e, t.u + i * kSide * depth * t.u_pitch + c, t.u_pitch, depth,
                                        [&](int b, int j, Floats x) HWY_ATTR {
                                          hn::Store(x, d, m + (((c + b) * kSide + i) * kSide + j) * width);
                                        });
        });
      }
      add_tile<WHOLE>(t, m, ty, tx, n);
    }
}
void run_dx(const ImageTiles& t, int64_t task) {
  const int64_t n = task * lanes();
  n + lanes() <= t.to.all_images() ? dx_of_images<true>(t, n) : dx_of_images<false>(t, n);
}

// The points of channel c and all results, or of all channels and results from o on turned over.
void transform_weights(const ImageWeights& t, int64_t c) {
  const Tag d;
  HWY_ALIGN float points[kSide * kSide * hn::MaxLanes(d)];
  const int64_t depth = t.backward ? t.results : t.channels;
  for (int64_t o = 0; o < t.results; o += lanes()) {
    const int64_t count = std::min(lanes(), t.results - o);
    transform<WeightLine<Tiles25>>(
        [&](int r, int s) HWY_ATTR { return load_up_to(t.w + ((r * 5 + s) * t.channels + c) * t.pitch + o, count); },
        [&](int i, int j, Floats x) HWY_ATTR { hn::Store(x, d, points + (i * kSide + j) * lanes()); });
    for (int64_t i = 0; i < kSide; ++i)
      for (int64_t j = 0; j < kSide; ++j)
        for (int64_t l = 0; l < count; ++l) {
          const int64_t k = t.backward ? o + l : c, result = t.backward ? c : o + l;
          t.u[((i * depth + k) * kSide + j) * t.u_pitch + result] = points[(i * kSide + j) * lanes() + l];
        }
  }
}

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(run_forward);
HWY_EXPORT(run_dx);
HWY_EXPORT(transform_weights);

// Results of a point, so that no block of them reaches beyond.
int64_t padded_results(int64_t results) { return round_up(results, 4); }

Work bind_weights(const Call& call) {
  const Operand &w = call.in[0], &u = call.out[0];
  ImageWeights t{.w = w.f32(),
                 .channels = w.shape()[2],
                 .results = w.cols(),
                 .pitch = w.pitch,
                 .backward = call.attrs.flag("backward"),
                 .u = u.f32()};
  const int64_t results = t.backward ? t.channels : t.results;
  t.u_pitch = padded_results(results);
  SITU_ASSERT(u.pitch == u.cols() && u.cols() == kSide * t.u_pitch);
  const auto run = &HWY_DYNAMIC_DISPATCH(transform_weights);
  return {t.channels, [t, run](int64_t c) { run(t, c); }};
}

ImageTiles bind_tiles(const Call& call, bool backward) {
  const int64_t images = call.attrs.integer("images");
  const ir::Ints& before = call.attrs.ints("before");
  ImageTiles t;
  t.from = sheaves_of(call.in[0], images);
  t.to = sheaves_of(call.out[0], images);
  const Sheaves& written = backward ? t.from : t.to;  // by the forward pass
  t.tiles_h = ceil_div(written.h, kOut);
  t.tiles_w = ceil_div(written.w, kOut);
  t.groups = ceil_div(t.from.all_images(), call.tuning().get("simd.lanes", 8));
  if (backward) {
    t.top = before[0];
    t.left = before[1];
  }
  t.u = call.in[1].f32();
  t.u_pitch = padded_results(t.to.channels);
  t.epilogue = bind_epilogue(call, 2);
  SITU_ASSERT(t.from.channels <= kMostChannels && t.to.channels <= kMostChannels);
  return t;
}
Work bind_forward(const Call& call) {
  const ImageTiles t = bind_tiles(call, false);
  const auto run = &HWY_DYNAMIC_DISPATCH(run_forward);
  return {t.groups * t.tiles_h, [t, run](int64_t task) { run(t, task); }};
}
Work bind_dx(const Call& call) {
  const ImageTiles t = bind_tiles(call, true);
  const auto run = &HWY_DYNAMIC_DISPATCH(run_dx);
  return {t.groups, [t, run](int64_t task) { run(t, task); }};
}

// --- where it pays --------------------------------------------------------------------------------------------------
bool fits(const WinogradConv& f, const ir::Attrs& attrs) {
  return fits_image_tiles(f) && std::ranges::none_of(ops::epilogue_of(attrs), ops::takes_like_result);
}
bool accepts(const ops::OpView& v, const device::Target&) {
  const WinogradConv f = conv_of_forward(v);
  return fits(f, v.attrs) && ops::winograd::exact_enough(f.window, f.c, kOut);
}
bool accepts_dx(const ops::OpView& v, const device::Target&) {
  const WinogradConv f = conv_of_dx(v);
  const Shape& dy = v.in(0).shape;
  const bool whole_tiles = dy[1] % kOut == 0 && dy[2] % kOut == 0;  // else a tile's inner pixels would be at the border
  return fits(f, v.attrs) && ops::epilogue_of(v.attrs).empty() && whole_tiles && f.c * kTaps >= kFewestTerms;
}
// A rank: before images (conv_images.cpp) where they fill vectors.
double seconds(const ops::OpView& v, const device::Target& target) {
  return v.in(0).shape[0] >= target.tuning.get("simd.lanes", 8) ? -0.7 : 0.5;
}

ir::Value weights(device::Expansion& e, const WinogradConv& f, bool backward) {
  return e.launch("winograd_weights_images", {e.in(1)}, f32({kSide, f.c, kSide * padded_results(f.o)}),
                  {{"backward", int64_t{backward}}});
}
void expand(device::Expansion& e, bool backward) {
  const WinogradConv f = backward ? conv_of_dx(e.view()) : conv_of_forward(e.view());
  const Shape &x = e.view().in(0).shape, &y = e.out_type(0).shape;
  const ops::Window forward = backward ? ops::window_of(e.attrs(), e.attrs().ints("size"), {5, 5}) : f.window;
  const ir::Ints before{forward.y.before, forward.x.before};
  ir::Values inputs = e.inputs();
  inputs[0] = backward ? interleave(e, e.in(0), x[1], x[2], {0, 0}) : interleave_tiles(e, e.in(0), forward);
  inputs[1] = weights(e, f, backward);
  const int64_t images = images_of_sheaf(x[0], e.target().tuning);
  ir::Attrs attrs{{"images", images}, {"before", before}, {"out", kOut}, {"side", kSide}};
  attrs.set("epilogue", e.attrs().text("epilogue", ""));
  const ir::Value sheaf = e.launch(backward ? "conv2d_dx_winograd_images" : "conv2d_winograd_images", inputs,
                                   f32({y[0] / images, y[1], y[2], y[3] * images}), attrs);
  e.result(0, e.launch("spread_images", {sheaf}, e.out_type(0)));
}
void expand_forward(device::Expansion& e) { expand(e, false); }
void expand_dx(device::Expansion& e) { expand(e, true); }

}  // namespace

namespace kernels {
KernelList winograd_images() {
  static constexpr Kernel kernels[] = {{"winograd_weights_images", bind_weights},
                                       {"conv2d_winograd_images", bind_forward},
                                       {"conv2d_dx_winograd_images", bind_dx}};
  static constexpr device::Candidate candidates[] = {
      {.op = "conv2d", .name = "winograd_images", .accepts = accepts, .seconds = seconds, .expand = expand_forward},
      {.op = "conv2d_dx", .name = "winograd_images", .accepts = accepts_dx, .seconds = seconds, .expand = expand_dx}};
  return {kernels, candidates};
}
}  // namespace kernels
}  // namespace situ::cpu
#endif
