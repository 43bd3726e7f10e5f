// conv_dw_images.cpp -- conv2d_dw with images in the lanes (conv_dw_images.cl), with an ordered sum of splits: chosen
// where few output channels would leave vectors of them mostly empty. `sums`: a second result, parts of the sum of dy
// over its pixels (pass/image_sheaves.cpp).
#include "backend/opencl/kernels/sheaves.h"

namespace situ::opencl::kernels {
namespace {

struct Gradient {
  ops::Window window;  // over padded images
  ir::Ints before;     // what they are padded with
  int64_t images, c, o;
  Tile tile;
  int64_t lines;  // of pixels of dy, in all sheaves
  int64_t rows() const { return window.y.kernel * window.x.kernel * c; }
};

Gradient gradient_of(const ops::OpView& v, const Target& target) {
  const Shape &x = v.in(0).shape, &dy = v.in(1).shape;
  const ops::Window window = ops::window_of(v.attrs, {x[1], x[2]}, v.attrs.ints("kernel"));
  const Tile tile{tuned(target, "gemm.VW"), even_rows(dy[3], tuned(target, "dw.TM")), tuned(target, "dw.NV")};
  return {padded_window(window),
          {window.y.before, window.x.before},
          x[0],
          x[3],
          dy[3],
          tile,
          sheaves_of(target, x[0]) * window.y.out};
}

// Multiplied elements of sheaves: the work, and what is read at least.
double padded_images(const Gradient& g) { return static_cast<double>(round_up(g.images, g.tile.vw)); }
double elements_of(const Gradient& g) {
  const ops::WindowAxis &y = g.window.y, &x = g.window.x;
  return padded_images(g) * static_cast<double>(y.in * x.in * g.c + y.out * x.out * g.o);
}

// Enough splits to keep the device busy and a split's operands in the cache, but no more partial sums than operands.
int64_t splits_of(const Target& target, const Gradient& g) {
  const int64_t items = ceil_div(g.rows(), g.tile.nv) * ceil_div(g.o, g.tile.tm);
  const int64_t busy = ceil_div(tuned(target, "gemm.ITEMS"), items);
  const int64_t cached = static_cast<int64_t>(4 * elements_of(g) / 1024) / tuned(target, "dw.SLAB");
  const int64_t most = std::min(g.lines, static_cast<int64_t>(elements_of(g)) / (g.rows() * g.o));
  return std::max<int64_t>(1, std::min(std::max(busy, cached), most));
}

Call bind_conv_dw(const LaunchSpec& launch, const Target& target) {
  const ir::Attrs& attrs = launch.node.attrs;
  const ir::Ints& g = attrs.ints("window");
  const TensorArg &x = launch.in[0], &dy = launch.in[1], &y = launch.out[0];
  const int64_t splits = attrs.integer("splits"), lines = dy.shape()[0] * g[kOh];
  const Tile tile{tuned(target, "gemm.VW"), even_rows(g[kO], tuned(target, "dw.TM")), tuned(target, "dw.NV")};
  SITU_ASSERT(x.dense() && dy.dense(), "sheaves are dense");
  SITU_ASSERT(splits == 1 || y.dense(), "partial sums are dense");
  Call call = make_call("conv_dw_images.cl", "conv_dw_images");
  define_tile(call, target, tile);
  const bool sums = attrs.flag("sums");
  for (const TensorArg* t : {&x, &dy, &y, &launch.out[sums ? 1 : 0]}) add_tensor(call, *t);
  add_ints(call, g);
  add_ints(call, {lines, ceil_div(lines, splits), sums});
  return set_grid(call, ceil_div(g[kR] * g[kS] * g[kC], tile.nv) + sums, ceil_div(g[kO], tile.tm), splits,
                  tuned(target, "gemm.WX"), tuned(target, "gemm.WY"));
}

bool accepts(const ops::OpView& v, const Target&) { return v.attrs.integer("groups", 1) == 1; }

double seconds(const ops::OpView& v, const Target& target) {
  const Gradient g = gradient_of(v, target);
  const double splits = static_cast<double>(splits_of(target, g)), weights = static_cast<double>(g.rows() * g.o);
  const double products = static_cast<double>(round_up(g.rows(), g.tile.nv) * round_up(g.o, g.tile.tm));
  const double pixels = padded_images(g) * static_cast<double>(g.window.y.out * g.window.x.out);
  const double items = products / static_cast<double>(g.tile.nv * g.tile.tm) * splits;
  const double busy = std::min(1.0, items / static_cast<double>(tuned(target, "gemm.ITEMS")));
  return 2 * products * pixels / (kNominalFlops * 0.7 * busy) + kNominalLaunch + interleave_seconds(elements_of(g)) +
         kNominalLaunch + (splits > 1 ? 4 * (2 * splits + 1) * weights / kNominalBytes + kNominalLaunch : 0);
}

void expand(Expansion& e) {
  const Gradient g = gradient_of(e.view(), e.target());
  const int64_t splits = splits_of(e.target(), g);
  const ir::Value x = interleave(e, e.in(0), g.window.y.in, g.window.x.in, g.before);
  const ir::Value dy = interleave(e, e.in(1), g.window.y.out, g.window.x.out, {0, 0});
  const Shape& w = e.out_type(0).shape;
  const Type part = splits > 1 ? f32({splits, w[0], w[1], w[2], w[3]}) : e.out_type(0);
  const ir::Value dw =
      e.launch("conv_dw_images", {x, dy}, part,
               {{"window", window_ints(g.window, g.c, g.o)}, {"splits", splits}, {"sums", int64_t{0}}});
  e.result(0, splits > 1 ? e.launch("sum_splits", {dw}, e.out_type(0)) : dw);
}

}  // namespace

KernelList conv_dw_images() {
  static constexpr Kernel kernels[] = {{"conv_dw_images", bind_conv_dw, "B A"}};
  static constexpr device::Candidate candidates[] = {{"conv2d_dw", "images", accepts, seconds, expand}};
  return {kernels, candidates};
}

}  // namespace situ::opencl::kernels
