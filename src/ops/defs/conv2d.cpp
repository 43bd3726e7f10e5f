// conv2d.cpp -- 2-D convolution over channels-last images, and its two gradients.
//   y[n,p,q,o] = sum over taps r,s and the group's channels c of  x[n, row(p,r), col(q,s), c] * w[r,s,c,o]
// with row and col as in window.h. x, w and y meet in the same triples of elements whichever of the three is wanted
// (each_product), so y, dx and dw differ only in which one they sum into.
#include "ops/epilogue.h"
#include "ops/magnitude.h"
#include "ops/window.h"

namespace situ::ops::defs {
namespace {

struct Geometry {
  Window window;
  int64_t n, c, o, groups;
  int64_t group_c() const { return c / groups; }
  int64_t group_o() const { return o / groups; }
};

Ints height_width(const Shape& image) { return {image[1], image[2]}; }
Ints taps(const Shape& w) { return {w[0], w[1]}; }

int64_t groups_of(const Attrs& attrs, int64_t c, int64_t o) {
  const int64_t groups = attrs.integer("groups", 1);
  if (groups < 1 || c % groups || o % groups)
    fail("{} groups divide neither {} input nor {} output channels evenly: choose a common divisor", groups, c, o);
  return groups;
}

void need_images(const OpView& v) {
  need(v.arity() >= 2, "two operands are needed");
  for (int i = 0; i < 2; ++i)
    need(v.in(i).dtype == DType::f32 && v.in(i).shape.rank() == 4, "images are f32[N,H,W,C] and weights f32[R,S,C,O]");
}

Geometry geometry(const Attrs& attrs, const Shape& x, const Shape& w) {
  return {window_of(attrs, height_width(x), taps(w)), x[0], x[3], w[3], groups_of(attrs, x[3], w[3])};
}

Shape result_shape(const Geometry& g) { return {g.n, g.window.y.out, g.window.x.out, g.o}; }

void need_result(const Geometry& g, const Shape& dy) {
  if (dy != result_shape(g))
    fail("dy must be {}, the result of that convolution, not {}", to_string(result_shape(g)), to_string(dy));
}

Types forward_type(const OpView& v) {
  need_images(v);
  const Shape &x = v.in(0).shape, &w = v.in(1).shape;
  const Geometry g = geometry(v.attrs, x, w);
  if (w[2] != g.group_c())
    fail("w has {} input channels, a group of x has {}: make w[R,S,C/groups,O]", w[2], g.group_c());
  check_epilogue(v, 2, f32(result_shape(g)));
  return {f32(result_shape(g))};
}

Types dx_type(const OpView& v) {
  need_images(v);
  const Shape &dy = v.in(0).shape, &w = v.in(1).shape;
  const Ints& size = v.attrs.ints("size");
  need(size.size() == 2, "`size` needs two numbers, the height and width of x");
  const Shape x{dy[0], size[0], size[1], w[2] * v.attrs.integer("groups", 1)};
  need_result(geometry(v.attrs, x, w), dy);
  check_epilogue(v, 2, f32(x));
  return {f32(x)};
}

Types dw_type(const OpView& v) {
  need_images(v);
  need(v.arity() == 2, "x and dy are the only operands");
  const Shape &x = v.in(0).shape, &dy = v.in(1).shape;
  const Ints& kernel = v.attrs.ints("kernel");
  need(kernel.size() == 2, "`kernel` needs two numbers, the height and width of w");
  const Shape w{kernel[0], kernel[1], x[3] / groups_of(v.attrs, x[3], dy[3]), dy[3]};
  need_result(geometry(v.attrs, x, w), dy);
  return {f32(w)};
}

// The window's attributes alone, to which the three ops add their own.
Attrs window_attrs(const GradBuilder& g) {
  Attrs attrs;
  for (const char* name : {"stride", "pad", "dilation", "groups"})
    if (const auto* value = g.attrs().find(name)) attrs.set(name, *value);
  return attrs;
}
Value emit_forward(GradBuilder& g, Value x, Value w) { return g.emit("conv2d", {x, w}, window_attrs(g)); }
Value emit_dx(GradBuilder& g, Value dy, Value w, Value x) {
  return g.emit("conv2d_dx", {dy, w}, window_attrs(g).set("size", height_width(g.type(x).shape)));
}
Value emit_dw(GradBuilder& g, Value x, Value dy, Value w) {
  return g.emit("conv2d_dw", {x, dy}, window_attrs(g).set("kernel", taps(g.type(w).shape)));
}

void forward_gradient(GradBuilder& g) {
  const Value x = g.in(0), w = g.in(1), dy = epilogue_gradient(g, "conv2d", 2);
  if (dy == ir::kNoValue) return;
  if (g.wants(0)) g.add(0, emit_dx(g, dy, w, x));
  if (g.wants(1)) g.add(1, emit_dw(g, x, dy, w));
}

void dx_gradient(GradBuilder& g) {
  const Value dy = g.in(0), w = g.in(1), ddx = epilogue_gradient(g, "conv2d_dx", 2);
  if (ddx == ir::kNoValue) return;
  if (g.wants(0)) g.add(0, emit_forward(g, ddx, w));
  if (g.wants(1)) g.add(1, emit_dw(g, ddx, dy, w));
}

void dw_gradient(GradBuilder& g) {
  const Value x = g.in(0), dy = g.in(1), ddw = g.dout(0);
  if (g.wants(0)) g.add(0, emit_dx(g, dy, ddw, x));
  if (g.wants(1)) g.add(1, emit_forward(g, x, ddw));
}

Cost products_cost(const Shape& y, const Shape& w) {  // padding counts too, as everywhere
  return {.flops = 2.0 * static_cast<double>(y.count()) * static_cast<double>(w[0] * w[1] * w[2])};
}
Cost forward_cost(const OpView& v) { return products_cost(v.out(0).shape, v.in(1).shape); }
Cost dx_cost(const OpView& v) { return products_cost(v.in(0).shape, v.in(1).shape); }
Cost dw_cost(const OpView& v) { return products_cost(v.in(1).shape, v.out(0).shape); }

// Calls visit(index in x, index in w, index in y) for every product of the convolution.
void each_product(const Geometry& g, auto visit) {
  const WindowAxis &wy = g.window.y, &wx = g.window.x;
  for (int64_t n = 0; n < g.n; ++n)
    for (int64_t p = 0; p < wy.out; ++p)
      for (int64_t q = 0; q < wx.out; ++q)
        for (int64_t r = wy.taps_inside(p).begin; r < wy.taps_inside(p).end; ++r)
          for (int64_t s = wx.taps_inside(q).begin; s < wx.taps_inside(q).end; ++s)
            for (int64_t c = 0; c < g.group_c(); ++c)
              for (int64_t o = 0; o < g.o; ++o) {
                const int64_t channel = o / g.group_o() * g.group_c() + c;
                visit(((n * wy.in + wy.position(p, r)) * wx.in + wx.position(q, s)) * g.c + channel,
                      ((r * wx.kernel + s) * g.group_c() + c) * g.o + o, ((n * wy.out + p) * wx.out + q) * g.o + o);
              }
}

void clear(const RefTensor& t) { std::fill_n(t.data, t.count(), 0.0); }

void forward_products(const RefCall& c) {
  const RefTensor &x = c.in[0], &w = c.in[1], &y = c.out[0];
  clear(y);
  each_product(geometry(c.attrs, x.shape(), w.shape()), [&](int64_t i, int64_t j, int64_t k) { y[k] += x[i] * w[j]; });
}
void dx_products(const RefCall& c) {
  const RefTensor &dy = c.in[0], &w = c.in[1], &dx = c.out[0];
  clear(dx);
  each_product(geometry(c.attrs, dx.shape(), w.shape()),
               [&](int64_t i, int64_t j, int64_t k) { dx[i] += dy[k] * w[j]; });
}
void dw_reference(const RefCall& c) {
  const RefTensor &x = c.in[0], &dy = c.in[1], &dw = c.out[0];
  clear(dw);
  each_product(geometry(c.attrs, x.shape(), dw.shape()),
               [&](int64_t i, int64_t j, int64_t k) { dw[j] += x[i] * dy[k]; });
}

template <void (*products)(const RefCall&)>
void reference(const RefCall& c) {
  products(c);
  reference_epilogue(c, 2, c.out[0]);
}
template <void (*products)(const RefCall&)>
void magnitude(const RefCall& c) {
  products(AbsoluteCall(c).call());
  magnitude_epilogue(c, 2, c.out[0]);
}

constexpr std::string_view kForwardExamples =
    "f32[1,3,3,1], f32[3,3,1,1]; f32[2,5,7,3], f32[1,1,3,9]; f32[1,7,9,3], f32[3,3,3,8] {pad=[1,1,1,1]}; "
    "f32[2,12,12,1], f32[5,5,1,6] {pad=[2,2,2,2]}; f32[1,14,14,6], f32[5,5,6,16]; "
    "f32[2,9,8,5], f32[3,3,5,7] {stride=[2,2], pad=[1,1,1,1]}; "
    "f32[1,6,5,3], f32[3,2,3,4] {stride=[2,1], pad=[0,1,1,2]}; "
    "f32[1,9,11,4], f32[3,3,4,9] {pad=[2,3,2,3], dilation=[2,3]}; "
    "f32[2,6,6,8], f32[3,3,4,6] {pad=[1,1,1,1], groups=2}; "
    "f32[2,7,7,9], f32[3,3,1,9] {stride=[2,2], pad=[1,1,1,1], groups=9}; f32[1,5,5,3], f32[3,3,1,6] {groups=3}; "
    "f32[1,8,9,3], f32[2,2,3,5] {stride=[3,4]}; f32[1,2,2,3], f32[1,1,3,4] {pad=[1,1,1,1]}; "
    "f32[17,4,4,15], f32[1,1,15,17] {stride=[2,2]}; f32[1,5,6,17], f32[3,3,17,33] {pad=[1,1,1,1]}; "
    "f32[3,6,5,7], f32[6,5,7,10]; "
    "f32[2,9,10,6], f32[3,2,3,4] {stride=[2,3], pad=[1,0,2,1], dilation=[2,1], groups=2}; "
    "f32[1,1,65,1], f32[1,3,1,2] {pad=[0,1,0,1]}; f32[2,14,14,16], f32[3,3,16,24] {pad=[1,1,1,1]}; "
    "f32[3,7,9,65], f32[3,3,65,18] {pad=[1,0,1,1]}; f32[1,4,5,32], f32[3,3,32,7], f32[7] {epilogue=\"bias+relu\"}; "
    "f32[2,7,5,12], f32[3,3,12,20] {pad=[1,0,1,0]}; "
    "f32[2,9,11,5], f32[3,3,1,5] {pad=[1,2,1,2], dilation=[1,2], groups=5}; "
    "f32[1,4,35,5], f32[3,3,1,5] {pad=[1,1,1,1], groups=5}; f32[1,3,33,17], f32[3,3,1,17] {pad=[0,2,1,0], groups=17}; "
    "f32[1,5,70,3], f32[3,3,1,3], f32[3] {stride=[2,2], pad=[1,1,1,1], groups=3, epilogue=\"bias+relu6\"}; "
    "f32[19,6,7,2], f32[3,2,2,7] {stride=[1,2], pad=[0,1,2,1], dilation=[2,2]}; f32[35,3,3,1], f32[2,2,1,3]; "
    "f32[67,3,2,2], f32[2,2,2,3] {pad=[1,0,0,1]}; "       // more images than a tile has columns
    "f32[1,2,3,4180], f32[2,2,4180,3] {pad=[1,0,0,1]}; "  // more channels than a zero run and the control block hold
    "f32[1,4,5,3], f32[3,3,3,8], f32[8] {pad=[1,1,1,1], epilogue=\"bias\"}; "
    "f32[2,5,4,4], f32[2,2,2,6] {stride=[2,1], pad=[0,1,1,0], groups=2, epilogue=\"relu\"}; "
    "f32[1,3,3,5]*6, f32[1,1,5,9] {epilogue=\"relu6\"}; "
    "f32[1,4,5,3], f32[3,3,3,8], f32[1,4,5,8] {pad=[1,1,1,1], epilogue=\"residual\"}; "
    "f32[2,5,4,4], f32[2,2,2,6], f32[2,3,4,6] {stride=[2,1], pad=[0,1,1,0], groups=2, epilogue=\"mask\"}; "
    "f32[1,3,3,5], f32[1,1,5,9], f32[9] {epilogue=\"bias+relu\"}; "
    "f32[1,4,5,3]*6, f32[3,3,3,8], f32[8] {pad=[1,1,1,1], epilogue=\"bias+relu6\"}; "
    "f32[2,5,4,4], f32[2,2,2,6], f32[6], f32[2,3,4,6] {stride=[2,1], pad=[0,1,1,0], groups=2, "
    "epilogue=\"bias+residual+relu\"}; "
    "f32[1,3,3,5], f32[1,1,5,9], f32[1,3,3,9] {epilogue=\"relu+residual\"}; "
    "f32[1,4,5,3], f32[3,3,3,8], f32[1,4,5,8], f32[1,4,5,8] {pad=[1,1,1,1], epilogue=\"residual+mask\"}; "
    "f32[18,4,5,1], f32[3,3,1,6], f32[6], f32[18,4,5,6] {pad=[1,1,1,1], epilogue=\"bias+mask\"}; "
    "f32[2,4,5,3], f32[2,2,3,9], f32[2,3,4,9]*8 {epilogue=\"mask6\"}; "
    "f32[3,7,9,16], f32[3,3,16,32], f32[32] {pad=[1,1,1,1], epilogue=\"bias+relu\"}; "  // few channels, whole vectors
    "f32[2,5,6,32], f32[3,3,32,16], f32[2,4,5,16] {pad=[0,1,1,0], epilogue=\"residual\"}; "
    "f32[1,5,19,48], f32[3,3,48,64], f32[1,5,19,64], f32[1,5,19,64] {pad=[1,1,1,1], epilogue=\"residual+mask\"}; "
    "f32[2,6,21,16], f32[3,3,16,16], f32[2,5,21,16] {pad=[0,1,1,1], epilogue=\"mask\"}; "
    "f32[1,29,28,16], f32[3,3,16,5], f32[5] {pad=[1,1,1,1], epilogue=\"bias\"}; "
    "f32[19,9,7,6], f32[5,5,6,7], f32[7] {epilogue=\"bias+relu\"}; f32[5,7,8,8], f32[5,5,8,9] {pad=[1,1,1,1]}; "
    "f32[64,3,3,1], f32[2,2,1,3] {pad=[0,1,1,0]}";  // more than one sheaf of images

constexpr std::string_view kDxExamples =
    "f32[1,1,1,1], f32[3,3,1,1] {size=[3,3]}; f32[2,5,7,9], f32[1,1,3,9] {size=[5,7]}; "
    "f32[1,7,9,8], f32[3,3,3,8] {pad=[1,1,1,1], size=[7,9]}; "
    "f32[2,12,12,6], f32[5,5,1,6] {pad=[2,2,2,2], size=[12,12]}; f32[1,10,10,16], f32[5,5,6,16] {size=[14,14]}; "
    "f32[2,5,4,7], f32[3,3,5,7] {stride=[2,2], pad=[1,1,1,1], size=[9,8]}; "
    "f32[1,3,7,4], f32[3,2,3,4] {stride=[2,1], pad=[0,1,1,2], size=[6,5]}; "
    "f32[1,9,11,9], f32[3,3,4,9] {pad=[2,3,2,3], dilation=[2,3], size=[9,11]}; "
    "f32[2,6,6,6], f32[3,3,4,6] {pad=[1,1,1,1], groups=2, size=[6,6]}; "
    "f32[2,4,4,9], f32[3,3,1,9] {stride=[2,2], pad=[1,1,1,1], groups=9, size=[7,7]}; "
    "f32[1,3,3,6], f32[3,3,1,6] {groups=3, size=[5,5]}; f32[1,3,2,5], f32[2,2,3,5] {stride=[3,4], size=[8,9]}; "
    "f32[1,4,4,4], f32[1,1,3,4] {pad=[1,1,1,1], size=[2,2]}; "
    "f32[17,2,2,17], f32[1,1,15,17] {stride=[2,2], size=[4,4]}; "
    "f32[1,5,6,33], f32[3,3,17,33] {pad=[1,1,1,1], size=[5,6]}; f32[3,1,1,10], f32[6,5,7,10] {size=[6,5]}; "
    "f32[2,4,4,4], f32[3,2,3,4] {stride=[2,3], pad=[1,0,2,1], dilation=[2,1], groups=2, size=[9,10]}; "
    "f32[1,1,65,2], f32[1,3,1,2] {pad=[0,1,0,1], size=[1,65]}; f32[67,2,1,5], f32[2,2,3,5] {size=[3,2]}; "
    "f32[3,7,8,130], f32[3,3,19,130] {pad=[1,0,1,1], size=[7,9]}; "
    "f32[1,2,3,32], f32[3,3,7,32], f32[1,4,5,7] {size=[4,5], epilogue=\"mask\"}; "
    "f32[2,14,14,24], f32[3,3,16,24] {pad=[1,1,1,1], size=[14,14]}; "
    "f32[2,9,13,32], f32[3,3,16,32], f32[2,9,13,16] {pad=[1,1,1,1], size=[9,13], epilogue=\"mask\"}; "
    "f32[2,7,3,20], f32[3,3,12,20] {pad=[1,0,1,0], size=[7,5]}; "
    "f32[2,9,11,5], f32[3,3,1,5] {pad=[1,2,1,2], dilation=[1,2], groups=5, size=[9,11]}; "
    "f32[1,4,35,5], f32[3,3,1,5] {pad=[1,1,1,1], groups=5, size=[4,35]}; "
    "f32[1,2,33,17], f32[3,3,1,17] {pad=[0,2,1,0], groups=17, size=[3,33]}; "
    "f32[1,3,35,3], f32[3,3,1,3], f32[1,5,70,3] {stride=[2,2], pad=[1,1,1,1], groups=3, size=[5,70], "
    "epilogue=\"mask\"}; "
    "f32[1,2,35,4], f32[3,3,1,4] {stride=[2,2], pad=[2,0,0,2], groups=4, size=[3,69]}; "
    "f32[19,5,8,7], f32[3,2,2,7] {pad=[0,1,2,1], dilation=[1,2], size=[5,8]}; "
    "f32[1,2,3,4180], f32[2,2,3,4180] {pad=[1,0,0,1], size=[2,3]}; "
    "f32[1,4,5,8], f32[3,3,3,8], f32[3] {pad=[1,1,1,1], size=[4,5], epilogue=\"bias\"}; "
    "f32[2,3,4,6], f32[2,2,2,6] {stride=[2,1], pad=[0,1,1,0], groups=2, size=[5,4], epilogue=\"relu\"}; "
    "f32[1,3,3,9]*6, f32[1,1,5,9] {size=[3,3], epilogue=\"relu6\"}; "
    "f32[1,4,5,8], f32[3,3,3,8], f32[1,4,5,3] {pad=[1,1,1,1], size=[4,5], epilogue=\"residual\"}; "
    "f32[2,3,4,6], f32[2,2,2,6], f32[2,5,4,4] {stride=[2,1], pad=[0,1,1,0], groups=2, size=[5,4], epilogue=\"mask\"}; "
    "f32[1,3,3,9], f32[1,1,5,9], f32[5] {size=[3,3], epilogue=\"bias+relu\"}; "
    "f32[1,4,5,8]*6, f32[3,3,3,8], f32[3] {pad=[1,1,1,1], size=[4,5], epilogue=\"bias+relu6\"}; "
    "f32[2,3,4,6], f32[2,2,2,6], f32[4], f32[2,5,4,4] {stride=[2,1], pad=[0,1,1,0], groups=2, size=[5,4], "
    "epilogue=\"bias+residual+relu\"}; "
    "f32[1,3,3,9], f32[1,1,5,9], f32[1,3,3,5] {size=[3,3], epilogue=\"relu+residual\"}; "
    "f32[1,4,5,8], f32[3,3,3,8], f32[1,4,5,3], f32[1,4,5,3] {pad=[1,1,1,1], size=[4,5], epilogue=\"residual+mask\"}; "
    "f32[18,4,5,6], f32[3,3,5,6], f32[18,4,5,5] {pad=[1,1,1,1], size=[4,5], epilogue=\"relu6+residual\"}; "
    "f32[1,4,5,8], f32[3,3,3,8], f32[1,4,5,3]*8 {pad=[1,1,1,1], size=[4,5], epilogue=\"mask6\"}; "
    "f32[2,3,4,9], f32[3,3,1,9], f32[2,5,7,9]*8 {stride=[2,2], pad=[1,1,1,1], groups=9, size=[5,7], "
    "epilogue=\"mask6\"}; "
    "f32[2,5,4,18], f32[3,3,1,18], f32[2,5,4,18]*8 {pad=[1,1,1,1], groups=18, size=[5,4], epilogue=\"mask6\"}; "
    "f32[3,7,9,16], f32[3,3,32,16], f32[3,7,9,32] {pad=[1,1,1,1], size=[7,9], epilogue=\"mask\"}; "
    "f32[2,5,6,32], f32[3,3,16,32] {pad=[1,1,1,1], size=[5,6]}; "
    "f32[1,29,28,16], f32[3,3,5,16] {pad=[1,1,1,1], size=[29,28]}; "
    "f32[2,8,9,65], f32[3,3,5,65] {pad=[1,2,2,2], size=[7,7]}; "
    "f32[19,6,4,16], f32[5,5,6,16] {size=[10,8]}; f32[5,4,6,16], f32[5,5,8,16] {pad=[1,1,1,1], size=[6,8]}; "
    "f32[64,3,3,3], f32[2,2,2,3] {pad=[0,1,1,0], size=[3,3]}";

constexpr std::string_view kDwExamples =
    "f32[1,3,3,1], f32[1,1,1,1] {kernel=[3,3]}; f32[2,5,7,3], f32[2,5,7,9] {kernel=[1,1]}; "
    "f32[1,7,9,3], f32[1,7,9,8] {pad=[1,1,1,1], kernel=[3,3]}; "
    "f32[2,12,12,1], f32[2,12,12,6] {pad=[2,2,2,2], kernel=[5,5]}; f32[1,14,14,6], f32[1,10,10,16] {kernel=[5,5]}; "
    "f32[2,9,8,5], f32[2,5,4,7] {stride=[2,2], pad=[1,1,1,1], kernel=[3,3]}; "
    "f32[1,6,5,3], f32[1,3,7,4] {stride=[2,1], pad=[0,1,1,2], kernel=[3,2]}; "
    "f32[1,9,11,4], f32[1,9,11,9] {pad=[2,3,2,3], dilation=[2,3], kernel=[3,3]}; "
    "f32[2,6,6,8], f32[2,6,6,6] {pad=[1,1,1,1], groups=2, kernel=[3,3]}; "
    "f32[2,7,7,9], f32[2,4,4,9] {stride=[2,2], pad=[1,1,1,1], groups=9, kernel=[3,3]}; "
    "f32[1,5,5,3], f32[1,3,3,6] {groups=3, kernel=[3,3]}; f32[1,8,9,3], f32[1,3,2,5] {stride=[3,4], kernel=[2,2]}; "
    "f32[1,2,2,3], f32[1,4,4,4] {pad=[1,1,1,1], kernel=[1,1]}; "
    "f32[17,4,4,15], f32[17,2,2,17] {stride=[2,2], kernel=[1,1]}; "
    "f32[1,5,6,17], f32[1,5,6,33] {pad=[1,1,1,1], kernel=[3,3]}; f32[3,6,5,7], f32[3,1,1,10] {kernel=[6,5]}; "
    "f32[2,9,10,6], f32[2,4,4,4] {stride=[2,3], pad=[1,0,2,1], dilation=[2,1], groups=2, kernel=[3,2]}; "
    "f32[1,1,65,1], f32[1,1,65,2] {pad=[0,1,0,1], kernel=[1,3]}; "
    "f32[3,15,14,9], f32[3,15,13,18] {pad=[1,0,1,1], kernel=[3,3]}; "
    "f32[2,7,5,12], f32[2,7,3,20] {pad=[1,0,1,0], kernel=[3,3]}; "
    "f32[2,9,11,5], f32[2,9,11,5] {pad=[1,2,1,2], dilation=[1,2], groups=5, kernel=[3,3]}; "
    "f32[1,4,35,5], f32[1,4,35,5] {pad=[1,1,1,1], groups=5, kernel=[3,3]}; "
    "f32[1,5,70,17], f32[1,3,35,17] {stride=[2,2], pad=[1,1,1,1], groups=17, kernel=[3,3]}; "
    "f32[19,6,7,2], f32[19,4,4,7] {stride=[1,2], pad=[0,1,2,1], dilation=[2,2], kernel=[3,2]}; "
    "f32[2,14,14,16], f32[2,14,14,24] {pad=[1,1,1,1], kernel=[3,3]}; "
    "f32[3,11,14,32], f32[3,11,14,16] {pad=[1,1,1,1], kernel=[3,3]}; "  // whole vectors, tiles beyond the image
    "f32[2,13,17,80], f32[2,12,16,48] {pad=[0,1,1,0], kernel=[3,3]}; "
    "f32[1,33,32,9], f32[1,33,32,18] {pad=[1,1,1,1], kernel=[3,3]}; "
    "f32[19,9,7,6], f32[19,5,3,7] {kernel=[5,5]}; f32[13,7,8,8], f32[13,5,6,9] {pad=[1,1,1,1], kernel=[5,5]}; "
    "f32[64,3,3,1], f32[64,3,3,3] {pad=[0,1,1,0], kernel=[2,2]}; "
    "f32[2,28,28,16], f32[2,28,28,24] {kernel=[1,1]}";  // enough pixels for parts

}  // namespace

OpList conv2d() {
  static constexpr OpDef defs[] = {{.name = "conv2d",
                                    .signature = "(x: float, w: float, epilogue operands: float...) -> y",
                                    .type = forward_type,
                                    .grad = forward_gradient,
                                    .cost = forward_cost,
                                    .reference = reference<forward_products>,
                                    .magnitude = magnitude<forward_products>,
                                    .examples = kForwardExamples},
                                   {.name = "conv2d_dx",
                                    .signature = "(dy: float, w: float, epilogue operands: float...) -> dx",
                                    .type = dx_type,
                                    .grad = dx_gradient,
                                    .cost = dx_cost,
                                    .reference = reference<dx_products>,
                                    .magnitude = magnitude<dx_products>,
                                    .examples = kDxExamples},
                                   {.name = "conv2d_dw",
                                    .signature = "(x: float, dy: float) -> dw",
                                    .type = dw_type,
                                    .grad = dw_gradient,
                                    .cost = dw_cost,
                                    .reference = dw_reference,
                                    .examples = kDwExamples}};
  return defs;
}
}  // namespace situ::ops::defs
