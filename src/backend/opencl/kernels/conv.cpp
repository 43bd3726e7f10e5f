// conv.cpp -- conv2d and conv2d_dx as implicit GEMMs (conv.cl), or as plain products where the kernel is 1x1.
//
// The data gradient with stride 1 is the forward kernel on reversed taps with C and O exchanged; with a larger stride
// it has a kernel of its own that keeps to one phase of dx at a time.
#include "backend/opencl/kernels/tile.h"

namespace situ::opencl::kernels {
namespace {

// --- binding --------------------------------------------------------------------------------------------------------
enum { kC = 2, kOh, kOw, kO, kR, kS, kSh, kSw };  // places in window_ints

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
  define_epilogue(call, attrs);
  for (const TensorArg* t : {&x, &b, &y}) add_tensor(call, *t);
  for (size_t i = 2; i < launch.in.size(); ++i) add_tensor(call, launch.in[i]);
  add_ints(call, w);
  add_ints(call, {pixels, groups, panels});
  if (!strided) {
    if (attrs.flag("packed"))
      add_ints(call, {tile.tn(), panels * k * tile.tn(), k * tile.tn(), std::numeric_limits<int32_t>::max()});
    else
      add_ints(call, {b.pitch, w[kO], tile.tn(), w[kO] - tile.vw});
  }
  add_ints(call, {tiles});
  return set_grid(call, ceil_div(rows, tiles), groups * panels, phases, tuned(target, "gemm.WX"),
                  tuned(target, "gemm.WY"));
}

Call bind_conv(const LaunchSpec& launch, const Target& target) { return bind_any(launch, target, false); }
Call bind_conv_dx(const LaunchSpec& launch, const Target& target) { return bind_any(launch, target, true); }

// --- forward --------------------------------------------------------------------------------------------------------
struct Forward {
  ops::Window window;
  int64_t pixels, c, o, groups;  // c and o of a group
  bool is_product() const {
    return groups == 1 && window.y.kernel == 1 && window.x.kernel == 1 && window.y.stride == 1 &&
           window.x.stride == 1 && window.y.in == window.y.out && window.x.in == window.x.out && window.y.before == 0 &&
           window.x.before == 0;
  }
};

Forward forward_of(const ir::Attrs& attrs, const Shape& x, const Shape& w) {
  const int64_t groups = attrs.integer("groups", 1);
  const ops::Window window = ops::window_of(attrs, {x[1], x[2]}, {w[0], w[1]});
  return {window, x[0] * window.y.out * window.x.out, w[2], w[3] / groups, groups};
}
Forward forward_of(const ops::OpView& v) { return forward_of(v.attrs, v.in(0).shape, v.in(1).shape); }

Shape image_of(const ops::OpView& v) {  // x of a data gradient
  const Shape &dy = v.in(0).shape, &w = v.in(1).shape;
  const ir::Ints& size = v.attrs.ints("size");
  return {dy[0], size[0], size[1], w[2] * v.attrs.integer("groups", 1)};
}
Forward forward_of_dx(const ops::OpView& v) { return forward_of(v.attrs, image_of(v), v.in(1).shape); }

template <bool packed>
bool accepts(const ops::OpView& v, const Target& target) {
  return packed || forward_of(v).o >= tuned(target, "gemm.VW");
}

double implicit_seconds(const Target& target, const Forward& f, int64_t pixels, int64_t n, int64_t kc, bool packed) {
  const double k = static_cast<double>(f.window.y.kernel * f.window.x.kernel * kc), g = static_cast<double>(f.groups);
  const Tile tile = gemm_tile(target, vectors_for(target, n));
  const double product = tile_seconds(target, tile, g * static_cast<double>(pixels), static_cast<double>(n), k, packed);
  return product + (packed ? pack_seconds(g * k * static_cast<double>(n)) : 0);
}

template <bool packed>
double seconds(const ops::OpView& v, const Target& target) {
  const Forward f = forward_of(v);
  return implicit_seconds(target, f, f.pixels, f.o, f.c, packed);
}

template <bool packed>
void expand(Expansion& e) {
  const Forward f = forward_of(e.view());
  const int64_t nv = vectors_for(e.target(), f.o);
  ir::Values inputs{e.in(0), packed ? pack_rows(e, e.in(1), f.groups, nv) : e.in(1)};
  for (ir::Value extra : operands_from(e, 2)) inputs.push_back(extra);
  e.result(0, e.launch("conv", inputs, e.out_type(0),
                       {{"window", window_ints(f.window, f.c, f.o)},
                        {"groups", f.groups},
                        {"nv", nv},
                        {"packed", int64_t{packed}},
                        {"epilogue", e.attrs().text("epilogue", "")}}));
}

// --- data gradient --------------------------------------------------------------------------------------------------
double dx_seconds(const ops::OpView& v, const Target& target) {
  const Forward f = forward_of_dx(v);
  const int64_t strides = f.window.y.stride * f.window.x.stride;  // each pixel meets 1 in so many taps
  return implicit_seconds(target, f, ceil_div(v.out(0).shape.rows(), strides), f.c, f.o, true);
}

void expand_dx(Expansion& e) {
  const Forward f = forward_of_dx(e.view());
  const ops::WindowAxis &y = f.window.y, &x = f.window.x;
  const int64_t nv = vectors_for(e.target(), f.c);
  ir::Values inputs{e.in(0), pack_cols(e, e.in(1), y.kernel * x.kernel, f.groups, nv)};
  for (ir::Value extra : operands_from(e, 2)) inputs.push_back(extra);
  const bool strided = y.stride != 1 || x.stride != 1;
  ir::Ints window = reversed_window_ints(f.window, f.o, f.c);
  if (!strided) {
    window[kSw + 1] = (y.kernel - 1) * y.dilation - y.before;
    window[kSw + 2] = (x.kernel - 1) * x.dilation - x.before;
  }
  e.result(0, e.launch(strided ? "conv_dx" : "conv", inputs, e.out_type(0),
                       {{"window", window},
                        {"groups", f.groups},
                        {"nv", nv},
                        {"packed", int64_t{1}},
                        {"epilogue", e.attrs().text("epilogue", "")}}));
}

// --- 1x1: plain products --------------------------------------------------------------------------------------------
template <bool packed, bool split>
bool product_accepts(const ops::OpView& v, const Target& target) {
  return forward_of(v).is_product() &&
         kernels::product_accepts(target, product_of(v.in(0), v.in(1), false, false), {packed, split});
}
template <bool packed, bool split>
double product_seconds(const ops::OpView& v, const Target& target) {
  return kernels::product_seconds(target, product_of(v.in(0), v.in(1), false, false), {packed, split});
}
template <bool packed, bool split>
void product_expand(Expansion& e) {
  const Product p = product_of(e.type(e.in(0)), e.type(e.in(1)), false, false);
  e.result(0, expand_product(e, e.in(0), e.in(1), operands_from(e, 2), p, {packed, split}, e.out_type(0)));
}
template <bool packed, bool split>
constexpr device::Candidate product(std::string_view name) {
  return {"conv2d", name, product_accepts<packed, split>, product_seconds<packed, split>,
          product_expand<packed, split>};
}

bool dx_product_accepts(const ops::OpView& v, const Target&) { return forward_of_dx(v).is_product(); }
double dx_product_seconds(const ops::OpView& v, const Target& target) {
  return kernels::product_seconds(target, product_of(v.in(0), v.in(1), false, true), {.packed = true});
}
void dx_product_expand(Expansion& e) {
  const Product p = product_of(e.type(e.in(0)), e.type(e.in(1)), false, true);
  e.result(0, expand_product(e, e.in(0), e.in(1), operands_from(e, 2), p, {.packed = true}, e.out_type(0)));
}

}  // namespace

KernelList conv() {
  static constexpr Kernel kernels[] = {{"conv", bind_conv}, {"conv_dx", bind_conv_dx}};
  static constexpr device::Candidate candidates[] = {
      {"conv2d", "implicit", accepts<true>, seconds<true>, expand<true>},
      {"conv2d", "implicit_in_place", accepts<false>, seconds<false>, expand<false>},
      product<true, false>("product"),
      product<false, false>("product_in_place"),
      product<true, true>("product_split"),
      {"conv2d_dx", "implicit", nullptr, dx_seconds, expand_dx},
      {"conv2d_dx", "product", dx_product_accepts, dx_product_seconds, dx_product_expand}};
  return {kernels, candidates};
}

}  // namespace situ::opencl::kernels
