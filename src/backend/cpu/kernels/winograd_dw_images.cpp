// winograd_dw_images.cpp -- the weight gradient of 5x5 convolutions of few channels by Winograd's tiles F(2x2, 5x5)
// (ops/winograd.h): x is transformed with images in the lanes, dy with results.
//
//   conv2d_dw_winograd_images  m[split,i,j,c,o] = sum over the split's tiles, images:  (B^T x B)[i,j] * (A dy A^T)[i,j]
//   winograd_dw_points         dw[r,s,c,o] = G^T [ sum over splits ] G
//
// x comes side by side (interleave.cpp) and holds whole tiles, with zeros around; dy as it is. For a tile and a vector
// of images, half a row of points by a few channels stays in registers while the images pass: each gives a vector of
// results, which is transformed on the way, and one number per channel and point.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels/winograd_dw_images.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <algorithm>

#include "backend/cpu/image_tiles-inl.h"
#include "backend/cpu/image_tiles.h"
#include "base/error.h"

#ifndef SITU_BACKEND_CPU_WINOGRAD_DW_IMAGES_ONCE_
#define SITU_BACKEND_CPU_WINOGRAD_DW_IMAGES_ONCE_
namespace situ::cpu {
namespace {

constexpr int64_t kMostUnits = 64;  // rows of tiles of a split, a vector of images each

struct ImagesDw {
  Sheaves x;
  const float* dy = nullptr;
  const float* zeros = nullptr;
  int64_t h = 0, w = 0, pitch = 0, results = 0;  // of dy
  int64_t tiles_h = 0, tiles_w = 0, groups = 0, splits = 1;
  float* points = nullptr;
};

// The four pixels of a tile of dy, in the first image.
struct DyTile {
  const float* at[kOut * kOut];
  int64_t step[kOut * kOut];  // to the next image; 0: outside, zeros
  int64_t images = 0;
};

struct PointSums {
  const float* points = nullptr;
  int64_t splits = 1, channels = 0, results = 0;
  float* dw = nullptr;
  int64_t pitch = 0;
};

}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

constexpr int64_t kRows = SITU_FEW_REGISTERS ? 3 : 6;  // channels of a register tile

// Points of the channels of one tile, [channel block, i, j, channel], a vector of images each.
struct Transformed {
  static constexpr int64_t kBlock = kSide * kSide * kRows;
  static constexpr int64_t kBlocks = (kMostChannels + kRows - 1) / kRows;
  HWY_ALIGN float v[kBlocks * kBlock * hn::MaxLanes(Tag())];
  float* at(int64_t c, int64_t point) { return v + (c / kRows * kBlock + point * kRows + c % kRows) * lanes(); }
};

// Sums are named, m<point><channel>: vectors of unknown length fit no array.
#define SITU_CHANNELS(DO, j) DO(j, 0) DO(j, 1) DO(j, 2) DO(j, 3) DO(j, 4) DO(j, 5)
#define SITU_SUMS(DO) SITU_CHANNELS(DO, 0) SITU_CHANNELS(DO, 1) SITU_CHANNELS(DO, 2)
#define SITU_CLEAR(j, c) Floats m##j##c = zeros();
#define SITU_MULADD(j, c) \
  if constexpr (c < kRows) m##j##c = hn::MulAdd(fill(v[((j)*kRows + (c)) * lanes() + n]), e##j, m##j##c);
#define SITU_PUT(j, c)                                                 \
  if constexpr (c < kRows)                                             \
    if (c < channels) {                                                \
      float* to = m + ((j)*all_channels + (c)) * results;              \
      store_up_to(hn::Add(load_up_to(to, width), m##j##c), to, width); \
    }

// Adds one half of row I of points, for a block of channels and `width` results: those at 0 and +-P, or at +-Q and
// infinity.
template <int I, bool FAR>
HWY_INLINE void add_half_row(const DyTile& dy, int64_t o, int64_t width, const float* v, int64_t channels, float* m,
                             int64_t all_channels, int64_t results) {
  SITU_SUMS(SITU_CLEAR)
  const float *upper0 = dy.at[0] + o, *upper1 = dy.at[1] + o, *lower0 = dy.at[2] + o, *lower1 = dy.at[3] + o;
  const auto combine = [&](const float* upper, const float* lower) HWY_ATTR {
    if constexpr (I == 0)
      return load_up_to(upper, width);
    else if constexpr (I == kSide - 1)
      return load_up_to(lower, width);
    else
      return plus_times(load_up_to(upper, width), kFinitePoints[I], load_up_to(lower, width));
  };
  for (int64_t n = 0; n < dy.images; ++n) {
    const Floats d0 = combine(upper0, lower0), d1 = combine(upper1, lower1);
    const Floats e0 = FAR ? plus_times(d0, Q, d1) : d0, e1 = FAR ? minus_times(d0, Q, d1) : plus_times(d0, P, d1);
    const Floats e2 = FAR ? d1 : minus_times(d0, P, d1);
    SITU_SUMS(SITU_MULADD)
    upper0 += dy.step[0];
    upper1 += dy.step[1];
    lower0 += dy.step[2];
    lower1 += dy.step[3];
  }
  SITU_SUMS(SITU_PUT)
}
#undef SITU_CHANNELS
#undef SITU_SUMS
#undef SITU_CLEAR
#undef SITU_MULADD
#undef SITU_PUT

template <int I>
HWY_INLINE void add_row(const ImagesDw& d, const DyTile& dy, int64_t o, const float* v, int64_t c, float* m) {
  const int64_t all = d.x.channels, channels = std::min(kRows, all - c), width = d.results - o, half = kSide / 2;
  float* to = m + (I * kSide * all + c) * d.results + o;
  const float* from = v + I * kSide * kRows * lanes();
  add_half_row<I, false>(dy, o, width, from, channels, to, all, d.results);
  add_half_row<I, true>(dy, o, width, from + half * kRows * lanes(), channels, to + half * all * d.results, all,
                        d.results);
}

DyTile dy_tile(const ImagesDw& d, int64_t ty, int64_t tx, int64_t n) {
  DyTile tile;
  for (int64_t i = 0; i < kOut * kOut; ++i) {
    const int64_t y = ty * kOut + i / kOut, x = tx * kOut + i % kOut;
    const bool inside = y < d.h && x < d.w;
    tile.at[i] = inside ? d.dy + ((n * d.h + y) * d.w + x) * d.pitch : d.zeros;
    tile.step[i] = inside ? d.h * d.w * d.pitch : 0;
  }
  tile.images = std::min(lanes(), d.x.all_images() - n);
  return tile;
}

// Adds a row of tiles, a vector of images, to its own sums first: they round less than one long sum would.
void add_unit(const ImagesDw& d, int64_t unit, Transformed& t, float* row, float* m) {
  const int64_t channels = d.x.channels, count = kSide * kSide * channels * d.results;
  const int64_t ty = unit % d.tiles_h, n = unit / d.tiles_h * lanes();
  std::fill_n(row, count, 0.0f);
  for (int64_t tx = 0; tx < d.tiles_w; ++tx) {
    for (int64_t c = 0; c < channels; ++c) {
      const auto run = n + lanes() <= d.x.all_images() ? transform_tile<true> : transform_tile<false>;
      run(d.x, ty, tx, c, n, t.at(c, 0), kSide * kRows * lanes(), kRows * lanes());
    }
    const DyTile dy = dy_tile(d, ty, tx, n);
    for (int64_t o = 0; o < d.results; o += lanes())
      for (int64_t c = 0; c < channels; c += kRows) {
        const float* v = t.at(c, 0);
        add_row<0>(d, dy, o, v, c, row);
        add_row<1>(d, dy, o, v, c, row);
        add_row<2>(d, dy, o, v, c, row);
        add_row<3>(d, dy, o, v, c, row);
        add_row<4>(d, dy, o, v, c, row);
        add_row<5>(d, dy, o, v, c, row);
      }
  }
  for (int64_t i = 0; i < count; i += lanes())
    store_up_to(hn::Add(load_up_to(m + i, count - i), load_up_to(row + i, count - i)), m + i, count - i);
}

void run_split(const ImagesDw& d, int64_t split) {
  const int64_t units = d.tiles_h * d.groups, count = kSide * kSide * d.x.channels * d.results;
  float* m = d.points + split * count;
  std::fill_n(m, count, 0.0f);
  Transformed t;
  std::fill_n(t.v, round_up(d.x.channels, kRows) * kSide * kSide * lanes(), 0.0f);  // what fills up blocks stays 0
  HWY_ALIGN float row[kSide * kSide * kMostChannels * kMostChannels];
  for (int64_t unit = units * split / d.splits; unit < units * (split + 1) / d.splits; ++unit)
    add_unit(d, unit, t, row, m);
}

void transform_points(const PointSums& p, int64_t c) {
  const int64_t plane = p.channels * p.results;
  for (int64_t o = 0; o < p.results; o += lanes()) {
    const int64_t n = p.results - o;
    const float* from = p.points + c * p.results + o;
    transform<DwLine<Tiles25>>(
        [&](int i, int j) HWY_ATTR {
          Floats sum = load_up_to(from + (i * kSide + j) * plane, n);
          for (int64_t s = 1; s < p.splits; ++s)
            sum = hn::Add(sum, load_up_to(from + (s * kSide * kSide + i * kSide + j) * plane, n));
          return sum;
        },
        [&](int r, int s, Floats x)
            HWY_ATTR { store_up_to(x, p.dw + ((r * 5 + s) * p.channels + c) * p.pitch + o, n); });
  }
}

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(run_split);
HWY_EXPORT(transform_points);

Work bind_dw(const Call& call) {
  const Operand &dy = call.in[1], &points = call.out[0];
  ImagesDw d;
  d.x = sheaves_of(call.in[0], call.attrs.integer("images"));
  d.dy = dy.f32();
  d.zeros = dy.zeros;
  d.h = dy.shape()[1];
  d.w = dy.shape()[2];
  d.pitch = dy.pitch;
  d.results = dy.cols();
  d.tiles_h = ceil_div(d.h, kOut);
  d.tiles_w = ceil_div(d.w, kOut);
  d.groups = ceil_div(d.x.all_images(), call.tuning().get("simd.lanes", 8));
  d.splits = points.shape()[0];
  d.points = points.f32();
  SITU_ASSERT(points.pitch == points.cols() && std::max(d.x.channels, d.results) <= kMostChannels);
  const auto run = &HWY_DYNAMIC_DISPATCH(run_split);
  return {d.splits, [d, run](int64_t split) { run(d, split); }};
}

Work bind_points(const Call& call) {
  const Operand &points = call.in[0], &dw = call.out[0];
  const PointSums p{points.f32(), points.shape()[0], dw.shape()[2], dw.cols(), dw.f32(), dw.pitch};
  SITU_ASSERT(points.pitch == points.cols() && points.cols() == p.results);
  const auto run = &HWY_DYNAMIC_DISPATCH(transform_points);
  return {p.channels, [p, run](int64_t c) { run(p, c); }};
}

// --- where it pays --------------------------------------------------------------------------------------------------
bool accepts(const ops::OpView& v, const device::Target&) {
  const WinogradConv f = conv_of_dw(v);
  return fits_image_tiles(f) && ops::winograd::exact_enough_dw(f.window, f.images, kOut);
}
// A rank, before the others where images and results fill vectors and a few channels share a transformed dy.
double seconds(const ops::OpView& v, const device::Target& target) {
  const int64_t images = v.in(0).shape[0], channels = v.in(0).shape[3], results = v.in(1).shape[3];
  const int64_t lanes = target.tuning.get("simd.lanes", 8);
  return channels > 2 && images >= lanes && 4 * results >= 3 * round_up(results, lanes) ? -0.7 : 0.5;
}

void expand(device::Expansion& e) {
  const WinogradConv f = conv_of_dw(e.view());
  const int64_t groups = ceil_div(f.images, e.target().tuning.get("simd.lanes", 8));
  const int64_t units = ceil_div(f.window.y.out, kOut) * groups;
  const int64_t splits = std::max(std::min<int64_t>(units, 8), ceil_div(units, kMostUnits));
  const ir::Value x = interleave_tiles(e, e.in(0), f.window);
  const ir::Value points =
      e.launch("conv2d_dw_winograd_images", {x, e.in(1)}, f32({splits, kSide * kSide, f.c, f.o}),
               {{"images", images_of_sheaf(f.images, e.target().tuning)}, {"out", kOut}, {"side", kSide}});
  e.result(0, e.launch("winograd_dw_points", {points}, e.out_type(0)));
}

}  // namespace

namespace kernels {
KernelList winograd_dw_images() {
  static constexpr Kernel kernels[] = {{"conv2d_dw_winograd_images", bind_dw}, {"winograd_dw_points", bind_points}};
  static constexpr device::Candidate candidates[] = {
      {.op = "conv2d_dw", .name = "winograd_images", .accepts = accepts, .seconds = seconds, .expand = expand}};
  return {kernels, candidates};
}
}  // namespace kernels
}  // namespace situ::cpu
#endif
