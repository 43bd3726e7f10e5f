// conv_dw.cpp -- the weight gradient of a convolution, a matrix product over pixels.
//
//   conv2d_dw   dw[r,s,c,o] = sum over pixels q:  x[q at tap (r,s), c] * dy[q, o]
//               with a result [S,R,S,C,O] the rows of all images are split into S parts, for sum_splits to add in order
//
// Rows of the product are (s,c) of one kernel row r: side by side in memory, so that few channels still fill a tile. K
// runs along the pixels of an image row: one segment where every tap of the tile is inside, and one per pixel at the
// borders, whose outside taps point at zeros. A task is one part, one kernel row and a range of tiles; it walks the
// image rows in slabs that stay in the L2 cache. Of a 1x1 window the pixels are one row, whatever the images.
#include <algorithm>
#include <memory>
#include <vector>

#include "backend/cpu/conv_splits.h"
#include "backend/cpu/tile_table.h"
#include "base/error.h"
#include "ops/window.h"

namespace situ::cpu {
namespace {

constexpr int64_t kEnoughTasks = 32;
constexpr int64_t kWholeBytes = 1 << 20;  // of x and dy: they stay in an L2 cache

struct ConvDw {
  const float *x = nullptr, *zeros = nullptr;
  int64_t x_pitch = 0, channels = 0;  // channels of one group
  ops::Window window;
  bool pointwise = false;                    // 1x1, stride 1
  int64_t groups = 1, rows = 0, splits = 1;  // rows of all images; if pointwise, pixels
  int64_t slab_rows = 1, tiles_per_task = 1, tile_blocks = 1;
  std::vector<PanelSet> panels;  // by group; y of split 0
  int64_t part = 0;              // elements of one split's result
};

// MR rows (s,c) of the product, those beyond m repeat the last.
struct TileRows {
  int64_t m = 0, first_s = 0, last_s = 0;
  int64_t s[kMaxTileRows], offset[kMaxTileRows];  // tap, and elements from tap 0, channel 0 of a pixel
  int64_t rows[kMaxTileRows];                     // of dw
};

TileRows tile_rows(const ConvDw& d, int64_t kernel_row, int64_t first, int64_t mr) {
  const int64_t count = d.window.x.kernel * d.channels;
  TileRows t;
  t.m = std::min(mr, count - first);
  for (int64_t i = 0; i < mr; ++i) {
    const int64_t row = first + std::min(i, t.m - 1);
    t.s[i] = row / d.channels;
    t.offset[i] = t.s[i] * d.window.x.dilation * d.x_pitch + row % d.channels;
    t.rows[i] = kernel_row * count + row;
  }
  t.first_s = t.s[0];
  t.last_s = t.s[mr - 1];
  return t;
}

// Adds the pixels of one image row, whose input row starts at `x`.
void add_row(const ConvDw& d, const TileRows& t, TileTable& table, const float* x, int64_t dy_row, int64_t mr) {
  const ops::WindowAxis& axis = d.window.x;
  const auto pixel = [&](int64_t o) { return x + axis.position(o, 0) * d.x_pitch; };
  const auto inside = [&](int64_t o, int64_t s) { return axis.position(o, s) >= 0 && axis.position(o, s) < axis.in; };
  const auto one = [&](int64_t o) {
    if (std::none_of(t.s, t.s + mr, [&](int64_t s) { return inside(o, s); })) return;
    const float** to = table.add(dy_row + o, 1);
    for (int64_t i = 0; i < mr; ++i) to[i] = inside(o, t.s[i]) ? pixel(o) + t.offset[i] : d.zeros;
  };
  int64_t begin = 0, end = axis.out;
  while (begin < end && !inside(begin, t.first_s)) one(begin++);
  while (end > begin && !inside(end - 1, t.last_s)) one(--end);
  // What is left is inside for the first tap on the left and the last on the right, so for all taps everywhere.
  if (begin == end) return;
  const float** to = table.add(dy_row + begin, end - begin);
  for (int64_t i = 0; i < mr; ++i) to[i] = pixel(begin) + t.offset[i];
}

void add_slab(const ConvDw& d, const TileRows& t, TileTable& table, int64_t group, int64_t kernel_row, int64_t row0,
              int64_t row1, int64_t mr) {
  const ops::WindowAxis &y = d.window.y, &x = d.window.x;
  if (d.pointwise) {
    const float** to = table.add(row0, row1 - row0);
    for (int64_t i = 0; i < mr; ++i) to[i] = d.x + row0 * d.x_pitch + group * d.channels + t.offset[i];
    return;
  }
  for (int64_t row = row0; row < row1; ++row) {
    const int64_t in_y = y.position(row % y.out, kernel_row);
    if (in_y < 0 || in_y >= y.in) continue;
    const float* image_row = d.x + (row / y.out * y.in + in_y) * x.in * d.x_pitch + group * d.channels;
    add_row(d, t, table, image_row, row * x.out, mr);
  }
}

void run_task(const ConvDw& d, int64_t task) {
  const int64_t block = task % d.tile_blocks, kernel_row = task / d.tile_blocks % d.window.y.kernel;
  const int64_t group = task / d.tile_blocks / d.window.y.kernel % d.groups;
  const int64_t split = task / d.tile_blocks / d.window.y.kernel / d.groups;
  PanelSet panels = d.panels[static_cast<size_t>(group)];
  panels.y += split * d.part;
  const int64_t first_row = d.rows * split / d.splits, last_row = d.rows * (split + 1) / d.splits;
  const int64_t count = d.window.x.kernel * d.channels, step = d.tiles_per_task * panels.mr;
  TileTable table(panels, 0, panels.panels);
  for (int64_t row = first_row; row < last_row; row += d.slab_rows)
    for (int64_t m = block * step; m < std::min(count, (block + 1) * step); m += panels.mr) {
      const TileRows t = tile_rows(d, kernel_row, m, panels.mr);
      table.begin(t.rows, t.m, row == first_row);
      add_slab(d, t, table, group, kernel_row, row, std::min(row + d.slab_rows, last_row), panels.mr);
      table.end(false);
      table.flush();
    }
}

Work bind_dw(const Call& call) {
  const Operand &x = call.in[0], &dy = call.in[1], &dw = call.out[0];
  const bool split = dw.shape().rank() == 5;
  SITU_ASSERT(!split || dw.pitch == dw.cols());
  auto d = std::make_shared<ConvDw>();
  d->window = ops::window_of(call.attrs, {x.shape()[1], x.shape()[2]}, call.attrs.ints("kernel"));
  d->groups = call.attrs.integer("groups", 1);
  d->x = x.f32();
  d->zeros = x.zeros;
  d->x_pitch = x.pitch;
  d->channels = x.cols() / d->groups;
  d->pointwise = ops::is_pointwise(d->window);
  d->rows = x.shape()[0] * d->window.y.out * (d->pointwise ? d->window.x.out : 1);
  d->splits = split ? dw.shape()[0] : 1;
  d->part = dw.type.count() / d->splits;
  const int64_t n = dy.cols() / d->groups, count = d->window.x.kernel * d->channels;
  for (int64_t group = 0; group < d->groups; ++group) {
    PanelSet set = make_panels(n, false, count, call.tuning());
    set.b = dy.f32() + group * n;
    set.b_step = dy.pitch;
    set.panel_stride = set.tn;
    set.a_step = d->window.x.stride * x.pitch;
    set.y = dw.f32();
    set.y_pitch = dw.pitch;
    set.col = group * n;
    d->panels.push_back(set);
  }
  const int64_t tiles = ceil_div(count, d->panels[0].mr), others = d->splits * d->groups * d->window.y.kernel;
  d->tiles_per_task = ceil_div(tiles, std::clamp<int64_t>(ceil_div(kEnoughTasks, others), 1, tiles));
  d->tile_blocks = ceil_div(tiles, d->tiles_per_task);
  const int64_t row_bytes =
      d->pointwise ? (x.cols() + dy.cols()) * 4 : (d->window.x.in * x.cols() + d->window.x.out * dy.cols()) * 4;
  d->slab_rows = std::max<int64_t>(1, call.tuning().get("conv_dw.slab_bytes", 128 << 10) / row_bytes);
  if (d->pointwise && d->rows * row_bytes <= kWholeBytes) d->slab_rows = d->rows;
  return {others * d->tile_blocks, [d](int64_t task) { run_task(*d, task); }};
}

// Parts are written, read again and shared between cores: not where images are small and tiles are enough tasks.
// `channels`: rows of the product.
int64_t splits_of(const ops::OpView& view, const device::Target& target, int64_t channels) {
  const Shape &x = view.in(0).shape, &dw = view.out(0).shape;
  const ops::Window window = ops::window_of(view.attrs, {x[1], x[2]}, {dw[0], dw[1]});
  const bool small = 4 * (x.count() + view.in(1).shape.count()) <= kWholeBytes;
  return ops::is_pointwise(window) && small && channels >= kEnoughTasks * 2 ? 1 : conv_dw_splits(view, target);
}
void expand_dw(device::Expansion& e) {
  expand_by_splits(e, "conv2d_dw", splits_of(e.view(), e.target(), e.out_type(0).shape[2]));
}
double seconds_dw(const ops::OpView&, const device::Target&) { return 1; }

// Of a 1x1 window the product may as well be turned round: dy^T x instead of x^T dy, which fills the vectors of a tile
// where results are few and channels many. The result is turned back.
bool accepts_turned(const ops::OpView& view, const device::Target&) {
  const Shape &x = view.in(0).shape, &dw = view.out(0).shape;
  const ops::Window window = ops::window_of(view.attrs, {x[1], x[2]}, {dw[0], dw[1]});
  return view.attrs.integer("groups", 1) == 1 && ops::is_pointwise(window);
}
double seconds_turned(const ops::OpView& view, const device::Target& target) {
  const Shape& dw = view.out(0).shape;
  const int64_t tn = panel_width(target.tuning);
  return 2 * dw[3] < tn && dw[2] > tn ? 0.9 : 1.1;
}
void expand_turned(device::Expansion& e) {
  const Shape& dw = e.out_type(0).shape;
  const int64_t splits = splits_of(e.view(), e.target(), dw[3]);
  const ir::Value turned =
      launch_by_splits(e, "conv2d_dw", splits, {e.in(1), e.in(0)}, e.attrs(), f32({1, 1, dw[3], dw[2]}));
  e.result(0, e.launch("transpose", {turned}, e.out_type(0), {{"perm", ir::Ints{0, 1, 3, 2}}}));
}

}  // namespace

namespace kernels {
KernelList conv_dw() {
  static constexpr Kernel kernels[] = {{"conv2d_dw", bind_dw}};
  static constexpr device::Candidate candidates[] = {
      {.op = "conv2d_dw", .name = "by_rows", .seconds = seconds_dw, .expand = expand_dw},
      {.op = "conv2d_dw",
       .name = "turned",
       .accepts = accepts_turned,
       .seconds = seconds_turned,
       .expand = expand_turned}};
  return {kernels, candidates};
}
}  // namespace kernels
}  // namespace situ::cpu
