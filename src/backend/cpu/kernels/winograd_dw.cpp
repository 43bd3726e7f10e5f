// winograd_dw.cpp -- the weight gradient of 3x3 convolutions with stride 1 by Winograd's tiles (ops/winograd.h).
//
//   conv2d_dw_winograd   dw[r,s,c,o] = G^T [ sum over tiles (B^T x B) . (A dy A^T) ] G, scratch
//                        with a result [S,R,S,C,O] the tiles are split into S parts, for sum_splits to add in order
//                        whole vectors of 16 channels have a way of their own (winograd_lines.h)
//
// A unit is one part of the tiles, a range of channels and one of outputs; it keeps a matrix of sums for each point,
// and all of them fit the L2 cache. It takes its tiles in blocks: transforms x and dy, adds their products point by
// point.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels/winograd_dw.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <algorithm>

#include "backend/cpu/winograd-inl.h"
#include "backend/cpu/winograd.h"
#include "backend/cpu/winograd_lines.h"
#include "base/error.h"

#ifndef SITU_BACKEND_CPU_WINOGRAD_DW_ONCE_
#define SITU_BACKEND_CPU_WINOGRAD_DW_ONCE_
namespace situ::cpu {
namespace {

// How the work is cut, by shapes and tuning alone.
struct DwCut {
  int64_t block = 0, splits = 1, channels = 0, columns = 0;  // of a block; of a unit, whole vectors
  int64_t channel_groups = 1, column_groups = 1;
  int64_t tasks = 1;                     // each has some units, and scratch for one
  TileGradientFunction lines = nullptr;  // what a unit runs, if not the functions below
  int64_t units() const { return splits * channel_groups * column_groups; }
};

struct TileDw {
  TiledImages x, dy;
  DwCut cut;
  int64_t count = 0;
  PanelSet panels;  // of all columns
  float* scratch = nullptr;
  int64_t scratch_pitch = 0;
  float* dw = nullptr;  // of split 0
  int64_t dw_pitch = 0, part = 0;
};
// Tiles [first, last); channels from c0 and outputs from o0 on.
struct DwBlock {
  int64_t first = 0, last = 0, c0 = 0, c1 = 0, o0 = 0, o1 = 0;
  Points v, e, m;
  float* dw = nullptr;
};
struct Transforms {
  void (*block)(const TileDw&, const DwBlock&);
  void (*sums)(const TileDw&, const DwBlock&);
};

}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

// Transforms channels [from, to) of the block's tiles, SIDE x SIDE pixels each.
template <class Line>
void transform_tiles(const TiledImages& images, const DwBlock& b, int64_t from, int64_t to, const Points& points) {
  TilePlace place(images, b.first);
  for (int64_t tile = b.first; tile < b.last; ++tile, place.next(images)) {
    const TilePixels<Line::kFrom> pixels(images, place);
    for (int64_t c = from; c < to; c += lanes())
      transform_pixels<Line>(pixels, c, to - c, points.at(0, tile - b.first, c - from), points.plane);
  }
}

template <class S>
void transform_block(const TileDw& d, const DwBlock& b) {
  transform_tiles<InputLine<S>>(d.x, b, b.c0, b.c1, b.v);
  transform_tiles<DyLine<S>>(d.dy, b, b.o0, b.o1, b.e);
}

template <class S>
void transform_sums(const TileDw& d, const DwBlock& b) {
  constexpr int kIn = S::kSide;
  for (int64_t c = b.c0; c < b.c1; ++c)
    for (int64_t o = b.o0; o < b.o1; o += lanes()) {
      const float* from = b.m.at(0, c - b.c0, o - b.o0);
      transform<DwLine<S>>([&](int i, int j) HWY_ATTR { return hn::LoadU(Tag(), from + (i * kIn + j) * b.m.plane); },
                           [&](int r, int s, Floats v) HWY_ATTR {
                             store_up_to(v, b.dw + ((r * S::kKernel + s) * d.x.channels + c) * d.dw_pitch + o,
                                         b.o1 - o);
                           });
    }
}

template <class S>
Transforms transforms_of() {
  return {transform_block<S>, transform_sums<S>};
}
Transforms transforms(int64_t out) { return out == 4 ? transforms_of<Tiles43>() : transforms_of<Tiles23>(); }

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(transforms);

DwCut cut_of(const ops::winograd::Tiles& tiles, int64_t c, int64_t o, const device::Tuning& tuning) {
  const int64_t lanes = tuning.get("simd.lanes", 8), tn = panel_width(tuning);
  const int64_t wanted = winograd_tuning(tuning, "winograd.tasks", 8);
  DwCut cut;
  cut.lines = tile_gradient_function(c, o, tiles, tuning);
  cut.channels = std::min(round_up(c, lanes), round_up(winograd_tuning(tuning, "winograd.channels", 32), lanes));
  cut.columns =
      std::min(round_up(o, lanes), std::max<int64_t>(1, winograd_tuning(tuning, "winograd.columns", 64) / tn) * tn);
  cut.channel_groups = ceil_div(c, cut.channels);
  cut.column_groups = ceil_div(o, cut.columns);
  const int64_t blocks = ceil_div(tiles.count, winograd_tuning(tuning, "winograd.dw_tiles", 24));
  cut.splits = std::clamp<int64_t>(wanted / (cut.channel_groups * cut.column_groups), 1, ceil_div(blocks, 2));
  cut.block = ceil_div(ceil_div(tiles.count, cut.splits), ceil_div(blocks, cut.splits));
  cut.tasks = std::min(cut.units(), wanted);
  return cut;
}
int64_t scratch_floats(const DwCut& cut, int64_t points) {
  return points * (Points::plane_of(cut.block, cut.channels) + Points::plane_of(cut.block, cut.columns) +
                   Points::plane_of(cut.channels, cut.columns));
}

void run_unit(const TileDw& d, int64_t unit, float* scratch, const Transforms& transform) {
  const DwCut& cut = d.cut;
  const int64_t points = d.x.points, split = unit / cut.channel_groups / cut.column_groups;
  DwBlock b;
  b.c0 = unit / cut.column_groups % cut.channel_groups * cut.channels;
  b.c1 = std::min(b.c0 + cut.channels, d.x.channels);
  b.o0 = unit % cut.column_groups * cut.columns;
  b.o1 = std::min(b.o0 + cut.columns, d.dy.channels);
  b.v = Points(scratch, cut.block, cut.channels);
  b.e = Points(b.v.data + points * b.v.plane, cut.block, cut.columns);
  b.m = Points(b.e.data + points * b.e.plane, cut.channels, cut.columns);
  b.dw = d.dw + split * d.part;
  const int64_t begin = d.count * split / cut.splits, end = d.count * (split + 1) / cut.splits, tn = d.panels.tn;
  if (cut.lines) {
    TileGradient g{d.x, d.dy, cut.block, b.dw + b.c0 * d.dw_pitch + b.o0, d.dw_pitch, d.x.channels * d.dw_pitch};
    g.x.data += b.c0;
    g.x.channels = b.c1 - b.c0;
    g.dy.data += b.o0;
    g.dy.channels = b.o1 - b.o0;
    cut.lines(g, begin, end, scratch);
    return;
  }
  for (b.first = begin; b.first < end; b.first = b.last) {
    b.last = std::min(end, b.first + cut.block);
    transform.block(d, b);
    multiply_points(d.panels, {.points = points,
                               .m = b.c1 - b.c0,
                               .k = b.last - b.first,
                               .terms = cut.block,
                               .a = b.v,
                               .y = b.m,
                               .a_row = 1,
                               .a_step = b.v.pitch,
                               .b = b.e.data,
                               .b_plane = b.e.plane,
                               .b_panel = tn,
                               .b_step = b.e.pitch,
                               .panel0 = b.o0 / tn,
                               .panel1 = ceil_div(b.o1, tn),
                               .accumulate = b.first != begin});
  }
  transform.sums(d, b);
}

void run_task(const TileDw& d, int64_t task, const Transforms& transform) {
  const int64_t units = d.cut.units();
  for (int64_t unit = units * task / d.cut.tasks; unit < units * (task + 1) / d.cut.tasks; ++unit)
    run_unit(d, unit, d.scratch + task * d.scratch_pitch, transform);
}

Work bind_dw(const Call& call) {
  const Operand &x = call.in[0], &dy = call.in[1], &dw = call.out[0], &scratch = call.out[1];
  const int64_t out = call.attrs.integer("out");
  const ops::Window window = ops::window_of(call.attrs, {x.shape()[1], x.shape()[2]}, call.attrs.ints("kernel"));
  const ops::winograd::Tiles tiles = ops::winograd::tiles_of(window, x.shape()[0], out);
  TileDw d;
  d.x = TiledImages(x, tiles, window.y.before, window.x.before);
  d.dy = TiledImages(dy, tiles, 0, 0);
  d.cut = cut_of(tiles, x.cols(), dy.cols(), call.tuning());
  d.count = tiles.count;
  d.panels = make_panels(round_up(dy.cols(), call.tuning().get("simd.lanes", 8)), true, d.cut.channels, call.tuning());
  d.scratch = scratch.f32();
  d.scratch_pitch = scratch.pitch;
  d.dw = dw.f32();
  d.dw_pitch = dw.pitch;
  d.part = dw.type.count() / d.cut.splits;
  SITU_ASSERT(scratch.rows() == d.cut.tasks && (dw.shape().rank() == 5 ? dw.shape()[0] : 1) == d.cut.splits);
  SITU_ASSERT(d.cut.splits == 1 || dw.pitch == dw.cols());
  const Transforms transform = HWY_DYNAMIC_DISPATCH(transforms)(out);
  return {d.cut.tasks, [=](int64_t task) { run_task(d, task, transform); }};
}

// --- candidates -----------------------------------------------------------------------------------------------------
template <int out>
bool accepts(const ops::OpView& v, const device::Target&) {
  const WinogradConv f = conv_of_dw(v);
  return f.fits(3) && ops::winograd::exact_enough_dw(f.window, f.images, out);
}

template <int out>
double rank(const ops::OpView& v, const device::Target& target) {
  const WinogradConv f = conv_of_dw(v);
  const ops::winograd::Tiles t = f.tiles(out);
  const DwCut cut = cut_of(t, f.c, f.o, target.tuning);
  const double points = static_cast<double>(t.points()), rows = points * static_cast<double>(t.count);
  const int64_t lanes = target.tuning.get("simd.lanes", 8);
  const double c = static_cast<double>(round_up(f.c, lanes)), o = static_cast<double>(round_up(f.o, lanes));
  const double tiles =
      rows * (c * static_cast<double>(cut.column_groups) + o * static_cast<double>(cut.channel_groups));
  const double sums = points * c * o * static_cast<double>(cut.splits);
  return winograd_rank(f, rows * c * o + kTransformCost * (tiles + sums));
}

template <int out>
void expand(device::Expansion& e) {
  const WinogradConv f = conv_of_dw(e.view());
  const ops::winograd::Tiles t = f.tiles(out);
  const DwCut cut = cut_of(t, f.c, f.o, e.target().tuning);
  const Type scratch = f32({cut.tasks, scratch_floats(cut, t.points())});
  const Shape& dw = e.out_type(0).shape;
  const Type type = cut.splits == 1 ? e.out_type(0) : f32({cut.splits, dw[0], dw[1], dw[2], dw[3]});
  ir::Attrs attrs = e.attrs();
  const ir::Value parts =
      e.launch_all("conv2d_dw_winograd", e.inputs(), {type, scratch}, attrs.set("out", int64_t{out}))[0];
  e.result(0, cut.splits == 1 ? parts : e.launch("sum_splits", {parts}, e.out_type(0)));
}

}  // namespace

namespace kernels {
KernelList winograd_dw() {
  static constexpr Kernel kernels[] = {{"conv2d_dw_winograd", bind_dw}};
  static constexpr device::Candidate candidates[] = {{"conv2d_dw", "winograd4", accepts<4>, rank<4>, expand<4>},
                                                     {"conv2d_dw", "winograd2", accepts<2>, rank<2>, expand<2>}};
  return {kernels, candidates};
}
}  // namespace kernels
}  // namespace situ::cpu
#endif
