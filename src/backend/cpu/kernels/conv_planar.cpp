// conv_planar.cpp -- convolutions with few results per pixel (a first layer of 6 filters, the gradient of 3 channels).
//
// There the other kernel's vectors, which run over result channels, would stay half empty. Here vectors run over pixels
// of a row: the product is w (rows: result channels) times the image as planes (columns: pixels). A task takes a band
// of rows of one image, copies the rows it reads into planes on its stack, padded with zeros,
//     plane[row][channel][x mod scale][x / scale]          scale: the stride of a forward convolution
// so that every tap is a plain run of floats, and writes finished tiles back with channels last.
//   conv2d_planar     y[pixel,o]  = epilogue( sum over taps, c:  x[pixel at tap, c] * w[tap, c, o] )
//   conv2d_dx_planar  dx[pixel,c] = epilogue( sum over taps, o:  dy[pixel at tap, o] * w[tap, c, o] )
#include <algorithm>
#include <memory>

#include "backend/cpu/planar_tile.h"
#include "base/error.h"

namespace situ::cpu {
namespace {

constexpr int64_t kPlaneFloats = 16384;  // of a task's stack

// The planes of one phase along x.
struct Layout {
  int64_t lowest = 0;  // offset of the leftmost tap: plane position 0
  int64_t width = 0;   // of a plane, with room for whole vectors at its end
  int64_t row = 0;     // elements from row to row
};
struct Part {
  Phase y, x;
  Layout layout;
  int64_t band = 1, bands = 1, first_task = 0;
  int64_t a_step = 0, b_step = 0, per_tap = 0;  // segments for each tap along y
  std::vector<TileSegment> segments = {};
  std::vector<const float*> pointers = {};  // [tile of result channels][segment][mr]
};
struct Planar {
  const float* x = nullptr;
  int64_t images = 0, in_h = 0, in_w = 0, x_pitch = 0, channels = 0;
  float* y = nullptr;
  int64_t out_h = 0, out_w = 0, y_pitch = 0, results = 0;
  int64_t mr = 6, most_pixels = 0, lanes = 8;
  TileFunction tiles[kMaxTileVectors + 1] = {};
  PlanarStore store = nullptr;
  TileEpilogue epilogue;
  std::vector<TileEpilogue> by_plane;  // planar_epilogues
  std::vector<Part> parts;
};
Layout layout_of(const Phase& x, int64_t channels, int64_t most_pixels) {
  Layout layout;
  if (x.taps.empty()) return layout;
  layout.lowest = x.taps.front().offset;
  const int64_t span = (x.count - 1) * x.scale + x.taps.back().offset - layout.lowest + 1;
  layout.width = ceil_div(span, x.scale) + most_pixels;
  layout.row = channels * x.scale * layout.width;
  return layout;
}

// Rows of results whose planes fit the stack; 0: not even one.
int64_t band_of(const Phase& y, const Layout& layout) {
  if (y.taps.empty() || layout.row == 0) return y.count;
  const int64_t rows = kPlaneFloats / layout.row, span = y.taps.back().offset - y.taps.front().offset + 1;
  return rows < span ? 0 : std::min(y.count, (rows - span) / y.scale + 1);
}

// A segment for each (tap along y, channel) over the taps along x, or for each tap over the channels.
void make_segments(Part& part, const Planar& p, const PlanarWeights& w) {
  const Phase &y = part.y, &x = part.x;
  if (x.taps.empty()) return;
  const int64_t plane = x.scale * part.layout.width, taps = static_cast<int64_t>(x.taps.size());
  const bool over_taps = x.scale == 1 && x.consecutive && taps > p.channels;
  part.b_step = over_taps ? 1 : plane;
  part.a_step = !over_taps ? w.channel : w.backward ? -w.tap : w.tap;
  part.per_tap = over_taps ? p.channels : taps;
  for (int64_t o = 0; o < p.results; o += p.mr)
    for (const Tap& ty : y.taps)
      for (int64_t i = 0; i < part.per_tap; ++i) {
        const Tap& tx = x.taps[static_cast<size_t>(over_taps ? 0 : i)];
        const int64_t at = tx.offset - part.layout.lowest, c = over_taps ? i : 0;
        if (o == 0)
          part.segments.push_back(
              {ty.offset * part.layout.row + c * plane + at % x.scale * part.layout.width + at / x.scale,
               over_taps ? taps : p.channels});
        for (int64_t row = 0; row < p.mr; ++row)
          part.pointers.push_back(w.at(ty, tx, c, std::min(o + row, p.results - 1)));
      }
}

// Every stride-th pixel of one channel, from pixel `first` on.
void copy_plane(const float* from, int64_t step, int64_t n, float* to) {
  if (step == 1)
    std::copy_n(from, n, to);
  else
    for (int64_t i = 0; i < n; ++i) to[i] = from[i * step];
}

// Copies one row of an image into its planes. Zeros stay at both ends.
void fill_planes(const Planar& p, const Part& part, const float* from, float* planes) {
  const Phase& x = part.x;
  const int64_t end = (x.count - 1) * x.scale + x.taps.back().offset + 1;
  const int64_t first = std::max<int64_t>(0, part.layout.lowest), last = std::min(p.in_w, end);
  for (int64_t i = first; i < std::min(last, first + x.scale); ++i) {
    const int64_t at = i - part.layout.lowest, n = ceil_div(last - i, x.scale);
    float* to = planes + at % x.scale * part.layout.width + at / x.scale;
    for (int64_t c = 0; c < p.channels; ++c)
      copy_plane(from + i * p.x_pitch + c, x.scale * p.x_pitch, n, to + c * x.scale * part.layout.width);
  }
}

// One row of results, v of the phase; `planes` hold input rows from `top` on.
void run_row(const Planar& p, const Part& part, int64_t image, int64_t v, const float* planes, int64_t top) {
  const Phase &y = part.y, &x = part.x;
  size_t tap0 = 0, tap1 = y.taps.size();
  while (tap0 < tap1 && v * y.scale + y.taps[tap0].offset < 0) ++tap0;
  while (tap1 > tap0 && v * y.scale + y.taps[tap1 - 1].offset >= p.in_h) --tap1;
  const int64_t first = static_cast<int64_t>(tap0) * part.per_tap, all = static_cast<int64_t>(part.segments.size());
  static constexpr int64_t kRows[kMaxTileRows] = {0, 1, 2, 3, 4, 5, 6, 7};
  alignas(64) float tile[kMaxTileRows * kPlanarColumns];
  Tile t{.segments = part.segments.data() + first,
         .count = static_cast<int64_t>(tap1) * part.per_tap - first,
         .a_step = part.a_step,
         .b_step = part.b_step,
         .y = tile,
         .y_pitch = kPlanarColumns,
         .rows = kRows,
         .bias_by_row = true};
  const int64_t row = (image * p.out_h + y.first + v * y.step) * p.out_w + x.first;
  for (int64_t u = 0; u < x.count; u += p.most_pixels) {
    const int64_t n = std::min(p.most_pixels, x.count - u), vectors = ceil_div(n, p.lanes);
    t.n = vectors * p.lanes;  // planes and tile have room for whole vectors
    t.b = planes + (v * y.scale - top) * part.layout.row + u;
    for (int64_t o = 0; o < p.results; o += p.mr) {
      t.a = part.pointers.data() + (o / p.mr * all + first) * p.mr;
      t.m = std::min(p.mr, p.results - o);
      if (!p.by_plane.empty()) t.epilogue = &p.by_plane[static_cast<size_t>(o / p.mr)];
      p.tiles[vectors](t);
      p.store({.tile = tile,
               .m = t.m,
               .n = n,
               .y = p.y + (row + u * x.step) * p.y_pitch + o,
               .y_step = x.step * p.y_pitch,
               .row = row + u * x.step,
               .row_step = x.step,
               .col = o,
               .epilogue = p.by_plane.empty() ? &p.epilogue : nullptr});
    }
  }
}

void run_task(const Planar& p, int64_t task) {
  size_t at = p.parts.size() - 1;
  while (p.parts[at].first_task > task) --at;
  const Part& part = p.parts[at];
  const int64_t image = (task - part.first_task) / part.bands, v0 = (task - part.first_task) % part.bands * part.band;
  const int64_t v1 = std::min(v0 + part.band, part.y.count);
  alignas(64) float planes[kPlaneFloats];
  int64_t top = 0;
  if (part.per_tap > 0 && !part.y.taps.empty()) {
    top = std::max<int64_t>(0, v0 * part.y.scale + part.y.taps.front().offset);
    const int64_t bottom = std::min(p.in_h, (v1 - 1) * part.y.scale + part.y.taps.back().offset + 1);
    std::fill_n(planes, std::max<int64_t>(0, bottom - top) * part.layout.row, 0.0f);
    for (int64_t row = top; row < bottom; ++row)
      fill_planes(p, part, p.x + (image * p.in_h + row) * p.in_w * p.x_pitch, planes + (row - top) * part.layout.row);
  }
  for (int64_t v = v0; v < v1; ++v) run_row(p, part, image, v, planes, top);
}

Work bind_planar(const Call& call, bool backward) {
  const Operand &x = call.in[0], &w = call.in[1], &y = call.out[0];
  const Operand& image = backward ? y : x;
  const ops::Window window =
      ops::window_of(call.attrs, {image.shape()[1], image.shape()[2]}, {w.shape()[0], w.shape()[1]});
  auto p = std::make_shared<Planar>();
  p->x = x.f32();
  p->images = x.shape()[0];
  p->in_h = x.shape()[1];
  p->in_w = x.shape()[2];
  p->x_pitch = x.pitch;
  p->channels = x.cols();
  p->y = y.f32();
  p->out_h = y.shape()[1];
  p->out_w = y.shape()[2];
  p->y_pitch = y.pitch;
  p->results = y.cols();
  p->mr = planar_rows(p->results);
  p->lanes = call.tuning().get("simd.lanes", 8);
  p->most_pixels = planar_columns(p->mr, call.tuning());
  for (int64_t nv = 1; nv <= p->most_pixels / p->lanes; ++nv) p->tiles[nv] = tile_function(p->mr, nv, false);
  p->epilogue = bind_epilogue(call, 2);
  p->by_plane = planar_epilogues(p->epilogue, p->results, p->mr);
  p->store = planar_store();
  const PlanarWeights weights(w, backward);
  int64_t tasks = 0;
  for (const Phase& py : backward ? backward_phases(window.y) : forward_phases(window.y))
    for (const Phase& px : backward ? backward_phases(window.x) : forward_phases(window.x)) {
      Part part{.y = py, .x = px, .layout = layout_of(px, p->channels, p->most_pixels), .first_task = tasks};
      part.band = band_of(py, part.layout);
      SITU_ASSERT(part.band > 0, "rows too long for planes");
      part.bands = ceil_div(py.count, part.band);
      make_segments(part, *p, weights);
      tasks += p->images * part.bands;
      p->parts.push_back(std::move(part));
    }
  return {tasks, [p](int64_t task) { run_task(*p, task); }};
}
Work bind_forward(const Call& call) { return bind_planar(call, false); }
Work bind_dx(const Call& call) { return bind_planar(call, true); }

// --- where it pays
// ----------------------------------------------------------------------------------------------------
bool accepts(const ops::OpView& view, const device::Target& target, bool backward) {
  const Shape &x = view.in(0).shape, &w = view.in(1).shape, &y = view.out(0).shape;
  if (view.attrs.integer("groups", 1) != 1 || y[3] > target.tuning.get("conv.planar_results", 8)) return false;
  const Shape& image = backward ? y : x;
  const ops::Window window = ops::window_of(view.attrs, {image[1], image[2]}, {w[0], w[1]});
  const int64_t most_pixels = planar_columns(planar_rows(y[3]), target.tuning);
  for (const Phase& py : backward ? backward_phases(window.y) : forward_phases(window.y))
    for (const Phase& px : backward ? backward_phases(window.x) : forward_phases(window.x))
      if (band_of(py, layout_of(px, x[3], most_pixels)) == 0) return false;
  return true;
}
bool accepts_forward(const ops::OpView& v, const device::Target& t) { return accepts(v, t, false); }
bool accepts_dx(const ops::OpView& v, const device::Target& t) { return accepts(v, t, true); }
double seconds(const ops::OpView&, const device::Target&) { return -0.5; }
void expand_forward(device::Expansion& e) {
  e.result(0, e.launch("conv2d_planar", e.inputs(), e.out_type(0), e.attrs()));
}
void expand_dx(device::Expansion& e) {
  e.result(0, e.launch("conv2d_dx_planar", e.inputs(), e.out_type(0), e.attrs()));
}

}  // namespace

namespace kernels {
KernelList conv_planar() {
  static constexpr Kernel kernels[] = {{"conv2d_planar", bind_forward}, {"conv2d_dx_planar", bind_dx}};
  static constexpr device::Candidate candidates[] = {
      {.op = "conv2d", .name = "planar", .accepts = accepts_forward, .seconds = seconds, .expand = expand_forward},
      {.op = "conv2d_dx", .name = "planar", .accepts = accepts_dx, .seconds = seconds, .expand = expand_dx}};
  return {kernels, candidates};
}
}  // namespace kernels
}  // namespace situ::cpu
