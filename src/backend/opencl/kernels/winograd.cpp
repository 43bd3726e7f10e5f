// winograd.cpp -- 3x3 convolutions with stride 1, forward and both gradients, by Winograd's tiles (winograd.cl).
//
// Four or five launches: weights and images transformed, a batch of products, results transformed back. They multiply
// less and move more: V and M hold 36 / 16 (or 16 / 4) floats for each of an image, so that it pays with enough
// channels.
#include "ops/winograd.h"

#include "backend/opencl/kernels/conv.h"

namespace situ::opencl::kernels {
namespace {

// --- binding --------------------------------------------------------------------------------------------------------
// How the images are cut into tiles: attribute `tiles` of the launches.
constexpr int64_t kBlock = 8;  // tiles that winograd_small takes together
enum { kImageH, kImageW, kChannels, kTilesH, kTilesW, kTiles, kTop, kLeft };

Call tile_call(const LaunchSpec& launch, std::string_view kernel, int64_t vw) {
  Call call = make_call("winograd.cl", kernel);
  call.define("VW", vw).define("OUT", launch.node.attrs.integer("out"));
  call.define("NEAR", ops::winograd::kNearQuarters).define("FAR", ops::winograd::kFarQuarters);
  return call;
}

// The grid over channel vectors of `things` (tiles, or channels of a weight), with the arguments that belong to it.
Call& walk_units(Call& call, const Target& target, int64_t things, int64_t cols) {
  const int64_t vw = vector_width(target, cols), vectors = ceil_div(cols, vw), points = 16;
  const int64_t floats = std::max<int64_t>(vw, tuned(target, "vector.CHUNK") / points);
  const int64_t chunk = floats / vw < vectors ? std::max<int64_t>(1, floats / vw) : floats / vw / vectors * vectors;
  add_ints(call, {things * vectors, chunk, chunk >= vectors});
  return set_grid(call, ceil_div(things * vectors, chunk), 1, 1, tuned(target, "vector.WX"));
}

Call bind_weights(const LaunchSpec& launch, const Target& target) {
  const TensorArg& w = launch.in[0];
  const bool turned = launch.node.attrs.flag("turned"), packed = w.shape().rank() == 3;
  const int64_t tn = launch.node.attrs.integer("cols");
  const int64_t n = packed ? w.shape()[0] * tn : w.shape()[turned ? 2 : 3];
  const int64_t k = packed ? w.shape()[1] / 9 : w.shape()[turned ? 3 : 2];
  Call call = tile_call(launch, "winograd_weights", tuned(target, "gemm.VW"));
  add_tensor(call, w);
  add_tensor(call, launch.out[0]);
  const int64_t chunk = std::max<int64_t>(1, tuned(target, "pack.CHUNK") / (9 * tn));
  add_ints(call, {k, n, tn, chunk, packed ? 9 * k * tn : turned ? tn * w.pitch : tn, turned});
  return set_grid(call, ceil_div(k, chunk), ceil_div(n, tn), 1, tuned(target, "gemm.WX"));
}

Call bind_tiles(const LaunchSpec& launch, const Target& target, std::string_view kernel, bool padded) {
  const ir::Ints& t = launch.node.attrs.ints("tiles");
  const int64_t cols = t[kChannels];
  Call call = tile_call(launch, kernel, vector_width(target, cols));
  define_epilogue(call, launch, 1);
  add_tensor(call, launch.in[0]);
  add_tensor(call, launch.out[0]);
  for (size_t i = 1; i < launch.in.size(); ++i) add_tensor(call, launch.in[i]);
  add_ints(call, {t[kImageH], t[kImageW], cols, t[kTilesH], t[kTilesW]});
  if (padded) add_ints(call, {t[kTop], t[kLeft]});
  return walk_units(call, target, t[kTiles], cols);
}
Call bind_input(const LaunchSpec& launch, const Target& target) {
  return bind_tiles(launch, target, "winograd_input", true);
}
Call bind_output(const LaunchSpec& launch, const Target& target) {
  return bind_tiles(launch, target, "winograd_output", false);
}
Call bind_dy(const LaunchSpec& launch, const Target& target) {
  return bind_tiles(launch, target, "winograd_dy", false);
}

Call bind_dw(const LaunchSpec& launch, const Target& target) {
  const Shape& w = launch.out[0].shape();
  Call call = tile_call(launch, "winograd_dw", vector_width(target, w[3]));
  add_tensor(call, launch.in[0]);
  add_tensor(call, launch.out[0]);
  add_ints(call, {w[2], w[3]});
  return walk_units(call, target, w[2], w[3]);
}

Call bind_small(const LaunchSpec& launch, const Target& target) {
  const ir::Ints& t = launch.node.attrs.ints("tiles");
  const TensorArg& y = launch.out[0];
  const int64_t o = y.cols(), cols = launch.node.attrs.integer("cols");
  Call call = tile_call(launch, "winograd_small", tuned(target, "gemm.VW"));
  call.define("CHANNELS", t[kChannels]).define("MAC_FORM", tuned(target, "gemm.MAC"));
  define_epilogue(call, launch, 2);
  for (const TensorArg* arg : {&launch.in[0], &launch.in[1], &y}) add_tensor(call, *arg);
  for (size_t i = 2; i < launch.in.size(); ++i) add_tensor(call, launch.in[i]);
  const int64_t blocks = ceil_div(t[kTiles], kBlock);
  const int64_t together = tiles_per_item(target, blocks, 1, 16 * kBlock * t[kChannels] * o);
  add_ints(call, {t[kImageH], t[kImageW], o, cols, y.shape()[1], y.shape()[2], t[kTilesH], t[kTilesW], t[kTop],
                  t[kLeft], t[kTiles], together});
  return set_grid(call, ceil_div(blocks, together), 1, 1, tuned(target, "gemm.WX"));
}

// --- what a node amounts to -----------------------------------------------------------------------------------------
using ops::winograd::Tiles;
Tiles tiles_of(const Implicit& f, int64_t out) { return ops::winograd::tiles_of(f.window, f.images, out); }

bool exact_enough(const Implicit& f, int64_t out) { return ops::winograd::exact_enough(f.window, f.c, out); }

bool fits(const Implicit& f, int64_t out) {
  if (!ops::winograd::fits(f.window)) return false;
  const Tiles t = tiles_of(f, out);
  const auto most = static_cast<double>(std::numeric_limits<int32_t>::max());
  return f.groups == 1 && static_cast<double>(t.points() * t.count) * static_cast<double>(std::max(f.c, f.o)) < most &&
         static_cast<double>(t.points() * f.c) * static_cast<double>(round_up(f.o, 64)) < most;
}

// Seconds for a transform that reads and writes so many floats, scattered over planes: longer than a copy would take.
double move_seconds(double floats) { return 6 * floats / kNominalBytes + kNominalLaunch; }
// That of weights runs through rows of panels, faster than one.
double weight_seconds(double floats) { return 2 * floats / kNominalBytes + kNominalLaunch; }
double image_floats(const Implicit& f, int64_t channels) {
  return static_cast<double>(f.images * f.window.y.in * f.window.x.in * channels);
}

double seconds_of(const Target& target, const Implicit& f, int64_t out) {
  const Tiles t = tiles_of(f, out);
  const double points = static_cast<double>(t.points()), rows = points * static_cast<double>(t.count);
  const double c = static_cast<double>(f.c), o = static_cast<double>(f.o);
  const Tile tile = gemm_tile(target, vectors_for(target, f.o));
  return tile_seconds(target, tile, rows, o, c, true) + weight_seconds((9 + points) * c * o) +
         move_seconds(image_floats(f, f.c) + rows * c) + move_seconds(image_floats(f, f.o) + rows * o);
}

// The tiles over the images read, which begin in the padding, or over those written.
ir::Attrs tile_attrs(const Implicit& f, const Tiles& t, bool read) {
  const ops::WindowAxis &y = f.window.y, &x = f.window.x;
  return {{"out", t.out},
          {"tiles", read ? ir::Ints{y.in, x.in, f.c, t.h, t.w, t.count, y.before, x.before}
                         : ir::Ints{y.out, x.out, f.o, t.h, t.w, t.count, 0, 0}}};
}

// One matrix for each point. A transform touches the same place of all of them, which must not fall into one set of a
// cache, as in matrices of 2^n bytes: a line between them serves the nearest cache, a page between large ones the next.
Type planes_of(const Tiles& t, int64_t elements) {
  const int64_t line = 16, page = 1024, large = 1 << 20;  // floats
  return f32({t.points(), elements + (t.points() * elements < large ? line : page)});
}

ir::Value multiplied(Expansion& e, const Tiles& t, ir::Value a, ir::Value b, const Product& p, bool packed) {
  return e.launch("gemm", {a, b}, planes_of(t, p.m * p.n),
                  {{"nv", vectors_for(e.target(), p.n)},
                   {"packed", int64_t{packed}},
                   {"ta", int64_t{p.ta}},
                   {"batch", t.points()},
                   {"m", p.m},
                   {"n", p.n},
                   {"k", p.k}});
}

ir::Value transformed_images(Expansion& e, const Implicit& f, const Tiles& t, ir::Value x) {
  return e.launch("winograd_input", {x}, planes_of(t, t.count * f.c), tile_attrs(f, t, true));
}

// --- forward and data gradient --------------------------------------------------------------------------------------
int64_t panel_width(const Target& target, const Implicit& f) {
  return vectors_for(target, f.o) * tuned(target, "gemm.VW");
}
// Those of the data gradient are read down columns: large ones, whose rows fall into few sets of a cache, as panels.
bool turned_in_place(const Implicit& f) { return f.c * f.o <= 4096; }
ir::Value transformed_weights(Expansion& e, const Implicit& f, const Tiles& t) {
  const int64_t cols = panel_width(e.target(), f);
  const bool gradient = e.view().op == "conv2d_dx", turned = gradient && turned_in_place(f);
  const ir::Value w = gradient && !turned ? pack_cols(e, e.in(1), 9, 1, vectors_for(e.target(), f.o)) : e.in(1);
  return e.launch("winograd_weights", {w}, planes_of(t, f.c * round_up(f.o, cols)),
                  {{"out", t.out}, {"turned", int64_t{turned}}, {"cols", cols}});
}

void expand_with(Expansion& e, const Implicit& f, int64_t out) {
  const Tiles t = tiles_of(f, out);
  const ir::Value u = transformed_weights(e, f, t);
  const ir::Value v = transformed_images(e, f, t, e.in(0));
  const ir::Value m = multiplied(e, t, v, u, {t.count, f.o, f.c, false, false}, true);
  ir::Values inputs{m};
  for (ir::Value extra : operands_from(e, 2)) inputs.push_back(extra);
  ir::Attrs attrs = tile_attrs(f, t, false);
  attrs.set("epilogue", e.attrs().text("epilogue", ""));
  e.result(0, e.launch("winograd_output", inputs, e.out_type(0), attrs));
}

// All in one launch, for few channels: a work-item keeps the tiles of a block, so it must have a CPU's cache and
// vectors.
bool small_accepts(const Implicit& f, const Target& target) {
  const int64_t vw = tuned(target, "gemm.VW");
  return vw >= 8 && f.c % vw == 0 && f.o % vw == 0 && f.c <= 32 && fits(f, 2) && exact_enough(f, 2) &&
         f.window.y.before >= 0 && f.window.x.before >= 0;
}
double small_seconds(const Implicit& f) {
  const Tiles t = tiles_of(f, 2);
  const double c = static_cast<double>(f.c), o = static_cast<double>(f.o), transforms = 100 * (c + o);
  return static_cast<double>(t.count) * (2 * 16 * c * o + transforms) / (0.7 * kNominalFlops) + kNominalLaunch +
         weight_seconds(25 * c * o);
}
void expand_small(Expansion& e, const Implicit& f) {
  const Tiles t = tiles_of(f, 2);
  ir::Values inputs = e.inputs();
  inputs[1] = transformed_weights(e, f, t);
  ir::Attrs attrs = tile_attrs(f, t, true);
  attrs.set("epilogue", e.attrs().text("epilogue", "")).set("cols", panel_width(e.target(), f));
  e.result(0, e.launch("winograd_small", inputs, e.out_type(0), attrs));
}
bool forward_small_accepts(const ops::OpView& v, const Target& target) { return small_accepts(forward_of(v), target); }
double forward_small_seconds(const ops::OpView& v, const Target&) { return small_seconds(forward_of(v)); }
void expand_forward_small(Expansion& e) { expand_small(e, forward_of(e.view())); }
bool dx_small_accepts(const ops::OpView& v, const Target& target) { return small_accepts(gradient_of(v), target); }
double dx_small_seconds(const ops::OpView& v, const Target&) { return small_seconds(gradient_of(v)); }
void expand_dx_small(Expansion& e) { expand_small(e, gradient_of(e.view())); }

template <int out>
bool accepts(const ops::OpView& v, const Target&) {
  const Implicit f = forward_of(v);
  return fits(f, out) && exact_enough(f, out);
}
template <int out>
double seconds(const ops::OpView& v, const Target& target) {
  return seconds_of(target, forward_of(v), out);
}
template <int out>
void expand(Expansion& e) {
  expand_with(e, forward_of(e.view()), out);
}

template <int out>
bool dx_accepts(const ops::OpView& v, const Target&) {
  const Implicit f = gradient_of(v);
  return fits(f, out) && exact_enough(f, out);
}
template <int out>
double dx_seconds(const ops::OpView& v, const Target& target) {
  return seconds_of(target, gradient_of(v), out);
}
template <int out>
void expand_dx(Expansion& e) {
  expand_with(e, gradient_of(e.view()), out);
}

// --- weight gradient ------------------------------------------------------------------------------------------------
// The forward convolution whose weights these are.
Implicit forward_of_dw(const ops::OpView& v) {
  const Shape &x = v.in(0).shape, &dy = v.in(1).shape;
  const int64_t groups = v.attrs.integer("groups", 1);
  const ops::Window window = ops::window_of(v.attrs, {x[1], x[2]}, v.attrs.ints("kernel"));
  return {window, x[0], x[3] / groups, dy[3] / groups, groups, dy[0] * dy[1] * dy[2]};
}

template <int out>
bool dw_accepts(const ops::OpView& v, const Target& target) {
  const Implicit f = forward_of_dw(v);
  return fits(f, out) && ops::winograd::exact_enough_dw(f.window, f.images, out) &&
         f.o >= tuned(target, "gemm.VW");  // read in place
}
template <int out>
double dw_seconds(const ops::OpView& v, const Target& target) {
  const Implicit f = forward_of_dw(v);
  const Tiles t = tiles_of(f, out);
  const double points = static_cast<double>(t.points()), rows = points * static_cast<double>(t.count);
  const double c = static_cast<double>(f.c), o = static_cast<double>(f.o);
  const Tile tile = gemm_tile(target, vectors_for(target, f.o));
  return tile_seconds(target, tile, points * c, o, static_cast<double>(t.count), true) +
         move_seconds(image_floats(f, f.c) + rows * c) + move_seconds(image_floats(f, f.o) + rows * o) +
         weight_seconds((9 + points) * c * o);
}
template <int out>
void expand_dw(Expansion& e) {
  const Implicit f = forward_of_dw(e.view());
  const Tiles t = tiles_of(f, out);
  const ir::Value v = transformed_images(e, f, t, e.in(0));
  const ir::Value dy = e.launch("winograd_dy", {e.in(1)}, planes_of(t, t.count * f.o), tile_attrs(f, t, false));
  const ir::Value m = multiplied(e, t, v, dy, {f.c, f.o, t.count, true, false}, false);
  e.result(0, e.launch("winograd_dw", {m}, e.out_type(0), {{"out", int64_t{out}}}));
}

}  // namespace

KernelList winograd() {
  static constexpr Kernel kernels[] = {{"winograd_weights", bind_weights},
                                       {"winograd_input", bind_input, "A"},
                                       {"winograd_output", bind_output, "- * -> Y"},
                                       {"winograd_small", bind_small, "A - * -> Y"},
                                       {"winograd_dy", bind_dy, "A"},
                                       {"winograd_dw", bind_dw}};
  static constexpr device::Candidate candidates[] = {
      {"conv2d", "winograd4", accepts<4>, seconds<4>, expand<4>},
      {"conv2d", "winograd2", accepts<2>, seconds<2>, expand<2>},
      {"conv2d", "winograd_small", forward_small_accepts, forward_small_seconds, expand_forward_small},
      {"conv2d_dx", "winograd_small", dx_small_accepts, dx_small_seconds, expand_dx_small},
      {"conv2d_dx", "winograd4", dx_accepts<4>, dx_seconds<4>, expand_dx<4>},
      {"conv2d_dx", "winograd2", dx_accepts<2>, dx_seconds<2>, expand_dx<2>},
      {"conv2d_dw", "winograd4", dw_accepts<4>, dw_seconds<4>, expand_dw<4>},
      {"conv2d_dw", "winograd2", dw_accepts<2>, dw_seconds<2>, expand_dw<2>}};
  return {kernels, candidates};
}

}  // namespace situ::opencl::kernels
