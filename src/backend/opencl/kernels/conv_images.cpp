// conv_images.cpp -- conv2d and its data gradient with stride 1, with images in the lanes (conv_images.cl): chosen
// where few results per pixel would leave vectors of channels mostly empty.
#include "backend/opencl/kernels/conv.h"
#include "backend/opencl/kernels/sheaves.h"

namespace situ::opencl::kernels {
namespace {

Tile tile_of(const Target& target, int64_t images, int64_t results) {
  const int64_t nv = vectors_for(target, images), tall = tuned(target, "gemm.TALL");
  const Tile tile = gemm_tile(target, nv);
  // A pixel's results are stored together by image: all of them by one tile, if a tall one holds them.
  if (nv > 1 && results > tile.tm && results <= tall) return {tile.vw, results, std::min<int64_t>(nv, 2)};
  return {tile.vw, even_rows(results, tile.tm), nv};
}

// Where the weight of (tap, channel read, result) lies.
struct Weights {
  int64_t first, tap, channel, result;
};
Weights weights_of(const TensorArg& w, bool reversed) {
  const int64_t taps = w.shape()[0] * w.shape()[1], tap = w.shape()[2] * w.pitch;
  if (reversed) return {(taps - 1) * tap, -tap, 1, w.pitch};
  return {0, tap, w.pitch, 1};
}

Call bind_conv(const LaunchSpec& launch, const Target& target) {
  const ir::Attrs& attrs = launch.node.attrs;
  const ir::Ints& g = attrs.ints("window");
  const TensorArg &x = launch.in[0], &w = launch.in[1], &y = launch.out[0];
  SITU_ASSERT(x.dense(), "sheaves are dense");
  SITU_ASSERT(!attrs.flag("sheaves") || y.dense(), "sheaves are dense");
  const int64_t images = attrs.integer("images"), pixels = g[kOh] * g[kOw];
  const Tile tile = tile_of(target, images, g[kO]);
  const int64_t rows = ceil_div(g[kO], tile.tm), columns = ceil_div(images, tile.tn());
  const int64_t tiles = tiles_per_item(target, pixels, rows * columns, tile.tm * tile.tn() * g[kR] * g[kS] * g[kC]);
  const Weights weights = weights_of(w, attrs.flag("reversed"));

  Call call = make_call("conv_images.cl", "conv_images");
  define_tile(call, target, tile);
  define_epilogue(call, launch, 2);
  for (const TensorArg* t : {&x, &w, &y}) add_tensor(call, *t);
  for (size_t i = 2; i < launch.in.size(); ++i) add_tensor(call, launch.in[i]);
  add_ints(call, g);
  const bool joined = g[kDw] == 1 && weights.tap == g[kC] * weights.channel;
  const ir::Ints& before = attrs.ints("before");
  add_ints(call, {images, x.shape()[1], x.shape()[2], before[0], before[1]});
  add_ints(call, {weights.first, weights.tap, weights.channel, weights.result, joined, tiles, attrs.flag("sheaves")});
  return set_grid(call, ceil_div(pixels, tiles), rows, columns, tuned(target, "gemm.WX"), tuned(target, "gemm.WY"));
}

template <bool reversed>
Implicit convolution_of(const ops::OpView& v) {
  return reversed ? gradient_of(v) : forward_of(v);
}

template <bool reversed>
bool accepts(const ops::OpView& v, const Target&) {
  const Implicit f = convolution_of<reversed>(v);
  return f.groups == 1 && !(reversed && f.has_stride());
}

// The share of an axis's taps that meet the image: the others are left out.
double taps_met(const ops::WindowAxis& a) {
  int64_t met = 0;
  for (int64_t i = 0; i < a.out; ++i) met += a.taps_inside(i).end - a.taps_inside(i).begin;
  return static_cast<double>(met) / static_cast<double>(a.out);
}

template <bool reversed>
double seconds(const ops::OpView& v, const Target& target) {
  const Implicit f = convolution_of<reversed>(v);
  const Tile tile = tile_of(target, f.images, f.o);
  const double rows = static_cast<double>(f.window.y.out * f.window.x.out * round_up(f.o, tile.tm));
  const double k = taps_met(f.window.y) * taps_met(f.window.x) * static_cast<double>(f.c);
  const double results = static_cast<double>(f.pixels * f.o);
  return tile_seconds(target, tile, rows, static_cast<double>(f.images), k, true) + 4 * results / kNominalBytes +
         interleave_seconds(static_cast<double>(v.in(0).count()));
}

// The forward pass takes sheaves with a margin, which it does not need, but the weight gradient does
// (conv_dw_images.cpp): a batch is rearranged once for both.
template <bool reversed>
void expand(Expansion& e) {
  const Implicit f = convolution_of<reversed>(e.view());
  const ops::Window sheaves = reversed ? f.window : padded_window(f.window);
  const ir::Ints before = reversed ? ir::Ints{0, 0} : ir::Ints{f.window.y.before, f.window.x.before};
  ir::Values inputs{interleave(e, e.in(0), sheaves.y.in, sheaves.x.in, before), e.in(1)};
  for (ir::Value extra : operands_from(e, 2)) inputs.push_back(extra);
  e.result(0, e.launch("conv_images", inputs, e.out_type(0),
                       {{"window", window_ints(f.window, f.c, f.o)},
                        {"before", before},
                        {"images", f.images},
                        {"reversed", int64_t{reversed}},
                        {"sheaves", int64_t{0}},  // pass/image_sheaves.cpp
                        {"epilogue", e.attrs().text("epilogue", "")}}));
}

}  // namespace

KernelList conv_images() {
  static constexpr Kernel kernels[] = {{"conv_images", bind_conv, "B - * -> Y"}};
  static constexpr device::Candidate candidates[] = {
      {"conv2d", "images", accepts<false>, seconds<false>, expand<false>},
      {"conv2d_dx", "images", accepts<true>, seconds<true>, expand<true>}};
  return {kernels, candidates};
}

}  // namespace situ::opencl::kernels
