// conv_dw.cpp -- conv2d_dw in slabs of pixels with an ordered sum (conv_dw.cl), or as a product where 1x1.
//
// Padding is met by testing the pixels at the borders, or by copying the images into ones with a border of zeros:
// faster, but it takes their memory again.
#include "backend/opencl/kernels/operand.h"

namespace situ::opencl::kernels {
namespace {

struct Gradient {
  ops::Window window;
  int64_t lines, c, o, groups;  // c and o of a group
  double operands, weights;     // elements
  int64_t row_tiles(int64_t tm) const { return window.y.kernel * ceil_div(window.x.kernel * c, tm); }
};

Gradient gradient_of(const ops::OpView& v) {
  const Shape &x = v.in(0).shape, &dy = v.in(1).shape;
  const int64_t groups = v.attrs.integer("groups", 1);
  const ops::Window window = ops::window_of(v.attrs, {x[1], x[2]}, v.attrs.ints("kernel"));
  return {window,
          x[0] * window.y.out,
          x[3] / groups,
          dy[3] / groups,
          groups,
          static_cast<double>(x.count() + dy.count()),
          static_cast<double>(window.y.kernel * window.x.kernel * x[3] / groups * dy[3])};
}

Tile dw_tile(const Target& target, int64_t nv) {
  return {tuned(target, "gemm.VW"), tuned(target, nv == 1 ? "gemm.TM1" : "dw.TM"), nv};
}

// Enough splits to keep the device busy and a split's operands in the cache, but no more partial sums than operands.
int64_t splits_of(const Target& target, const Gradient& g) {
  const Tile tile = dw_tile(target, vectors_for(target, g.o, "dw.NV"));
  const int64_t items = g.row_tiles(tile.tm) * g.groups * ceil_div(g.o, tile.tn());
  const int64_t busy = ceil_div(tuned(target, "gemm.ITEMS"), items);
  const int64_t cached = static_cast<int64_t>(4 * g.operands / 1024) / tuned(target, "dw.SLAB");
  const int64_t most = std::min(g.lines, static_cast<int64_t>(g.operands / g.weights));
  return std::max<int64_t>(1, std::min(std::max(busy, cached), most));
}

// Where pixel (oy, ox) of dy meets x, counted from the corner of the image.
TableArg pixel_offsets(const ir::Ints& w, int64_t pitch) {
  TableArg table;
  for (int64_t oy = 0; oy < w[kOh]; ++oy)
    for (int64_t ox = 0; ox < w[kOw]; ++ox) table.words.push_back(int_of((oy * w[kSh] * w[kW] + ox * w[kSw]) * pitch));
  return table;
}

// The split's share is counted in lines of pixels, or (inside) in pixels.
Call bind_any(const LaunchSpec& launch, const Target& target, bool inside) {
  const ir::Attrs& attrs = launch.node.attrs;
  const ir::Ints& w = attrs.ints("window");
  const TensorArg &x = launch.in[0], &dy = launch.in[1], &y = launch.out[0];
  const int64_t c = w[kC], o = w[kO], r = w[kR], s = w[kS], groups = attrs.integer("groups");
  const int64_t splits = attrs.integer("splits"), shared = inside ? dy.rows() : dy.shape()[0] * w[kOh];
  const Tile tile = dw_tile(target, attrs.integer("nv"));
  SITU_ASSERT(splits == 1 || y.dense(), "partial sums are dense");
  // Pixels of dy at which a whole vector may be read: all, or with fewer channels than lanes all but the last few.
  const int64_t beyond = (dy.rows() - 1) * dy.pitch + o - tile.vw;
  const int64_t safe = o >= tile.vw ? dy.rows() : beyond < 0 ? 0 : beyond / dy.pitch + 1;

  Call call = make_call("conv_dw.cl", inside ? "conv_dw_inside" : "conv_dw");
  define_tile(call, target, tile);
  const bool whole = o >= tile.vw;  // vectors never pass the last channel
  add_tensor(call, x);
  add_operand(call, dy, "B_IMAGE", whole ? right_image(target, tile, dy, true, {dy.pitch, o}) : kFromSlab);
  add_tensor(call, y);
  add_ints(call, w);
  const int64_t panels = ceil_div(o, tile.tn());
  add_ints(call, {shared, groups, panels, std::max<int64_t>(0, o - tile.vw), ceil_div(shared, splits), safe});
  if (inside) call.arg(pixel_offsets(w, x.pitch));
  const int64_t rows = inside ? ceil_div(r * s * c, tile.tm) : r * ceil_div(s * c, tile.tm);
  return set_grid(call, rows, groups * panels, splits, tuned(target, "gemm.WX"), tuned(target, "gemm.WY"));
}

Call bind_conv_dw(const LaunchSpec& launch, const Target& target) { return bind_any(launch, target, false); }
Call bind_conv_dw_inside(const LaunchSpec& launch, const Target& target) { return bind_any(launch, target, true); }

// Pixels at the border are walked one by one: about so many times longer, by their share of a line.
double border_factor(const Gradient& g) {
  int64_t inside = 0;
  const ops::WindowAxis& x = g.window.x;
  for (int64_t i = 0; i < x.out; ++i) inside += x.taps_inside(i).end - x.taps_inside(i).begin == x.kernel;
  return 1.2 + 4 * static_cast<double>(x.out - inside) / static_cast<double>(x.out);
}

template <bool inside>
double seconds(const ops::OpView& v, const Target& target) {
  const Gradient g = gradient_of(v);
  const Tile tile = dw_tile(target, vectors_for(target, g.o, "dw.NV"));
  const double splits = static_cast<double>(splits_of(target, g));
  const double rows = static_cast<double>(g.row_tiles(tile.tm) * tile.tm * g.groups) * splits;
  const double product = tile_seconds(target, tile, rows, static_cast<double>(g.o),
                                      static_cast<double>(g.lines * g.window.x.out) / splits, true);
  return product * (inside ? 1 : border_factor(g)) +
         (inside && has_padding(g.window) ? pad_seconds(g.window, v.in(0).shape[0], v.in(0).shape[3]) : 0) +
         (splits > 1 ? 4 * (2 * splits + 1) * g.weights / kNominalBytes + kNominalLaunch : 0);
}

template <bool inside>
void expand(Expansion& e) {
  const Gradient g = gradient_of(e.view());
  const int64_t splits = splits_of(e.target(), g);
  const bool pad = inside && has_padding(g.window);
  const ir::Attrs attrs{{"window", window_ints(pad ? padded_window(g.window) : g.window, g.c, g.o)},
                        {"groups", g.groups},
                        {"nv", vectors_for(e.target(), g.o, "dw.NV")},
                        {"splits", splits}};
  const Shape& w = e.out_type(0).shape;
  const Type part = splits > 1 ? f32({splits, w[0], w[1], w[2], w[3]}) : e.out_type(0);
  const ir::Values inputs{pad ? pad_images(e, e.in(0), g.window) : e.in(0), e.in(1)};
  const ir::Value dw = e.launch(inside ? "conv_dw_inside" : "conv_dw", inputs, part, attrs);
  e.result(0, splits > 1 ? e.launch("sum_splits", {dw}, e.out_type(0)) : dw);
}

// --- 1x1: dw = x^T dy -----------------------------------------------------------------------------------------------
template <bool packed, bool split>
bool product_accepts(const ops::OpView& v, const Target& target) {
  const Gradient g = gradient_of(v);
  return g.groups == 1 && ops::is_pointwise(g.window) &&
         kernels::product_accepts(target, product_of(v.in(0), v.in(1), true, false), {packed, split});
}
template <bool packed, bool split>
double product_seconds(const ops::OpView& v, const Target& target) {
  return kernels::product_seconds(target, product_of(v.in(0), v.in(1), true, false), {packed, split});
}
template <bool packed, bool split>
void product_expand(Expansion& e) {
  const Product p = product_of(e.type(e.in(0)), e.type(e.in(1)), true, false);
  e.result(0, expand_product(e, e.in(0), e.in(1), {}, p, {packed, split}, e.out_type(0)));
}
template <bool packed, bool split>
constexpr device::Candidate product(std::string_view name) {
  return {"conv2d_dw", name, product_accepts<packed, split>, product_seconds<packed, split>,
          product_expand<packed, split>};
}

}  // namespace

KernelList conv_dw() {
  static constexpr Kernel kernels[] = {{"conv_dw", bind_conv_dw, "A B"},
                                       {"conv_dw_inside", bind_conv_dw_inside, "A B"}};
  static constexpr device::Candidate candidates[] = {{"conv2d_dw", "lines", nullptr, seconds<false>, expand<false>},
                                                     {"conv2d_dw", "inside", nullptr, seconds<true>, expand<true>},
                                                     product<true, false>("product"),
                                                     product<false, false>("product_in_place"),
                                                     product<true, true>("product_split"),
                                                     product<false, true>("product_in_place_split")};
  return {kernels, candidates};
}

}  // namespace situ::opencl::kernels
