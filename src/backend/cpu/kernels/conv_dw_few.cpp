// conv_dw_few.cpp -- the weight gradient of a convolution with few results and few taps (a first layer of 6 filters).
//
//   conv2d_dw_few   dw[r,s,c,o] = sum over pixels q:  x[q at tap (r,s), c] * dy[q, o]        splits as conv2d_dw
//
// Vectors along o would stay half empty, so the product is turned round: rows are results, columns are all taps. A task
// copies the image rows that a row of dy meets, side by side,
//     z[x][r][c]          with the zeros around the image
// so that the window of each pixel is one run of S*R*C floats.
#include <algorithm>
#include <memory>

#include "backend/cpu/conv_splits.h"
#include "backend/cpu/planar_tile.h"
#include "base/error.h"
#include "ops/window.h"

namespace situ::cpu {
namespace {

constexpr int64_t kWindowFloats = 8192, kMostRows = 32;  // of a task's stack: windows, and rows of dy at a time

struct FewDw {
  const float *x = nullptr, *dy = nullptr;
  float* dw = nullptr;
  int64_t images = 0, x_pitch = 0, dy_pitch = 0, dw_pitch = 0, channels = 0, results = 0;
  ops::Window window;
  int64_t width = 0, line = 0;  // pixels of a padded row; floats of z for one row of dy
  int64_t band = 1, bands = 1, splits = 1;
  int64_t mr = 6;
  TileFunction tile = nullptr;
  int64_t taps() const { return window.y.kernel * window.x.kernel * channels; }
};

int64_t width_of(const ops::Window& w) { return (w.x.out - 1) * w.x.stride + w.x.kernel; }
// One row's windows, and room for the last one's vectors.
int64_t line_of(const ops::Window& w, int64_t channels) { return width_of(w) * w.y.kernel * channels + kPlanarColumns; }

// One value of each of n pixels; written out four at a time, since a compiler sees no way to make vectors of it.
void copy_values(const float* from, int64_t from_step, int64_t n, float* to, int64_t to_step) {
  int64_t p = 0;
  for (; p + 4 <= n; p += 4, from += 4 * from_step, to += 4 * to_step) {
    const float v0 = from[0], v1 = from[from_step], v2 = from[2 * from_step], v3 = from[3 * from_step];
    to[0] = v0;
    to[to_step] = v1;
    to[2 * to_step] = v2;
    to[3 * to_step] = v3;
  }
  for (; p < n; ++p, from += from_step, to += to_step) *to = *from;
}

void fill_windows(const FewDw& d, int64_t image, int64_t row, float* z) {
  const ops::WindowAxis &y = d.window.y, &x = d.window.x;
  const int64_t step = y.kernel * d.channels, inside = std::clamp<int64_t>(d.width - x.before, 0, x.in);
  const int64_t end = (x.before + inside) * step;
  const bool whole = y.position(row, 0) >= 0 && y.position(row, y.kernel - 1) < y.in;
  std::fill_n(z, whole ? x.before * step : end, 0.0f);
  std::fill(z + end, z + d.line, 0.0f);
  for (int64_t r = 0; r < y.kernel; ++r) {
    const int64_t i = y.position(row, r);
    if (i < 0 || i >= y.in) continue;
    const float* from = d.x + (image * y.in + i) * x.in * d.x_pitch;
    for (int64_t c = 0; c < d.channels; ++c)
      copy_values(from + c, d.x_pitch, inside, z + x.before * step + r * d.channels + c, step);
  }
}

// Adds what rows [row0, row1) of dy of one image give.
void run_band(const FewDw& d, int64_t image, int64_t row0, int64_t row1, bool fresh, float* sums) {
  static constexpr int64_t kRows[kMaxTileRows] = {0, 1, 2, 3, 4, 5, 6, 7};
  alignas(64) float z[kWindowFloats];
  TileSegment segments[kMostRows];
  const float* pointers[kMostRows * kMaxTileRows];
  for (int64_t row = row0; row < row1; ++row) {
    const int64_t at = row - row0;
    fill_windows(d, image, row, z + at * d.line);
    segments[at] = {at * d.line, d.window.x.out};
    const float* dy = d.dy + (image * d.window.y.out + row) * d.window.x.out * d.dy_pitch;
    for (int64_t o = 0; o < d.mr; ++o) pointers[at * d.mr + o] = dy + std::min(o, d.results - 1);
  }
  d.tile({.a = pointers,
          .segments = segments,
          .count = row1 - row0,
          .b = z,
          .a_step = d.dy_pitch,
          .b_step = d.window.x.stride * d.window.y.kernel * d.channels,
          .y = sums,
          .y_pitch = kPlanarColumns,
          .rows = kRows,
          .m = d.results,
          .n = d.taps(),
          .accumulate = !fresh});
}

void run_task(const FewDw& d, int64_t split) {
  alignas(64) float sums[kMaxTileRows * kPlanarColumns] = {};
  const int64_t units = d.images * d.bands, first = units * split / d.splits, last = units * (split + 1) / d.splits;
  for (int64_t unit = first; unit < last; ++unit) {
    const int64_t row0 = unit % d.bands * d.band, row1 = std::min(row0 + d.band, d.window.y.out);
    run_band(d, unit / d.bands, row0, row1, unit == first, sums);
  }
  const int64_t rows = d.window.y.kernel, columns = d.window.x.kernel;
  float* dw = d.dw + split * d.taps() * d.dw_pitch;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t s = 0; s < columns; ++s)
      for (int64_t c = 0; c < d.channels; ++c, dw += d.dw_pitch)
        for (int64_t o = 0; o < d.results; ++o) dw[o] = sums[o * kPlanarColumns + (s * rows + r) * d.channels + c];
}

Work bind_few(const Call& call) {
  const Operand &x = call.in[0], &dy = call.in[1], &dw = call.out[0];
  FewDw d;
  d.window = ops::window_of(call.attrs, {x.shape()[1], x.shape()[2]}, call.attrs.ints("kernel"));
  d.x = x.f32();
  d.dy = dy.f32();
  d.dw = dw.f32();
  d.images = x.shape()[0];
  d.x_pitch = x.pitch;
  d.dy_pitch = dy.pitch;
  d.dw_pitch = dw.pitch;
  d.channels = x.cols();
  d.results = dy.cols();
  d.width = width_of(d.window);
  d.line = line_of(d.window, d.channels);
  d.band = std::min({kWindowFloats / d.line, kMostRows, d.window.y.out});
  d.bands = ceil_div(d.window.y.out, d.band);
  d.splits = dw.shape().rank() == 5 ? dw.shape()[0] : 1;
  d.mr = planar_rows(d.results);
  d.tile = tile_function(d.mr, ceil_div(d.taps(), call.tuning().get("simd.lanes", 8)), false);
  return {d.splits, [d](int64_t split) { run_task(d, split); }};
}

// --- where it pays: taps in whole vectors, results in fewer than half of one --------------------------------------
bool accepts(const ops::OpView& view, const device::Target& target) {
  const Shape &x = view.in(0).shape, &dy = view.in(1).shape;
  const ir::Ints& kernel = view.attrs.ints("kernel");
  if (view.attrs.integer("groups", 1) != 1 || dy[3] > target.tuning.get("conv.planar_results", 8)) return false;
  const ops::Window window = ops::window_of(view.attrs, {x[1], x[2]}, kernel);
  return window.x.dilation == 1 && kernel[0] * kernel[1] * x[3] <= planar_columns(planar_rows(dy[3]), target.tuning) &&
         line_of(window, x[3]) <= kWindowFloats;
}
double seconds(const ops::OpView& view, const device::Target& target) {
  const int64_t lanes = target.tuning.get("simd.lanes", 8);
  return 2 * view.in(1).shape[3] < lanes ? -0.1 : 0.1;
}
void expand(device::Expansion& e) { expand_by_splits(e, "conv2d_dw_few", conv_dw_splits(e.view(), e.target())); }

}  // namespace

namespace kernels {
KernelList conv_dw_few() {
  static constexpr Kernel kernels[] = {{"conv2d_dw_few", bind_few}};
  static constexpr device::Candidate candidates[] = {
      {.op = "conv2d_dw", .name = "few", .accepts = accepts, .seconds = seconds, .expand = expand}};
  return {kernels, candidates};
}
}  // namespace kernels
}  // namespace situ::cpu
