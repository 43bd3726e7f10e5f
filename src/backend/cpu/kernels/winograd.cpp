// winograd.cpp -- 3x3 convolutions with stride 1, forward and data gradient, by Winograd's tiles (ops/winograd.h).
//
//   winograd_weights  u[panel, point, k, cols] = G w G^T of w[3,3,K,N] in place, or of its panels [panel, tap, k, cols]
//   conv2d_winograd   y, scratch: a task transforms a block of tiles, multiplies it point by point with a few panels of
//                     u, and transforms the products back with the epilogue, while the cache holds all of them
//
// A task has tiles of its own and, where these are too few, panels of its own; then some tiles are transformed twice.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels/winograd.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <algorithm>

#include "backend/cpu/epilogue-inl.h"
#include "backend/cpu/winograd-inl.h"
#include "backend/cpu/winograd.h"
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

struct TileConv {
  TiledImages x, y;
  int64_t count = 0, block = 0, tile_tasks = 1, panel_tasks = 1, panels_per_pass = 1;
  int64_t k_floats = 0;  // a tile's channels of one point, whole vectors
  PanelSet panels;
  const float* u = nullptr;
  int64_t u_plane = 0;
  float* scratch = nullptr;
  int64_t scratch_pitch = 0;
  TileEpilogue epilogue;
};
// Tiles [first, last) and what was made of them; a pass over panels gives columns [col, col + cols).
struct TileBlock {
  int64_t first = 0, last = 0;
  Points v, m;
  int64_t col = 0, cols = 0;
};

}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

template <int OUT>
void transform_weights(const WeightTask& t) {
  constexpr int kIn = OUT + 2;
  for (int64_t row = 0; row < t.rows; ++row)
    for (int64_t j = 0; j < t.tn; j += lanes()) {
      const float* from = t.w + row * t.pitch + j;
      float* to = t.u + row * t.tn + j;
      const int64_t n = t.columns - j;
      const auto load = [&](int r, int s) HWY_ATTR {
        return n > 0 ? load_up_to(from + (r * 3 + s) * t.tap, n) : zeros();
      };
      transform<WeightLine<OUT>>(load, [&](int r, int s, Floats v) HWY_ATTR {
        hn::StoreU(v, Tag(), to + (r * kIn + s) * t.plane);
      });
    }
}

template <int OUT>
void transform_images(const TileConv& c, const TileBlock& b) {
  constexpr int kIn = OUT + 2;
  for (int64_t tile = b.first; tile < b.last; ++tile) {
    const TilePixels<kIn> pixels(c.x, tile);
    for (int64_t k = 0; k < c.x.channels; k += lanes()) {
      float* to = b.v.at(0, tile - b.first, k);
      const int64_t n = c.x.channels - k;
      const auto load = [&](int i, int j) HWY_ATTR {
        return load_up_to(pixels.at[i * kIn + j] + pixels.step[i * kIn + j] * k, n);
      };
      transform<InputLine<OUT>>(load, [&](int i, int j, Floats v) HWY_ATTR {
        hn::StoreU(v, Tag(), to + (i * kIn + j) * b.v.plane);
      });
    }
  }
}

template <int OUT>
void transform_results(const TileConv& c, const TileBlock& b) {
  constexpr int kIn = OUT + 2;
  for (int64_t tile = b.first; tile < b.last; ++tile) {
    const TilePlace place(c.y, tile);
    const int64_t rows = std::min<int64_t>(OUT, c.y.h - place.y), cols = std::min<int64_t>(OUT, c.y.w - place.x);
    const int64_t first = (place.image * c.y.h + place.y) * c.y.w + place.x;
    for (int64_t j = 0; j < b.cols; j += lanes()) {
      const float* from = b.m.at(0, tile - b.first, j);
      const int64_t col = b.col + j, n = c.y.channels - col;
      if (n <= 0) break;
      transform<OutputLine<OUT>>(
          [&](int r, int s) HWY_ATTR { return hn::LoadU(Tag(), from + (r * kIn + s) * b.m.plane); },
          [&](int r, int s, Floats v) HWY_ATTR {
            if (r >= rows || s >= cols) return;
            const int64_t row = first + r * c.y.w + s;
            store_up_to(apply_epilogue(c.epilogue, v, row, col, n), c.y.data + row * c.y.pitch + col, n);
          });
    }
  }
}

void weights4(const WeightTask& t) { transform_weights<4>(t); }
void weights2(const WeightTask& t) { transform_weights<2>(t); }
void images4(const TileConv& c, const TileBlock& b) { transform_images<4>(c, b); }
void images2(const TileConv& c, const TileBlock& b) { transform_images<2>(c, b); }
void results4(const TileConv& c, const TileBlock& b) { transform_results<4>(c, b); }
void results2(const TileConv& c, const TileBlock& b) { transform_results<2>(c, b); }

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(weights4);
HWY_EXPORT(weights2);
HWY_EXPORT(images4);
HWY_EXPORT(images2);
HWY_EXPORT(results4);
HWY_EXPORT(results2);

// --- weights --------------------------------------------------------------------------------------------------------
Work bind_weights(const Call& call) {
  const Operand &w = call.in[0], &u = call.out[0];
  const bool packed = w.shape().rank() == 3;
  const int64_t tn = panel_width(call.tuning()), panels = u.shape()[0], points = u.shape()[1];
  const int64_t k = packed ? w.shape()[1] / 9 : w.shape()[2], n = packed ? panels * tn : w.cols();
  SITU_ASSERT(u.pitch == u.cols() && u.cols() == Points::plane_of(k, tn) && panels == ceil_div(n, tn));
  SITU_ASSERT(!packed || w.pitch == tn);
  const int64_t rows = std::max<int64_t>(1, 2048 / tn), chunks = ceil_div(k, rows);
  const int64_t tap = k * w.pitch, panel_step = packed ? 9 * k * tn : tn;
  const float* from = w.f32();
  float* to = u.f32();
  const int64_t pitch = w.pitch, plane = u.pitch;
  const auto run = points == 36 ? &HWY_DYNAMIC_DISPATCH(weights4) : &HWY_DYNAMIC_DISPATCH(weights2);
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
// How the work is cut, by shapes and tuning alone.
struct Cut {
  int64_t block = 0, tile_tasks = 1, panel_tasks = 1, panels_per_pass = 1;
  int64_t k_floats = 0, columns = 0;  // of whole vectors
  int64_t tasks() const { return tile_tasks * panel_tasks; }
  int64_t v_floats(int64_t points) const { return points * Points::plane_of(block, k_floats); }
  int64_t m_floats(int64_t points, int64_t tn) const { return points * Points::plane_of(block, panels_per_pass * tn); }
};
Cut cut_of(const ops::winograd::Tiles& tiles, int64_t c, int64_t o, const device::Tuning& tuning) {
  const int64_t lanes = tuning.get("simd.lanes", 8), tn = panel_width(tuning), panels = ceil_div(o, tn);
  const int64_t most = tuning.get("winograd.tiles", 24), wanted = tuning.get("winograd.tasks", 16);
  Cut cut;
  cut.k_floats = round_up(c, lanes);
  cut.columns = round_up(o, lanes);
  cut.block = round_up(ceil_div(tiles.count, ceil_div(tiles.count, most)), 2);
  cut.tile_tasks = std::min(ceil_div(tiles.count, cut.block), wanted);
  cut.panels_per_pass = std::clamp<int64_t>(tuning.get("winograd.columns", 64) / tn, 1, panels);
  cut.panel_tasks = std::min(ceil_div(panels, cut.panels_per_pass), wanted / cut.tile_tasks);
  return cut;
}

using Transform = void (*)(const TileConv&, const TileBlock&);

void run_task(const TileConv& c, int64_t task, Transform images, Transform results) {
  const int64_t points = (c.x.out + 2) * (c.x.out + 2), tn = c.panels.tn;
  const int64_t part = task / c.panel_tasks, panel_part = task % c.panel_tasks;
  const int64_t end = c.count * (part + 1) / c.tile_tasks;
  const int64_t panel_end = c.panels.panels * (panel_part + 1) / c.panel_tasks;
  TileBlock b;
  b.v = Points(c.scratch + task * c.scratch_pitch, c.block, c.k_floats);
  b.m = Points(b.v.data + points * b.v.plane, c.block, c.panels_per_pass * tn);
  for (b.first = c.count * part / c.tile_tasks; b.first < end; b.first = b.last) {
    b.last = std::min(end, b.first + c.block);
    images(c, b);
    for (int64_t panel = c.panels.panels * panel_part / c.panel_tasks; panel < panel_end; panel += c.panels_per_pass) {
      const int64_t last = std::min(panel_end, panel + c.panels_per_pass);
      multiply_points(c.panels, {.points = points,
                                 .m = b.last - b.first,
                                 .k = c.x.channels,
                                 .a = b.v,
                                 .y = b.m,
                                 .a_row = b.v.pitch,
                                 .a_step = 1,
                                 .b = c.u + panel * points * c.u_plane,
                                 .b_plane = c.u_plane,
                                 .b_panel = points * c.u_plane,
                                 .b_step = tn,
                                 .panel0 = panel,
                                 .panel1 = last});
      b.col = panel * tn;
      b.cols = std::min(last * tn, c.panels.n) - b.col;
      results(c, b);
    }
  }
}

Work bind_tiles(const Call& call) {
  const Operand &x = call.in[0], &u = call.in[1], &y = call.out[0], &scratch = call.out[1];
  const int64_t out = call.attrs.integer("out");
  const ir::Ints& before = call.attrs.ints("before");
  const int64_t h = ceil_div(y.shape()[1], out), w = ceil_div(y.shape()[2], out);
  const ops::winograd::Tiles tiles{out, h, w, y.shape()[0] * h * w};
  const Cut cut = cut_of(tiles, x.cols(), y.cols(), call.tuning());
  TileConv c;
  c.x = TiledImages(x, tiles, before[0], before[1]);
  c.y = TiledImages(y, tiles, 0, 0);
  c.count = tiles.count;
  c.block = cut.block;
  c.tile_tasks = cut.tile_tasks;
  c.panel_tasks = cut.panel_tasks;
  c.panels_per_pass = cut.panels_per_pass;
  c.k_floats = cut.k_floats;
  c.panels = make_panels(cut.columns, true, cut.block, call.tuning());
  c.u = u.f32();
  c.u_plane = u.pitch;
  c.scratch = scratch.f32();
  c.scratch_pitch = scratch.pitch;
  c.epilogue = bind_epilogue(call, 2);
  SITU_ASSERT(scratch.rows() == cut.tasks() && u.shape()[0] == c.panels.panels && u.shape()[1] == tiles.points());
  const auto images = out == 4 ? &HWY_DYNAMIC_DISPATCH(images4) : &HWY_DYNAMIC_DISPATCH(images2);
  const auto results = out == 4 ? &HWY_DYNAMIC_DISPATCH(results4) : &HWY_DYNAMIC_DISPATCH(results2);
  return {cut.tasks(), [=](int64_t task) { run_task(c, task, images, results); }};
}

// --- candidates -----------------------------------------------------------------------------------------------------
// Transforms move more than they calculate: a point of a channel costs as much as so many multiply-adds.
double cost_of(const WinogradConv& f, int64_t out) {
  const ops::winograd::Tiles t = f.tiles(out);
  const double points = static_cast<double>(t.points()), rows = points * static_cast<double>(t.count);
  const double c = static_cast<double>(f.c), o = static_cast<double>(f.o);
  return rows * c * o + 6 * rows * (c + o) + 10 * points * c * o;
}

bool accepts(const WinogradConv& f, int64_t out) {
  return f.fits() && ops::winograd::exact_enough(f.window, f.c, out);
}

void expand_with(device::Expansion& e, const WinogradConv& f, int64_t out, ir::Value weights) {
  const ops::winograd::Tiles t = f.tiles(out);
  const int64_t tn = panel_width(e.target().tuning), points = t.points();
  const Cut cut = cut_of(t, f.c, f.o, e.target().tuning);
  ir::Values inputs = e.inputs();
  inputs[1] = e.launch("winograd_weights", {weights}, f32({ceil_div(f.o, tn), points, Points::plane_of(f.c, tn)}));
  ir::Attrs attrs{{"out", out}, {"before", ir::Ints{f.window.y.before, f.window.x.before}}};
  attrs.set("epilogue", e.attrs().text("epilogue", ""));
  const Type scratch = f32({cut.tasks(), cut.v_floats(points) + cut.m_floats(points, tn)});
  e.result(0, e.launch_all("conv2d_winograd", inputs, {e.out_type(0), scratch}, attrs)[0]);
}

template <int out>
bool accepts_forward(const ops::OpView& v, const device::Target&) {
  return accepts(conv_of_forward(v), out);
}
template <int out>
double rank_forward(const ops::OpView& v, const device::Target&) {
  const WinogradConv f = conv_of_forward(v);
  return winograd_rank(f, cost_of(f, out));
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
double rank_dx(const ops::OpView& v, const device::Target&) {
  const WinogradConv f = conv_of_dx(v);
  return winograd_rank(f, cost_of(f, out));
}
template <int out>
void expand_dx(device::Expansion& e) {
  const WinogradConv f = conv_of_dx(e.view());
  const int64_t tn = panel_width(e.target().tuning);
  const ir::Value packed = e.launch("pack_dx", {e.in(1)}, f32({ceil_div(f.o, tn), 9 * f.c, tn}));
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
