// conv_rows.cpp -- convolutions of images with few channels, as a network's first: y[p,q,o] = epilogue( sum over kernel
// rows r, and floats j of a row's window:  x[row(p,r), left(q) + j] * w[r,j,o] ).
//
// The rows of x that a row of results reads are copied with the zeros around them, so that every pixel's window is a
// run of floats that begins at the same distance from its neighbour's: nothing is worked out pixel by pixel, and no
// window sticks out. Weights are read in place. A task is some rows of results; the copies lie on its stack.
#include <algorithm>
#include <array>

#include "backend/cpu/tile_table.h"
#include "ops/window.h"

namespace situ::cpu {
namespace {

constexpr int64_t kMostFloats = 8192;  // of the copied rows
constexpr int64_t kMostRun = 32;       // floats of a window's row: beyond, direct addresses cost little
constexpr int64_t kMostKernelRows = 8;
constexpr int64_t kTaskPixels = 192;

struct ConvRows {
  ops::Window window;
  const float* x = nullptr;
  int64_t x_pitch = 0, channels = 0;
  int64_t rows = 0, rows_per_task = 1;  // of results, over all images
  int64_t line = 0;                     // floats of a copied row
  PanelSet panels;
  TileEpilogue epilogue;
};

// Floats of a row of x with its padding, as far as windows reach.
int64_t line_of(const ops::WindowAxis& w, int64_t channels) { return ((w.out - 1) * w.stride + w.kernel) * channels; }

void copy_row(const ConvRows& c, int64_t image, int64_t row, float* to) {
  const ops::WindowAxis &wy = c.window.y, &wx = c.window.x;
  std::fill_n(to, c.line, 0.0f);
  if (row < 0 || row >= wy.in) return;
  const float* from = c.x + (image * wy.in + row) * wx.in * c.x_pitch;
  const int64_t columns = std::min(wx.in, c.line / c.channels - wx.before);
  to += wx.before * c.channels;
  if (c.x_pitch == c.channels)
    std::copy_n(from, columns * c.channels, to);
  else
    for (int64_t i = 0; i < columns; ++i) std::copy_n(from + i * c.x_pitch, c.channels, to + i * c.channels);
}

void run_row(const ConvRows& c, const float* const* lines, int64_t row) {
  const ops::WindowAxis& wx = c.window.x;
  const PanelSet& set = c.panels;
  const int64_t kernel_rows = c.window.y.kernel, run = wx.kernel * c.channels, step = wx.stride * c.channels;
  std::array<TileSegment, kMostKernelRows> segments;
  for (int64_t r = 0; r < kernel_rows; ++r) segments[static_cast<size_t>(r)] = {r * run * set.b_step, run};
  const float* pointers[kMostKernelRows * kMaxTileRows];
  int64_t rows[kMaxTileRows];
  Tile t{.a = pointers,
         .segments = segments.data(),
         .count = kernel_rows,
         .b = set.b,
         .b_step = set.b_step,
         .y = set.y,
         .y_pitch = set.y_pitch,
         .rows = rows,
         .n = set.n,
         .epilogue = set.epilogue};
  for (int64_t q = 0; q < wx.out; q += set.mr) {
    t.m = std::min(set.mr, wx.out - q);
    for (int64_t i = 0; i < set.mr; ++i) {
      const int64_t pixel = q + std::min(i, t.m - 1);
      rows[i] = row * wx.out + pixel;
      for (int64_t r = 0; r < kernel_rows; ++r) pointers[r * set.mr + i] = lines[r] + pixel * step;
    }
    set.last_tile(t);
  }
}

// A row that the next results read as well is copied once: the copies are a ring of as many rows as the kernel has.
void run_task(const ConvRows& c, int64_t task) {
  const ops::WindowAxis& wy = c.window.y;
  float copies[kMostFloats];
  const int64_t end = std::min(c.rows, (task + 1) * c.rows_per_task);
  int64_t copied = 0, image = -1;  // rows of this image up to here, counted from its top padding
  for (int64_t row = task * c.rows_per_task; row < end; ++row) {
    const int64_t first = row % wy.out * wy.stride;
    if (row / wy.out != image) copied = first, image = row / wy.out;
    for (copied = std::max(copied, first); copied < first + wy.kernel; ++copied)
      copy_row(c, image, copied - wy.before, copies + copied % wy.kernel * c.line);
    const float* lines[kMostKernelRows];
    for (int64_t r = 0; r < wy.kernel; ++r) lines[r] = copies + (first + r) % wy.kernel * c.line;
    run_row(c, lines, row);
  }
}

Work bind(const Call& call) {
  const Operand &x = call.in[0], &w = call.in[1], &y = call.out[0];
  auto c = std::make_shared<ConvRows>();
  c->window = ops::window_of(call.attrs, {x.shape()[1], x.shape()[2]}, {w.shape()[0], w.shape()[1]});
  c->x = x.f32();
  c->x_pitch = x.pitch;
  c->channels = x.cols();
  c->line = line_of(c->window.x, c->channels);
  c->rows = x.shape()[0] * c->window.y.out;
  c->rows_per_task = ceil_div(kTaskPixels, c->window.x.out);
  c->epilogue = bind_epilogue(call, 2);
  PanelSet& set = c->panels = make_panels(y.cols(), false, c->window.x.out, call.tuning());
  set.b = w.f32();
  set.b_step = w.pitch;
  set.y = y.f32();
  set.y_pitch = y.pitch;
  set.epilogue = c->epilogue.count ? &c->epilogue : nullptr;
  return {ceil_div(c->rows, c->rows_per_task), [c](int64_t task) { run_task(*c, task); }};
}

bool accepts(const ops::OpView& v, const device::Target& target) {
  const Shape &x = v.in(0).shape, &w = v.in(1).shape;
  if (v.attrs.integer("groups", 1) != 1 || w[3] > panel_width(target.tuning)) return false;
  const ops::Window window = ops::window_of(v.attrs, {x[1], x[2]}, {w[0], w[1]});
  return window.x.dilation == 1 && window.y.dilation == 1 && window.x.before >= 0 && w[0] <= kMostKernelRows &&
         w[0] * w[1] > 1 && w[1] * x[3] <= kMostRun && w[0] * line_of(window.x, x[3]) <= kMostFloats;
}
// Before the general ways, behind those for few results and Winograd's.
double seconds(const ops::OpView&, const device::Target&) { return -0.1; }
void expand(device::Expansion& e) { e.result(0, e.launch("conv2d_rows", e.inputs(), e.out_type(0), e.attrs())); }

}  // namespace

namespace kernels {
KernelList conv_rows() {
  static constexpr Kernel kernels[] = {{"conv2d_rows", bind}};
  static constexpr device::Candidate candidates[] = {
      {.op = "conv2d", .name = "rows", .accepts = accepts, .seconds = seconds, .expand = expand}};
  return {kernels, candidates};
}
}  // namespace kernels
}  // namespace situ::cpu
