// winograd.cpp -- 3x3 and 5x5 convolutions with stride 1, forward and data gradient, by Winograd's tiles
// (ops/winograd.h).
//
//   winograd_weights  u[panel, point, k, cols] = G w G^T of w[R,R,K,N] in place, or of its panels [panel, tap, k, cols]
//   conv2d_winograd   y, scratch: a unit is a block of tiles and a few panels. A few channels at a time, its tiles are
//                     transformed and multiplied point by point; the sums stay in the L2 cache until they are
//                     transformed back with the epilogue. With few blocks the weights are transformed on the way too,
//                     and u never exists: for 512 channels it has four times the size of the weights. Few channels
//                     have a way of their own (winograd_lines.h)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels/winograd.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <algorithm>

#include "backend/cpu/epilogue-inl.h"
#include "backend/cpu/winograd-inl.h"
#include "backend/cpu/winograd.h"
#include "backend/cpu/winograd_lines.h"
#include "base/error.h"

#ifndef SITU_BACKEND_CPU_WINOGRAD_ONCE_
#define SITU_BACKEND_CPU_WINOGRAD_ONCE_
namespace situ::cpu {
namespace {

struct WeightTask {
  const float* w = nullptr;  // tap 0, row 0 of the task, column 0 of the panel
  int64_t tap = 0, pitch = 0;
  int64_t rows = 0, columns = 0, tn = 0;  // columns there are, of tn
  float* u = nullptr;
  int64_t plane = 0;
};

// How the work is cut, by shapes and tuning alone.
struct Cut {
  int64_t block = 0, blocks = 0;      // tiles of a block
  int64_t columns = 0, groups = 0;    // columns of a unit, whole panels; groups of them
  int64_t depth = 0;                  // channels transformed at a time, whole vectors
  int64_t tasks = 1;                  // each has some units, and scratch for one
  TileLinesFunction lines = nullptr;  // what a unit runs, if not the functions below
  int64_t units() const { return blocks * groups; }
};

struct TileConv {
  TiledImages x, y;
  Cut cut;
  int64_t count = 0;
  PanelSet panels;
  bool fused = false;        // weights are transformed here
  const float* u = nullptr;  // as winograd_weights takes or leaves them
  int64_t u_plane = 0;
  WeightTask weights;
  int64_t weight_panel = 0;  // from one panel of w to the next
  float* scratch = nullptr;
  int64_t scratch_pitch = 0;
  TileEpilogue epilogue;
};
// Tiles [first, last), channels [k0, k1) and columns [col, col + cols) of them.
struct TileBlock {
  int64_t first = 0, last = 0, k0 = 0, k1 = 0, col = 0, cols = 0;
  Points v, u, m;
};
struct Transforms {
  void (*images)(const TileConv&, const TileBlock&);
  void (*results)(const TileConv&, const TileBlock&);
  void (*weights)(const WeightTask&);
};

}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

template <class S>
void transform_weights(const WeightTask& t) {
  constexpr int kIn = S::kSide;
  for (int64_t row = 0; row < t.rows; ++row)
    for (int64_t j = 0; j < t.tn; j += lanes()) {
      const float* from = t.w + row * t.pitch + j;
      float* to = t.u + row * t.tn + j;
      const int64_t n = t.columns - j;
      const auto load = [&](int r, int s)
                            HWY_ATTR { return n > 0 ? load_up_to(from + (r * S::kKernel + s) * t.tap, n) : zeros(); };
      transform<WeightLine<S>>(
          load, [&](int r, int s, Floats v) HWY_ATTR { hn::StoreU(v, Tag(), to + (r * kIn + s) * t.plane); });
    }
}

template <class S>
void transform_images(const TileConv& c, const TileBlock& b) {
  TilePlace place(c.x, b.first);
  for (int64_t tile = b.first; tile < b.last; ++tile, place.next(c.x)) {
    const TilePixels<S::kSide> pixels(c.x, place);
    for (int64_t k = b.k0; k < b.k1; k += lanes())
      transform_pixels<InputLine<S>>(pixels, k, b.k1 - k, b.v.at(0, tile - b.first, k - b.k0), b.v.plane);
  }
}

template <class S>
void transform_results(const TileConv& c, const TileBlock& b) {
  constexpr int kIn = S::kSide;
  TilePlace place(c.y, b.first);
  for (int64_t tile = b.first; tile < b.last; ++tile, place.next(c.y)) {
    const int64_t rows = std::min<int64_t>(S::kOut, c.y.h - place.y),
                  cols = std::min<int64_t>(S::kOut, c.y.w - place.x);
    const int64_t first = (place.image * c.y.h + place.y) * c.y.w + place.x;
    for (int64_t j = 0; j < b.cols; j += lanes()) {
      const float* from = b.m.at(0, tile - b.first, j);
      const int64_t col = b.col + j, n = c.y.channels - col;
      if (n <= 0) break;
      transform<OutputLine<S>>(
          [&](int r, int s) HWY_ATTR { return hn::LoadU(Tag(), from + (r * kIn + s) * b.m.plane); },
          [&](int r, int s, Floats v) HWY_ATTR {
            if (r >= rows || s >= cols) return;
            const int64_t row = first + r * c.y.w + s;
            store_up_to(apply_epilogue(c.epilogue, v, row, col, n), c.y.data + row * c.y.pitch + col, n);
          });
    }
  }
}

template <class S>
Transforms transforms_of() {
  return {transform_images<S>, transform_results<S>, transform_weights<S>};
}
Transforms transforms(int64_t out, int64_t side) {
  return out == 4 ? transforms_of<Tiles43>() : side == 6 ? transforms_of<Tiles25>() : transforms_of<Tiles23>();
}

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(transforms);

// --- weights --------------------------------------------------------------------------------------------------------
Work bind_weights(const Call& call) {
  const Operand &w = call.in[0], &u = call.out[0];
  const bool packed = w.shape().rank() == 3;
  const int64_t tn = call.attrs.integer("columns"), out = call.attrs.integer("out"), side = call.attrs.integer("side");
  const int64_t panels = u.shape()[0], points = side * side, taps = (side - out + 1) * (side - out + 1);
  const int64_t k = packed ? w.shape()[1] / taps : w.shape()[2], n = packed ? panels * tn : w.cols();
  SITU_ASSERT(u.pitch == u.cols() && u.cols() == Points::plane_of(k, tn) && panels == ceil_div(n, tn));
  SITU_ASSERT(!packed || w.pitch == tn || panels == 1);
  const int64_t rows = std::max<int64_t>(1, 2048 / tn), chunks = ceil_div(k, rows);
  const int64_t tap = k * w.pitch, panel_step = packed ? taps * k * tn : tn;
  const float* from = w.f32();
  float* to = u.f32();
  const int64_t pitch = w.pitch, plane = u.pitch;
  const auto run = HWY_DYNAMIC_DISPATCH(transforms)(out, side).weights;
  return {panels * chunks, [=](int64_t task) {
            const int64_t panel = task / chunks, row = task % chunks * rows;
            run({.w = from + panel * panel_step + row * pitch,
                 .tap = tap,
                 .pitch = pitch,
                 .rows = std::min(rows, k - row),
                 .columns = std::min(tn, n - panel * tn),
                 .tn = tn,
                 .u = to + panel * points * plane + row * tn,
                 .plane = plane});
          }};
}

// --- tiles ----------------------------------------------------------------------------------------------------------
// Columns of a panel of u: a single one is no wider than it need be, so that few channels stay in the L1 cache.
int64_t width_of(int64_t o, const device::Tuning& tuning) {
  return std::min(panel_width(tuning), round_up(o, tuning.get("simd.lanes", 8)));
}

Cut cut_of(const ops::winograd::Tiles& tiles, int64_t c, int64_t o, const device::Tuning& tuning) {
  const int64_t tn = width_of(o, tuning), lanes = tuning.get("simd.lanes", 8);
  Cut cut;
  cut.lines = tile_lines_function(c, o, tiles, tuning);
  if (cut.lines) {
    cut.block = kLineTiles;
    cut.blocks = ceil_div(tiles.count, cut.block);
    cut.columns = round_up(o, tn);
    cut.depth = c;
  } else {
    cut.blocks = ceil_div(tiles.count, winograd_tuning(tuning, "winograd.tiles", 24));
    cut.block = ceil_div(tiles.count, cut.blocks);
    cut.columns =
        std::min(ceil_div(o, tn), std::max<int64_t>(1, winograd_tuning(tuning, "winograd.columns", 64) / tn)) * tn;
    cut.depth = round_up(std::min(c, winograd_tuning(tuning, "winograd.depth", 32)), lanes);
  }
  cut.groups = ceil_div(o, cut.columns);
  cut.tasks = std::min(cut.units(), winograd_tuning(tuning, "winograd.tasks", 8));
  return cut;
}
// Few blocks: each transforms the weights again, which takes less than memory for them.
bool fuses_weights(const Cut& cut) { return cut.blocks <= 4 && !cut.lines; }

int64_t scratch_floats(const Cut& cut, int64_t points, bool fused) {
  return points * (Points::plane_of(cut.block, cut.depth) + Points::plane_of(cut.block, cut.columns) +
                   (fused ? Points::plane_of(cut.depth, cut.columns) : 0));
}

// The weights of the block's channels and columns, panel after panel.
void make_weights(const TileConv& c, const TileBlock& b, void (*run)(const WeightTask&)) {
  WeightTask t = c.weights;
  t.rows = b.k1 - b.k0;
  t.plane = b.u.plane;
  for (int64_t col = 0; col < b.cols; col += t.tn) {
    const int64_t panel = (b.col + col) / t.tn;
    t.w = c.u + panel * c.weight_panel + b.k0 * t.pitch;
    t.columns = std::min(t.tn, c.y.channels - panel * t.tn);
    t.u = b.u.data + col * c.cut.depth;
    run(t);
  }
}

void run_unit(const TileConv& c, TileBlock& b, const Transforms& run) {
  const int64_t points = c.x.points, tn = c.panels.tn, panel = b.col / tn;
  PointProduct product{.points = points,
                       .m = b.last - b.first,
                       .terms = c.x.channels < 128 ? 16 : 32,
                       .a = b.v,
                       .y = b.m,
                       .a_row = b.v.pitch,
                       .a_step = 1,
                       .b_plane = c.fused ? b.u.plane : c.u_plane,
                       .b_panel = c.fused ? c.cut.depth * tn : points * c.u_plane,
                       .b_step = tn,
                       .panel0 = panel,
                       .panel1 = panel + ceil_div(b.cols, tn)};
  for (b.k0 = 0; b.k0 < c.x.channels; b.k0 = b.k1) {
    b.k1 = std::min(c.x.channels, b.k0 + c.cut.depth);
    run.images(c, b);
    if (c.fused) make_weights(c, b, run.weights);
    product.b = c.fused ? b.u.data : c.u + panel * points * c.u_plane + b.k0 * tn;
    product.k = b.k1 - b.k0;
    product.accumulate = b.k0 > 0;
    multiply_points(c.panels, product);
  }
  run.results(c, b);
}

void run_task(const TileConv& c, int64_t task, const Transforms& run) {
  const int64_t points = c.x.points;
  const Cut& cut = c.cut;
  if (cut.lines) {
    const int64_t first = cut.blocks * task / cut.tasks, last = cut.blocks * (task + 1) / cut.tasks;
    cut.lines({c.x, c.y, c.epilogue, c.u, points * c.u_plane, c.u_plane, c.panels.tn}, first * cut.block,
              std::min(last * cut.block, c.count), c.scratch + task * c.scratch_pitch);
    return;
  }
  TileBlock b;
  b.v = Points(c.scratch + task * c.scratch_pitch, cut.block, cut.depth);
  b.m = Points(b.v.data + points * b.v.plane, cut.block, cut.columns);
  b.u = Points(b.m.data + points * b.m.plane, cut.depth, cut.columns);
  for (int64_t unit = cut.units() * task / cut.tasks; unit < cut.units() * (task + 1) / cut.tasks; ++unit) {
    b.first = unit % cut.blocks * cut.block;
    b.last = std::min(b.first + cut.block, c.count);
    b.col = unit / cut.blocks * cut.columns;
    b.cols = std::min(cut.columns, c.panels.n - b.col);
    run_unit(c, b, run);
  }
}

Work bind_tiles(const Call& call) {
  const Operand &x = call.in[0], &u = call.in[1], &y = call.out[0], &scratch = call.out[1];
  const int64_t out = call.attrs.integer("out"), side = call.attrs.integer("side");
  const int64_t taps = (side - out + 1) * (side - out + 1), lanes = call.tuning().get("simd.lanes", 8);
  const ir::Ints& before = call.attrs.ints("before");
  const int64_t h = ceil_div(y.shape()[1], out), w = ceil_div(y.shape()[2], out);
  const ops::winograd::Tiles tiles{out, side, h, w, y.shape()[0] * h * w};
  TileConv c;
  c.x = TiledImages(x, tiles, before[0], before[1]);
  c.y = TiledImages(y, tiles, 0, 0);
  c.cut = cut_of(tiles, x.cols(), y.cols(), call.tuning());
  c.count = tiles.count;
  c.panels = make_panels(round_up(y.cols(), lanes), true, c.cut.block, call.tuning());
  c.panels.tn = width_of(y.cols(), call.tuning());
  c.fused = fuses_weights(c.cut);
  c.u = u.f32();
  c.u_plane = u.pitch;
  if (c.fused) {
    const bool packed = u.shape().rank() == 3;
    c.weights.tn = c.panels.tn;
    c.weights.pitch = u.pitch;
    c.weights.tap = x.cols() * u.pitch;
    c.weight_panel = packed ? taps * x.cols() * u.pitch : c.panels.tn;
    SITU_ASSERT(packed ? u.pitch == panel_width(call.tuning()) && u.rows() == c.panels.panels * taps * x.cols()
                       : u.rows() == taps * x.cols());
  } else {
    SITU_ASSERT(u.shape()[0] == c.panels.panels && u.shape()[1] == tiles.points());
  }
  c.scratch = scratch.f32();
  c.scratch_pitch = scratch.pitch;
  SITU_ASSERT(scratch.rows() == c.cut.tasks && scratch.cols() == scratch_floats(c.cut, tiles.points(), c.fused));
  c.epilogue = bind_epilogue(call, 2);
  const Transforms run = HWY_DYNAMIC_DISPATCH(transforms)(out, side);
  return {c.cut.tasks, [=](int64_t task) { run_task(c, task, run); }};
}

// --- candidates -----------------------------------------------------------------------------------------------------
double cost_of(const WinogradConv& f, int64_t out, const device::Tuning& tuning) {
  const ops::winograd::Tiles t = f.tiles(out);
  const Cut cut = cut_of(t, f.c, f.o, tuning);
  const int64_t lanes = tuning.get("simd.lanes", 8);
  const double points = static_cast<double>(t.points()), rows = points * static_cast<double>(t.count);
  const double c = static_cast<double>(round_up(f.c, lanes)), o = static_cast<double>(round_up(f.o, lanes));
  const double weights = points * c * o * static_cast<double>(fuses_weights(cut) ? cut.blocks : 2);
  return rows * c * o + kTransformCost * (rows * c * static_cast<double>(cut.groups) + rows * o + weights);
}

bool accepts(const WinogradConv& f, int64_t out) {
  return (f.fits(3) || (out == 2 && f.fits(5))) && ops::winograd::exact_enough(f.window, f.c, out);
}

void expand_with(device::Expansion& e, const WinogradConv& f, int64_t out, ir::Value weights) {
  const ops::winograd::Tiles t = f.tiles(out);
  const int64_t tn = width_of(f.o, e.target().tuning), points = t.points();
  const Cut cut = cut_of(t, f.c, f.o, e.target().tuning);
  const bool fused = fuses_weights(cut);
  ir::Values inputs = e.inputs();
  inputs[1] = weights;
  if (!fused)
    inputs[1] = e.launch("winograd_weights", {weights}, f32({ceil_div(f.o, tn), points, Points::plane_of(f.c, tn)}),
                         {{"columns", tn}, {"out", out}, {"side", t.side}});
  ir::Attrs attrs{{"out", out}, {"side", t.side}, {"before", ir::Ints{f.window.y.before, f.window.x.before}}};
  attrs.set("epilogue", e.attrs().text("epilogue", ""));
  const Type scratch = f32({cut.tasks, scratch_floats(cut, points, fused)});
  e.result(0, e.launch_all("conv2d_winograd", inputs, {e.out_type(0), scratch}, attrs)[0]);
}

template <int out>
bool accepts_forward(const ops::OpView& v, const device::Target&) {
  return accepts(conv_of_forward(v), out);
}
template <int out>
double rank_forward(const ops::OpView& v, const device::Target& target) {
  const WinogradConv f = conv_of_forward(v);
  return winograd_rank(f, cost_of(f, out, target.tuning));
}
template <int out>
void expand_forward(device::Expansion& e) {
  expand_with(e, conv_of_forward(e.view()), out, e.in(1));
}

template <int out>
bool accepts_dx(const ops::OpView& v, const device::Target&) {
  return accepts(conv_of_dx(v), out);
}
template <int out>
double rank_dx(const ops::OpView& v, const device::Target& target) {
  const WinogradConv f = conv_of_dx(v);
  return winograd_rank(f, cost_of(f, out, target.tuning));
}
template <int out>
void expand_dx(device::Expansion& e) {
  const WinogradConv f = conv_of_dx(e.view());
  const int64_t tn = panel_width(e.target().tuning);
  const ir::Value packed = e.launch("pack_dx", {e.in(1)}, f32({ceil_div(f.o, tn), f.taps() * f.c, tn}));
  expand_with(e, f, out, packed);
}

}  // namespace

namespace kernels {
KernelList winograd() {
  static constexpr Kernel kernels[] = {{"winograd_weights", bind_weights}, {"conv2d_winograd", bind_tiles}};
  static constexpr device::Candidate candidates[] = {
      {"conv2d", "winograd4", accepts_forward<4>, rank_forward<4>, expand_forward<4>},
      {"conv2d", "winograd2", accepts_forward<2>, rank_forward<2>, expand_forward<2>},
      {"conv2d_dx", "winograd4", accepts_dx<4>, rank_dx<4>, expand_dx<4>},
      {"conv2d_dx", "winograd2", accepts_dx<2>, rank_dx<2>, expand_dx<2>}};
  return {kernels, candidates};
}
}  // namespace kernels
}  // namespace situ::cpu
#endif
