// conv_images.cpp -- convolutions with few results per pixel, images in the lanes.
//
//   conv2d_images     y[n,pixel,o]  = epilogue( sum over taps, c:  x[pixel at tap, c, n] * w[tap, c, o] )
//   conv2d_dx_images  dx[n,pixel,c] = epilogue( sum over taps, o:  dy[pixel at tap, o, n] * w[tap, c, o] )
//
// The images come side by side, [N / L, H, W, C * L] (interleave.cpp): the product of each pixel is w (rows: result
// channels) times a few runs of images. Unlike planes (conv_planar.cpp), whose vectors run along a row of pixels, it
// fills its vectors whatever the width, and leaves out taps beyond the border: half of the work of a 5x5 gradient of
// 10x10 pixels. With `sheaves` the results stay side by side, too (pass/image_sheaves.cpp).
#include <algorithm>
#include <memory>

#include "backend/cpu/planar_tile.h"
#include "backend/cpu/sheaves.h"
#include "base/error.h"
#include "ops/window.h"

namespace situ::cpu {
namespace {

constexpr int64_t kMostTaps = 64, kEnoughTasks = 32;

struct Part {  // a pair of phases and its tasks
  Phase y, x;
  int64_t first_task = 0;
  bool joined = false;  // taps along x are neighbours in x and in w
};
struct Images {
  const float* x = nullptr;  // [sheaf, lines, columns, channels, images], which the image begins at (top, left) of
  int64_t sheaf = 0;         // elements of one
  int64_t images = 0, in_h = 0, in_w = 0, channels = 0, top = 0, left = 0, line = 0;
  bool sheaves = false;
  float* y = nullptr;
  int64_t out_h = 0, out_w = 0, y_pitch = 0, results = 0;
  int64_t mr = 6, lanes = 8, columns = 0;
  TileFunction tiles[kMaxTileVectors + 1] = {};  // by vectors
  TileFunction last_tile = nullptr;              // reads no column beyond the last image
  int64_t pixels_per_task = 1;
  TileEpilogue epilogue;
  std::vector<TileEpilogue> by_plane = {};  // planar_epilogues
  PlanarStore store = nullptr;
  PlanarWeights weights;
  std::vector<Part> parts = {};
};

// The taps that meet the image, for one tile of result channels; offsets are from where the pixel's window begins, so
// pixels with the same taps share them.
struct Meeting {
  TileSegment segments[kMostTaps];
  const float* pointers[kMostTaps * kMaxTileRows];
  int64_t count = 0;
};
struct TapRange {
  size_t first_y = 0, last_y = 0, first_x = 0, last_x = 0;
  bool operator==(const TapRange&) const = default;
};

// The taps [first, last) inside `size` of a window that begins at `at`.
void clip(const std::vector<Tap>& taps, int64_t at, int64_t size, size_t& first, size_t& last) {
  first = 0;
  last = taps.size();
  while (first < last && at + taps[first].offset < 0) ++first;
  while (last > first && at + taps[last - 1].offset >= size) --last;
}
TapRange taps_inside(const Images& c, const Part& part, int64_t v, int64_t u) {
  TapRange range;
  clip(part.y.taps, v * part.y.scale, c.in_h, range.first_y, range.last_y);
  clip(part.x.taps, u * part.x.scale, c.in_w, range.first_x, range.last_x);
  if (range.first_x == range.last_x) range.last_y = range.first_y;
  return range;
}

void meet(const Images& c, const Part& part, const TapRange& range, int64_t o, Meeting& to) {
  const size_t joined = part.joined ? range.last_x - range.first_x : 1;
  to.count = 0;
  for (size_t r = range.first_y; r < range.last_y; ++r)
    for (size_t s = range.first_x; s < range.last_x; s += joined, ++to.count) {
      const Tap &ty = part.y.taps[r], &tx = part.x.taps[s];
      to.segments[to.count] = {(ty.offset * c.line + tx.offset) * c.channels * c.images,
                               static_cast<int64_t>(joined) * c.channels};
      for (int64_t i = 0; i < c.mr; ++i)
        to.pointers[to.count * c.mr + i] = c.weights.at(ty, tx, 0, std::min(o + i, c.results - 1));
    }
}

void run_tile(const Images& c, const Meeting& met, int64_t sheaf, int64_t pixel, const float* x, int64_t o) {
  static constexpr int64_t kRows[kMaxTileRows] = {0, 1, 2, 3, 4, 5, 6, 7};
  alignas(64) float tile[kMaxTileRows * kPlanarColumns];
  const int64_t pixels = c.out_h * c.out_w;
  const size_t block = static_cast<size_t>(o / c.mr);
  for (int64_t n = 0; n < c.images; n += c.columns) {
    const int64_t count = std::min(c.columns, c.images - n);
    const Tile t{.a = met.pointers,
                 .segments = met.segments,
                 .count = met.count,
                 .b = x + n,
                 .a_step = c.weights.channel,
                 .b_step = c.images,
                 .y = c.sheaves ? c.y + ((sheaf * pixels + pixel) * c.results + o) * c.images + n : tile,
                 .y_pitch = c.sheaves ? c.images : kPlanarColumns,
                 .rows = kRows,
                 .m = std::min(c.mr, c.results - o),
                 .n = count,
                 .bias_by_row = true,
                 .epilogue = c.by_plane.empty() ? nullptr : &c.by_plane[block]};
    (count % c.lanes ? c.last_tile : c.tiles[count / c.lanes])(t);
    if (c.sheaves) continue;
    c.store({.tile = tile,
             .m = t.m,
             .n = count,
             .y = c.y + ((sheaf * c.images + n) * pixels + pixel) * c.y_pitch + o,
             .y_step = pixels * c.y_pitch,
             .row = (sheaf * c.images + n) * pixels + pixel,
             .row_step = pixels,
             .col = o,
             .epilogue = c.by_plane.empty() ? &c.epilogue : nullptr});
  }
}

// Pixels [begin, end) of one part of one sheaf.
void run_pixels(const Images& c, const Part& part, int64_t sheaf, int64_t begin, int64_t end) {
  Meeting met;
  for (int64_t o = 0; o < c.results; o += c.mr) {
    TapRange last{.first_y = 1};  // no pixel's
    for (int64_t i = begin; i < end; ++i) {
      const int64_t v = i / part.x.count, u = i % part.x.count;
      const TapRange range = taps_inside(c, part, v, u);
      if (range != last) meet(c, part, range, o, met);
      last = range;
      const int64_t pixel = (part.y.first + v * part.y.step) * c.out_w + part.x.first + u * part.x.step;
      const int64_t window = (c.top + v * part.y.scale) * c.line + c.left + u * part.x.scale;
      run_tile(c, met, sheaf, pixel, c.x + sheaf * c.sheaf + window * c.channels * c.images, o);
    }
  }
}

void run_task(const Images& c, int64_t sheaf, int64_t task) {
  size_t at = c.parts.size() - 1;
  while (c.parts[at].first_task > task) --at;
  const Part& part = c.parts[at];
  const int64_t begin = (task - part.first_task) * c.pixels_per_task;
  const int64_t end = std::min(begin + c.pixels_per_task, part.y.count * part.x.count);
  run_pixels(c, part, sheaf, begin, end);
}

Work bind_images(const Call& call, bool backward) {
  const Operand &x = call.in[0], &w = call.in[1], &y = call.out[0];
  const Shape& to = y.shape();
  const ir::Ints &size = call.attrs.ints("image"), &before = call.attrs.ints("before");
  const ops::Window window =
      ops::window_of(call.attrs, backward ? ir::Ints{to[1], to[2]} : size, {w.shape()[0], w.shape()[1]});
  const int64_t images = call.attrs.integer("images");
  const bool sheaves = call.attrs.flag("sheaves");
  SITU_ASSERT(x.pitch == x.cols() && (!sheaves || y.pitch == y.cols()), "sheaves are dense");
  auto c = std::make_shared<Images>(Images{.x = x.f32(),
                                           .sheaf = x.type.count() / x.shape()[0],
                                           .images = images,
                                           .in_h = size[0],
                                           .in_w = size[1],
                                           .channels = x.cols() / images,
                                           .top = before[0],
                                           .left = before[1],
                                           .line = x.shape()[2],
                                           .sheaves = sheaves,
                                           .y = y.f32(),
                                           .out_h = to[1],
                                           .out_w = to[2],
                                           .y_pitch = y.pitch,
                                           .results = sheaves ? y.cols() / images : y.cols(),
                                           .mr = 0,
                                           .lanes = call.tuning().get("simd.lanes", 8),
                                           .epilogue = bind_epilogue(call, 2),
                                           .store = planar_store(),
                                           .weights = PlanarWeights(w, backward)});
  c->mr = planar_rows(c->results);
  c->columns = planar_columns(c->mr, call.tuning());
  c->by_plane = planar_epilogues(c->epilogue, c->results, c->mr);
  SITU_ASSERT(!sheaves || !c->by_plane.empty(), "the tile applies the epilogue itself");
  for (int64_t nv = 1; nv <= c->columns / c->lanes; ++nv) c->tiles[nv] = tile_function(c->mr, nv, false);
  c->last_tile = tile_function(c->mr, ceil_div((c->images - 1) % c->columns + 1, c->lanes), true);
  c->pixels_per_task = std::max<int64_t>(1, c->out_h * c->out_w / (2 * kEnoughTasks));
  int64_t tasks = 0;
  for (const Phase& py : backward ? backward_phases(window.y) : forward_phases(window.y))
    for (const Phase& px : backward ? backward_phases(window.x) : forward_phases(window.x)) {
      c->parts.push_back({py, px, tasks, !backward && px.consecutive});
      tasks += ceil_div(py.count * px.count, c->pixels_per_task);
    }
  return {tasks * x.shape()[0], [c, tasks](int64_t task) { run_task(*c, task / tasks, task % tasks); }};
}
Work bind_forward(const Call& call) { return bind_images(call, false); }
Work bind_dx(const Call& call) { return bind_images(call, true); }

// --- where it pays --------------------------------------------------------------------------------------------------
bool accepts(const ops::OpView& view, const device::Target& target) {
  const Shape &w = view.in(1).shape, &y = view.out(0).shape;
  return view.attrs.integer("groups", 1) == 1 && w[0] * w[1] <= kMostTaps &&
         y[3] <= target.tuning.get("conv.planar_results", 8);
}
// A rank beside planes' -0.5: before them where images fill vectors, for a gradient if most taps of planes would meet
// zeros, too.
double seconds(const ops::OpView& view, const device::Target& target) {
  return view.in(0).shape[0] >= target.tuning.get("simd.lanes", 8) ? -0.6 : -0.4;
}
double seconds_dx(const ops::OpView& view, const device::Target& target) {
  const Shape &dy = view.in(0).shape, &dx = view.out(0).shape;
  return 4 * dy[1] * dy[2] <= 3 * dx[1] * dx[2] ? seconds(view, target) : -0.4;
}

// The forward pass takes the margin of zeros that the weight gradient needs (conv_dw_images.cpp), so that a batch is
// rearranged once for both.
void expand(device::Expansion& e, bool backward) {
  const Shape &x = e.view().in(0).shape, &w = e.view().in(1).shape;
  ir::Ints size{x[1], x[2]}, before{0, 0};
  if (!backward) {
    const ops::Window window = ops::window_of(e.attrs(), {x[1], x[2]}, {w[0], w[1]});
    size = {padded_window(window).y.in, padded_window(window).x.in};
    before = {window.y.before, window.x.before};
  }
  ir::Values inputs = e.inputs();
  inputs[0] = interleave(e, e.in(0), size[0], size[1], before);
  ir::Attrs attrs = e.attrs();
  attrs.set("image", ir::Ints{x[1], x[2]})
      .set("images", images_of_sheaf(x[0], e.target().tuning))
      .set("before", before);
  if (std::ranges::none_of(ops::epilogue_of(attrs), ops::takes_like_result)) attrs.set("sheaves", int64_t{0});
  e.result(0, e.launch(backward ? "conv2d_dx_images" : "conv2d_images", inputs, e.out_type(0), attrs));
}
void expand_forward(device::Expansion& e) { expand(e, false); }
void expand_dx(device::Expansion& e) { expand(e, true); }

}  // namespace

namespace kernels {
KernelList conv_images() {
  static constexpr Kernel kernels[] = {{"conv2d_images", bind_forward}, {"conv2d_dx_images", bind_dx}};
  static constexpr device::Candidate candidates[] = {
      {.op = "conv2d", .name = "images", .accepts = accepts, .seconds = seconds, .expand = expand_forward},
      {.op = "conv2d_dx", .name = "images", .accepts = accepts, .seconds = seconds_dx, .expand = expand_dx}};
  return {kernels, candidates};
}
}  // namespace kernels
}  // namespace situ::cpu
