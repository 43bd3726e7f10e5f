// conv_dw_small.cpp -- the weight gradient of a convolution with few channels (a first layer).
//
//   conv2d_dw_small   dw[r,s,c,o] = sum over pixels q:  x[q at tap (r,s), c] * dy[q, o]        splits as conv2d_dw
//
// With few channels, segments that end at every border of the image would be too short. A task copies a band of image
// rows to its stack, with the zeros around it, so that all R*S*C rows of the product are runs along a row of pixels.
#include <algorithm>
#include <memory>

#include "backend/cpu/conv_splits.h"
#include "backend/cpu/tile_table.h"
#include "base/error.h"
#include "ops/window.h"

namespace situ::cpu {
namespace {

constexpr int64_t kBandFloats = 16384;  // of a task's stack

// Rows of dy whose input rows fit the stack; 0: not even one.
int64_t band_of(const ops::Window& window, int64_t channels) {
  const int64_t reach = (window.y.kernel - 1) * window.y.dilation + 1;
  const int64_t width = (window.x.out - 1) * window.x.stride + (window.x.kernel - 1) * window.x.dilation + 1;
  const int64_t rows = kBandFloats / (width * channels);
  return rows < reach ? 0 : std::min(window.y.out, (rows - reach) / window.y.stride + 1);
}

struct SmallDw {
  const float* x = nullptr;
  int64_t images = 0, x_pitch = 0, channels = 0;
  ops::Window window;
  int64_t width = 0;  // pixels of a padded row
  int64_t band = 1, bands = 1, splits = 1, part = 0;
  PanelSet panels;
  std::vector<int64_t> offsets;  // of the rows (r,s,c) of the product, from a pixel's first tap
};

void copy_band(const SmallDw& d, int64_t image, int64_t row0, int64_t row1, float* to) {
  const ops::WindowAxis &y = d.window.y, &x = d.window.x;
  const int64_t first = y.position(row0, 0), last = y.position(row1 - 1, y.kernel - 1);
  const int64_t count = std::min(x.in, d.width - x.before);  // pixels of the image that are ever read
  for (int64_t i = first; i <= last; ++i, to += d.width * d.channels) {
    std::fill_n(to, d.width * d.channels, 0.0f);
    if (i < 0 || i >= y.in) continue;
    const float* from = d.x + (image * y.in + i) * x.in * d.x_pitch;
    float* inside = to + x.before * d.channels;
    if (d.x_pitch == d.channels)
      std::copy_n(from, std::max<int64_t>(0, count) * d.channels, inside);
    else
      for (int64_t p = 0; p < count; ++p) std::copy_n(from + p * d.x_pitch, d.channels, inside + p * d.channels);
  }
}

// Adds what rows [row0, row1) of one image give to every tile.
void run_band(const SmallDw& d, TileTable& table, const float* band, int64_t image, int64_t row0, int64_t row1,
              bool fresh) {
  const int64_t count = static_cast<int64_t>(d.offsets.size()), mr = d.panels.mr;
  const int64_t row_step = d.window.y.stride * d.width * d.channels;
  int64_t rows[kMaxTileRows];
  for (int64_t m = 0; m < count; m += mr) {
    for (int64_t i = 0; i < mr; ++i) rows[i] = std::min(m + i, count - 1);
    table.begin(rows, std::min(mr, count - m), fresh);
    for (int64_t row = row0; row < row1; ++row) {
      const float** to = table.add((image * d.window.y.out + row) * d.window.x.out, d.window.x.out);
      const float* pixel = band + (row - row0) * row_step;
      for (int64_t i = 0; i < mr; ++i) to[i] = pixel + d.offsets[static_cast<size_t>(rows[i])];
    }
    table.end(false);
    table.flush();
  }
}

void run_task(const SmallDw& d, int64_t split) {
  PanelSet panels = d.panels;
  panels.y += split * d.part;
  TileTable table(panels, 0, panels.panels);
  float band[kBandFloats];
  const int64_t units = d.images * d.bands, first = units * split / d.splits, last = units * (split + 1) / d.splits;
  if (first == last) run_band(d, table, nullptr, 0, 0, 0, true);  // no pixels: zeros
  for (int64_t unit = first; unit < last; ++unit) {
    const int64_t image = unit / d.bands, row0 = unit % d.bands * d.band,
                  row1 = std::min(row0 + d.band, d.window.y.out);
    copy_band(d, image, row0, row1, band);
    run_band(d, table, band, image, row0, row1, unit == first);
  }
}

void set_offsets(SmallDw& d) {
  for (int64_t r = 0; r < d.window.y.kernel; ++r)
    for (int64_t s = 0; s < d.window.x.kernel; ++s)
      for (int64_t c = 0; c < d.channels; ++c)
        d.offsets.push_back((r * d.window.y.dilation * d.width + s * d.window.x.dilation) * d.channels + c);
}

Work bind_small(const Call& call) {
  const Operand &x = call.in[0], &dy = call.in[1], &dw = call.out[0];
  auto d = std::make_shared<SmallDw>();
  d->window = ops::window_of(call.attrs, {x.shape()[1], x.shape()[2]}, call.attrs.ints("kernel"));
  d->x = x.f32();
  d->images = x.shape()[0];
  d->x_pitch = x.pitch;
  d->channels = x.cols();
  d->width = (d->window.x.out - 1) * d->window.x.stride + (d->window.x.kernel - 1) * d->window.x.dilation + 1;
  d->band = band_of(d->window, d->channels);
  SITU_ASSERT(d->band > 0, "rows too long for the stack");
  d->bands = ceil_div(d->window.y.out, d->band);
  d->splits = dw.shape().rank() == 5 ? dw.shape()[0] : 1;
  d->part = dw.type.count() / d->splits;
  set_offsets(*d);
  d->panels = make_panels(dy.cols(), false, static_cast<int64_t>(d->offsets.size()), call.tuning());
  d->panels.b = dy.f32();
  d->panels.b_step = dy.pitch;
  d->panels.panel_stride = d->panels.tn;
  d->panels.a_step = d->window.x.stride * d->channels;
  d->panels.y = dw.f32();
  d->panels.y_pitch = dw.pitch;
  return {d->splits, [d](int64_t task) { run_task(*d, task); }};
}

bool accepts(const ops::OpView& view, const device::Target& target) {
  const Shape& x = view.in(0).shape;
  const ir::Ints& kernel = view.attrs.ints("kernel");
  if (view.attrs.integer("groups", 1) != 1 || kernel[1] * x[3] > target.tuning.get("conv_dw.small", 32)) return false;
  return band_of(ops::window_of(view.attrs, {x[1], x[2]}, kernel), x[3]) > 0;
}
double seconds(const ops::OpView&, const device::Target&) { return 0; }
void expand(device::Expansion& e) { expand_by_splits(e, "conv2d_dw_small", conv_dw_splits(e.view(), e.target())); }

}  // namespace

namespace kernels {
KernelList conv_dw_small() {
  static constexpr Kernel kernels[] = {{"conv2d_dw_small", bind_small}};
  static constexpr device::Candidate candidates[] = {
      {.op = "conv2d_dw", .name = "small", .accepts = accepts, .seconds = seconds, .expand = expand}};
  return {kernels, candidates};
}
}  // namespace kernels
}  // namespace situ::cpu
