// conv.cpp -- conv2d and conv2d_dx as implicit GEMMs (conv.cl), or as plain products where the kernel is 1x1.
//
// The data gradient with stride 1 is the forward kernel on reversed taps with C and O exchanged; with a larger stride
// it has a kernel of its own that keeps to one phase of dx at a time. Where few channels make the taps at the border
// dear, the images are first copied into ones with a border of zeros.
#include "backend/opencl/kernels/conv.h"

#include "backend/opencl/kernels/operand.h"

namespace situ::opencl::kernels {
namespace {

static_assert(device::kZeroRun == 4096 * sizeof(float), "ZERO_RUN of common.clh");

// --- binding --------------------------------------------------------------------------------------------------------
// Where element k = (r, s, c) of a window lies, counted from its corner.
TableArg window_offsets(const ir::Ints& w, int64_t pitch) {
  TableArg table;
  for (int64_t r = 0; r < w[kR]; ++r)
    for (int64_t s = 0; s < w[kS]; ++s)
      for (int64_t c = 0; c < w[kC]; ++c) table.words.push_back(int_of((r * w[kDh] * w[kW] + s * w[kDw]) * pitch + c));
  return table;
}

Call bind_any(const LaunchSpec& launch, const Target& target, bool strided) {
  const ir::Attrs& attrs = launch.node.attrs;
  const ir::Ints& w = attrs.ints("window");
  const TensorArg &x = launch.in[0], &b = launch.in[1], &y = launch.out[0];
  const Tile tile = gemm_tile(target, attrs.integer("nv"));
  const int64_t groups = attrs.integer("groups"), panels = ceil_div(w[kO], tile.tn()), k = w[kR] * w[kS] * w[kC];
  const int64_t phases = strided ? w[kSh] * w[kSw] : 1;
  const int64_t pixels = strided ? y.shape()[0] * ceil_div(w[kOh], w[kSh]) * ceil_div(w[kOw], w[kSw]) : y.rows();
  const int64_t rows = ceil_div(pixels, tile.tm);
  const int64_t tiles = tiles_per_item(target, rows, panels * groups * phases, tile.tm * tile.tn() * k);

  Call call = make_call("conv.cl", strided ? "conv_dx" : "conv");
  define_tile(call, target, tile);
  define_epilogue(call, launch, 2);
  const bool packed = strided || attrs.flag("packed");
  const int64_t b_image = right_image(target, tile, b, !packed, {packed ? 0 : b.pitch, packed ? 0 : w[kO]});
  add_operand(call, x, "A_IMAGE", left_image(target, x, {w[kC], x.pitch}));
  add_operand(call, b, "B_IMAGE", b_image);
  add_tensor(call, y);
  for (size_t i = 2; i < launch.in.size(); ++i) add_tensor(call, launch.in[i]);
  add_ints(call, w);
  add_ints(call, {pixels, groups, panels});
  if (!strided) {
    if (packed)
      add_ints(call, {tile.tn(), panels * k * tile.tn(), k * tile.tn(), std::numeric_limits<int32_t>::max()});
    else
      add_ints(call, {row_step(b_image, b.pitch), w[kO], tile.tn(), w[kO] - tile.vw});
    call.arg(window_offsets(w, x.pitch));
  }
  add_ints(call, {tiles});
  return set_grid(call, ceil_div(rows, tiles), groups * panels, phases, tuned(target, "gemm.WX"),
                  tuned(target, "gemm.WY"));
}

Call bind_conv(const LaunchSpec& launch, const Target& target) { return bind_any(launch, target, false); }
Call bind_conv_dx(const LaunchSpec& launch, const Target& target) { return bind_any(launch, target, true); }

// --- estimates ------------------------------------------------------------------------------------------------------
// Of the positions along an axis: which share has its whole window inside, for `neighbours` + 1 at once, and which
// share of all taps meets the image.
struct Coverage {
  double inside, taps;
};
Coverage coverage_of(const ops::WindowAxis& a, int64_t neighbours) {
  int64_t whole = 0, taps = 0;
  for (int64_t i = 0; i < a.out; ++i) {
    const ops::Taps t = a.taps_inside(i);
    taps += t.end - t.begin;
    whole += t.end - t.begin == a.kernel;
  }
  return {static_cast<double>(std::max<int64_t>(0, whole - neighbours)) / static_cast<double>(a.out),
          static_cast<double>(taps) / static_cast<double>(a.out * a.kernel)};
}

// How much longer border tiles make it: they test each tap, but leave out those that no pixel of the tile meets.
double border_factor(const Implicit& f, const Tile& tile) {
  if (!has_padding(f.window)) return 1.05;  // the table of offsets: a plain product has none
  const Coverage y = coverage_of(f.window.y, 0), x = coverage_of(f.window.x, tile.tm - 1);
  const double inside = y.inside * x.inside, walked = std::max(0.0, y.taps * (1 + x.taps) / 2 - inside);
  return inside + walked * (1 + 8.0 / static_cast<double>(f.c * tile.nv));
}

double implicit_seconds(const Target& target, const Implicit& f, bool packed, bool padded) {
  const double k = static_cast<double>(f.window.y.kernel * f.window.x.kernel * f.c), g = static_cast<double>(f.groups);
  const Tile tile = gemm_tile(target, vectors_for(target, f.o));
  const double n = static_cast<double>(f.o);
  const double product = tile_seconds(target, tile, g * static_cast<double>(f.pixels), n, k, packed);
  return product * (padded ? 1 : border_factor(f, tile)) + (packed ? pack_seconds(g * k * n) : 0) +
         (padded ? pad_seconds(f.window, f.images, f.c * f.groups) : 0);
}

void launch_conv(Expansion& e, const Implicit& f, ir::Value x, ir::Value b, bool packed, bool padded) {
  ir::Values inputs{padded ? pad_images(e, x, f.window) : x, b};
  for (ir::Value extra : operands_from(e, 2)) inputs.push_back(extra);
  e.result(0, e.launch("conv", inputs, e.out_type(0),
                       {{"window", window_ints(padded ? padded_window(f.window) : f.window, f.c, f.o)},
                        {"groups", f.groups},
                        {"nv", vectors_for(e.target(), f.o)},
                        {"packed", int64_t{packed}},
                        {"epilogue", e.attrs().text("epilogue", "")}}));
}

// --- forward --------------------------------------------------------------------------------------------------------
template <bool packed, bool padded>
bool accepts(const ops::OpView& v, const Target& target) {
  const Implicit f = forward_of(v);
  return (packed || f.o >= tuned(target, "gemm.VW")) && (!padded || has_padding(f.window));
}
template <bool packed, bool padded>
double seconds(const ops::OpView& v, const Target& target) {
  return implicit_seconds(target, forward_of(v), packed, padded);
}
template <bool packed, bool padded>
void expand(Expansion& e) {
  const Implicit f = forward_of(e.view());
  const ir::Value b = packed ? pack_rows(e, e.in(1), f.groups, vectors_for(e.target(), f.o)) : e.in(1);
  launch_conv(e, f, e.in(0), b, packed, padded);
}

template <bool packed, bool padded>
constexpr device::Candidate implicit(std::string_view name) {
  return {"conv2d", name, accepts<packed, padded>, seconds<packed, padded>, expand<packed, padded>};
}

// --- data gradient --------------------------------------------------------------------------------------------------
template <bool padded>
bool dx_accepts(const ops::OpView& v, const Target&) {
  const Implicit f = gradient_of(v);
  return !padded || (!f.has_stride() && has_padding(f.window));
}
template <bool padded>
double dx_seconds(const ops::OpView& v, const Target& target) {
  return implicit_seconds(target, gradient_of(v), true, padded);
}
template <bool padded>
void expand_dx(Expansion& e) {
  const Implicit f = gradient_of(e.view());
  const int64_t nv = vectors_for(e.target(), f.o), taps = f.window.y.kernel * f.window.x.kernel;
  const ir::Value b = pack_cols(e, e.in(1), taps, f.groups, nv);
  if (!f.has_stride()) return launch_conv(e, f, e.in(0), b, true, padded);
  ir::Values inputs{e.in(0), b};
  for (ir::Value extra : operands_from(e, 2)) inputs.push_back(extra);
  e.result(0, e.launch("conv_dx", inputs, e.out_type(0),
                       {{"window", reversed_window_ints(f.window, f.c, f.o)},
                        {"groups", f.groups},
                        {"nv", nv},
                        {"epilogue", e.attrs().text("epilogue", "")}}));
}

// --- 1x1: plain products --------------------------------------------------------------------------------------------
template <bool packed, bool split, bool tall>
bool product_accepts(const ops::OpView& v, const Target& target) {
  return forward_of(v).is_product() &&
         kernels::product_accepts(target, product_of(v.in(0), v.in(1), false, false), {packed, split, false, tall});
}
template <bool packed, bool split, bool tall>
double product_seconds(const ops::OpView& v, const Target& target) {
  return kernels::product_seconds(target, product_of(v.in(0), v.in(1), false, false), {packed, split, false, tall});
}
template <bool packed, bool split, bool tall>
void product_expand(Expansion& e) {
  const Product p = product_of(e.type(e.in(0)), e.type(e.in(1)), false, false);
  e.result(0, expand_product(e, e.in(0), e.in(1), operands_from(e, 2), p, {packed, split, false, tall}, e.out_type(0)));
}
template <bool packed, bool split, bool tall = false>
constexpr device::Candidate product(std::string_view name) {
  return {"conv2d", name, product_accepts<packed, split, tall>, product_seconds<packed, split, tall>,
          product_expand<packed, split, tall>};
}

template <bool tall>
bool dx_product_accepts(const ops::OpView& v, const Target& target) {
  return gradient_of(v).is_product() &&
         kernels::product_accepts(target, product_of(v.in(0), v.in(1), false, true), {.packed = true, .tall = tall});
}
template <bool tall>
double dx_product_seconds(const ops::OpView& v, const Target& target) {
  return kernels::product_seconds(target, product_of(v.in(0), v.in(1), false, true), {.packed = true, .tall = tall});
}
template <bool tall>
void dx_product_expand(Expansion& e) {
  const Product p = product_of(e.type(e.in(0)), e.type(e.in(1)), false, true);
  e.result(0,
           expand_product(e, e.in(0), e.in(1), operands_from(e, 2), p, {.packed = true, .tall = tall}, e.out_type(0)));
}

}  // namespace

KernelList conv() {
  static constexpr Kernel kernels[] = {{"conv", bind_conv, "A B * -> Y"}, {"conv_dx", bind_conv_dx, "A B * -> Y"}};
  static constexpr device::Candidate candidates[] = {
      implicit<true, false>("implicit"),
      implicit<false, false>("implicit_in_place"),
      implicit<true, true>("padded"),
      implicit<false, true>("padded_in_place"),
      product<true, false>("product"),
      product<false, false>("product_in_place"),
      product<true, true>("product_split"),
      product<true, false, true>("product_tall"),
      {"conv2d_dx", "implicit", dx_accepts<false>, dx_seconds<false>, expand_dx<false>},
      {"conv2d_dx", "padded", dx_accepts<true>, dx_seconds<true>, expand_dx<true>},
      {"conv2d_dx", "product", dx_product_accepts<false>, dx_product_seconds<false>, dx_product_expand<false>},
      {"conv2d_dx", "product_tall", dx_product_accepts<true>, dx_product_seconds<true>, dx_product_expand<true>}};
  return {kernels, candidates};
}

}  // namespace situ::opencl::kernels
