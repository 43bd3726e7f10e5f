// pool.cpp -- maximum and average over windows of a channels-last image, and their gradients.
//   max: padding never wins; the gradient goes to the first maximum of the window in row-major order, and may have an
//   epilogue (ops/epilogue.h): the mask of the activation before the pooling
//   avg: divided by the elements inside the image, or by the whole window with count_pad=1
#include <cmath>

#include "ops/epilogue.h"
#include "ops/window.h"

namespace situ::ops::defs {
namespace {

Window pool_window(const Attrs& attrs, const Ints& size) {
  const Window w = window_of(attrs, size, attrs.ints("kernel"));
  for (const WindowAxis& a : {w.y, w.x}) {
    need(a.dilation == 1, "pooling has no dilation");
    need(a.before < a.kernel && a.after < a.kernel,
         "padding must be smaller than the kernel, or a window holds nothing");
  }
  return w;
}
Window window_over(const Attrs& attrs, const Shape& x) { return pool_window(attrs, {x[1], x[2]}); }
Shape pooled(const Window& w, const Shape& x) { return {x[0], w.y.out, w.x.out, x[3]}; }

void need_image(const Type& t) { need(t.dtype == DType::f32 && t.shape.rank() == 4, "images are f32[N,H,W,C]"); }
void need_one_image(const OpView& v) {
  if (v.arity() != 1) fail("one operand is needed, not {}", v.arity());
  need_image(v.in(0));
}
void need_pooled(const Window& w, const Shape& x, const Shape& dy) {
  if (dy != pooled(w, x)) fail("dy must be {}, the pooled shape, not {}", to_string(pooled(w, x)), to_string(dy));
}

Types forward_type(const OpView& v) {
  need_one_image(v);
  const Shape& x = v.in(0).shape;
  return {f32(pooled(window_over(v.attrs, x), x))};
}
Types max_grad_type(const OpView& v) {
  need(v.arity() >= 2, "x and dy are needed");
  for (int i = 0; i < 2; ++i) need_image(v.in(i));
  const Shape& x = v.in(0).shape;
  need_pooled(window_over(v.attrs, x), x, v.in(1).shape);
  check_epilogue(v, 2, v.in(0));
  return {v.in(0)};
}
Types avg_grad_type(const OpView& v) {
  need_one_image(v);
  const Shape& dy = v.in(0).shape;
  const Ints& size = v.attrs.ints("size");
  need(size.size() == 2, "`size` needs two numbers, the height and width of x");
  const Shape x{dy[0], size[0], size[1], dy[3]};
  need_pooled(pool_window(v.attrs, size), x, dy);
  return {f32(x)};
}

void max_gradient(GradBuilder& g) {
  if (g.wants(0)) g.add(0, g.emit("max_pool_grad", {g.in(0), g.dout(0)}, g.attrs()));
}
void avg_gradient(GradBuilder& g) {
  if (!g.wants(0)) return;
  const Shape x = g.type(g.in(0)).shape;
  Attrs attrs = g.attrs();
  g.add(0, g.emit("avg_pool_grad", {g.dout(0)}, attrs.set("size", Ints{x[1], x[2]})));
}
void avg_grad_gradient(GradBuilder& g) {
  if (!g.wants(0)) return;
  Attrs attrs = g.attrs();
  attrs.erase("size");
  g.add(0, g.emit("avg_pool", {g.dout(0)}, attrs));
}

Cost window_cost(const Attrs& attrs, const Type& y) {
  const Ints& kernel = attrs.ints("kernel");
  return {.flops = static_cast<double>(y.count()) * static_cast<double>(kernel[0] * kernel[1])};
}
Cost forward_cost(const OpView& v) { return window_cost(v.attrs, v.out(0)); }
Cost max_grad_cost(const OpView& v) { return window_cost(v.attrs, v.in(1)); }
Cost avg_grad_cost(const OpView& v) { return window_cost(v.attrs, v.in(0)); }

// Calls visit(index in y, the indices in x of the window's real elements in row-major order).
void each_window(const Window& w, const Shape& x, auto visit) {
  std::vector<int64_t> elements;
  for (int64_t n = 0, k = 0; n < x[0]; ++n)
    for (int64_t p = 0; p < w.y.out; ++p)
      for (int64_t q = 0; q < w.x.out; ++q)
        for (int64_t c = 0; c < x[3]; ++c, ++k) {
          const Taps rows = w.y.taps_inside(p), cols = w.x.taps_inside(q);
          elements.clear();
          for (int64_t r = rows.begin; r < rows.end; ++r)
            for (int64_t s = cols.begin; s < cols.end; ++s)
              elements.push_back(((n * x[1] + w.y.position(p, r)) * x[2] + w.x.position(q, s)) * x[3] + c);
          visit(k, elements);
        }
}

int64_t first_maximum(const RefTensor& x, const std::vector<int64_t>& elements) {
  int64_t best = elements[0];
  for (int64_t i : elements)
    if (x[i] > x[best]) best = i;
  return best;
}
double divisor(const Attrs& attrs, const Window& w, size_t inside) {
  return static_cast<double>(attrs.flag("count_pad") ? w.y.kernel * w.x.kernel : static_cast<int64_t>(inside));
}

void max_reference(const RefCall& c) {
  const RefTensor &x = c.in[0], &y = c.out[0];
  each_window(window_over(c.attrs, x.shape()), x.shape(),
              [&](int64_t k, const std::vector<int64_t>& elements) { y[k] = x[first_maximum(x, elements)]; });
}
// part = identity for the reference, fabs for the magnitude: where the maximum lies depends on the signs of x.
template <double (*part)(double)>
void route_to_maxima(const RefCall& c) {
  const RefTensor &x = c.in[0], &dy = c.in[1], &dx = c.out[0];
  std::fill_n(dx.data, dx.count(), 0.0);
  each_window(window_over(c.attrs, x.shape()), x.shape(),
              [&](int64_t k, const std::vector<int64_t>& elements) { dx[first_maximum(x, elements)] += part(dy[k]); });
}
double same(double v) { return v; }
double absolute(double v) { return std::fabs(v); }
void max_grad_reference(const RefCall& c) {
  route_to_maxima<same>(c);
  reference_epilogue(c, 2, c.out[0]);
}
void max_grad_magnitude(const RefCall& c) {
  route_to_maxima<absolute>(c);
  magnitude_epilogue(c, 2, c.out[0]);
}

void avg_reference(const RefCall& c) {
  const RefTensor &x = c.in[0], &y = c.out[0];
  const Window w = window_over(c.attrs, x.shape());
  each_window(w, x.shape(), [&](int64_t k, const std::vector<int64_t>& elements) {
    y[k] = 0;
    for (int64_t i : elements) y[k] += x[i] / divisor(c.attrs, w, elements.size());
  });
}
void avg_grad_reference(const RefCall& c) {
  const RefTensor &dy = c.in[0], &dx = c.out[0];
  const Window w = window_over(c.attrs, dx.shape());
  std::fill_n(dx.data, dx.count(), 0.0);
  each_window(w, dx.shape(), [&](int64_t k, const std::vector<int64_t>& elements) {
    for (int64_t i : elements) dx[i] += dy[k] / divisor(c.attrs, w, elements.size());
  });
}

constexpr std::string_view kMaxExamples =
    "f32[1,1,1,1] {kernel=[1,1]}; f32[1,2,2,1] {kernel=[2,2], stride=[2,2]}; "
    "f32[2,8,8,6] {kernel=[2,2], stride=[2,2]}; f32[2,9,7,17] {kernel=[2,2], stride=[2,2]}; "
    "f32[1,7,9,8] {kernel=[3,3], stride=[2,2], pad=[1,1,1,1]}; "
    "f32[2,6,5,3] {kernel=[3,2], stride=[1,1], pad=[0,1,2,0]}; "
    "f32[1,6,5,3] {kernel=[3,2], stride=[2,3], pad=[2,0,1,1]}; f32[1,8,9,5] {kernel=[2,2], stride=[3,4]}; "
    "f32[3,5,6,15] {kernel=[5,6]}; f32[1,4,33,1] {kernel=[1,3], stride=[1,2], pad=[0,1,0,1]}; "
    "f32[2,14,14,16] {kernel=[3,3], pad=[1,1,1,1]}; f32[1,3,3,65] {kernel=[2,2], pad=[1,1,1,1]}";

constexpr std::string_view kMaxGradExamples =  // two hold ties
    "f32[1,1,1,1], f32[1,1,1,1] {kernel=[1,1]}; f32[1,2,2,1], f32[1,1,1,1] {kernel=[2,2], stride=[2,2]}; "
    "f32[2,8,8,6], f32[2,4,4,6] {kernel=[2,2], stride=[2,2]}; "
    "f32[2,9,7,17], f32[2,4,3,17] {kernel=[2,2], stride=[2,2]}; "
    "f32[1,7,9,8], f32[1,4,5,8] {kernel=[3,3], stride=[2,2], pad=[1,1,1,1]}; "
    "f32[2,6,5,3], f32[2,6,5,3] {kernel=[3,2], stride=[1,1], pad=[0,1,2,0]}; "
    "f32[1,6,5,3], f32[1,4,2,3] {kernel=[3,2], stride=[2,3], pad=[2,0,1,1]}; "
    "f32[1,8,9,5], f32[1,3,2,5] {kernel=[2,2], stride=[3,4]}; f32[3,5,6,15], f32[3,1,1,15] {kernel=[5,6]}; "
    "f32[1,4,33,1], f32[1,4,17,1] {kernel=[1,3], stride=[1,2], pad=[0,1,0,1]}; "
    "f32[2,14,14,16], f32[2,14,14,16] {kernel=[3,3], pad=[1,1,1,1]}; "
    "f32[1,3,3,65], f32[1,4,4,65] {kernel=[2,2], pad=[1,1,1,1]}; "
    "f32[2,7,6,5]<3, f32[2,4,6,5] {kernel=[3,3], stride=[2,1], pad=[1,1,1,1]}; "
    "f32[1,6,6,8]=0, f32[1,3,3,8] {kernel=[2,2], stride=[2,2]}; "
    "f32[2,4,6,6], f32[2,2,3,6], f32[2,4,6,6] {kernel=[2,2], stride=[2,2], epilogue=\"mask\"}; "
    "f32[1,9,7,17], f32[1,5,3,17], f32[17], f32[1,9,7,17] {kernel=[2,2], stride=[2,3], pad=[1,0,0,1], "
    "epilogue=\"bias+mask\"}; "
    "f32[2,7,6,5], f32[2,4,6,5], f32[2,7,6,5], f32[2,7,6,5] {kernel=[3,3], stride=[2,1], pad=[1,1,1,1], "
    "epilogue=\"residual+mask\"}; "
    "f32[1,5,5,3]*6, f32[1,2,2,3], f32[3] {kernel=[2,2], stride=[2,2], epilogue=\"bias+relu6\"}";

constexpr std::string_view kAvgExamples =
    "f32[1,1,1,1] {kernel=[1,1]}; f32[1,2,2,1] {kernel=[2,2], stride=[2,2]}; "
    "f32[2,8,8,6] {kernel=[2,2], stride=[2,2]}; f32[2,9,7,17] {kernel=[2,2], stride=[2,2], count_pad=1}; "
    "f32[1,7,9,8] {kernel=[3,3], stride=[2,2], pad=[1,1,1,1]}; "
    "f32[1,7,9,8] {kernel=[3,3], stride=[2,2], pad=[1,1,1,1], count_pad=1}; "
    "f32[2,6,5,3] {kernel=[3,2], stride=[1,1], pad=[0,1,2,0]}; "
    "f32[1,6,5,3] {kernel=[3,2], stride=[2,3], pad=[2,0,1,1], count_pad=1}; "
    "f32[1,8,9,5] {kernel=[2,2], stride=[3,4]}; f32[3,5,6,15] {kernel=[5,6]}; "
    "f32[1,4,33,1] {kernel=[1,3], stride=[1,2], pad=[0,1,0,1]}; f32[2,14,14,16] {kernel=[3,3], pad=[1,1,1,1]}; "
    "f32[1,3,3,65] {kernel=[2,2], pad=[1,1,1,1], count_pad=1}";

constexpr std::string_view kAvgGradExamples =
    "f32[1,1,1,1] {kernel=[1,1], size=[1,1]}; f32[1,1,1,1] {kernel=[2,2], stride=[2,2], size=[2,2]}; "
    "f32[2,4,4,6] {kernel=[2,2], stride=[2,2], size=[8,8]}; "
    "f32[2,4,3,17] {kernel=[2,2], stride=[2,2], count_pad=1, size=[9,7]}; "
    "f32[1,4,5,8] {kernel=[3,3], stride=[2,2], pad=[1,1,1,1], size=[7,9]}; "
    "f32[1,4,5,8] {kernel=[3,3], stride=[2,2], pad=[1,1,1,1], count_pad=1, size=[7,9]}; "
    "f32[2,6,5,3] {kernel=[3,2], stride=[1,1], pad=[0,1,2,0], size=[6,5]}; "
    "f32[1,4,2,3] {kernel=[3,2], stride=[2,3], pad=[2,0,1,1], count_pad=1, size=[6,5]}; "
    "f32[1,3,2,5] {kernel=[2,2], stride=[3,4], size=[8,9]}; f32[3,1,1,15] {kernel=[5,6], size=[5,6]}; "
    "f32[1,4,17,1] {kernel=[1,3], stride=[1,2], pad=[0,1,0,1], size=[4,33]}; "
    "f32[2,14,14,16] {kernel=[3,3], pad=[1,1,1,1], size=[14,14]}; "
    "f32[1,4,4,65] {kernel=[2,2], pad=[1,1,1,1], count_pad=1, size=[3,3]}";

}  // namespace

OpList pool() {
  static constexpr OpDef defs[] = {{.name = "max_pool",
                                    .signature = "(x: float) -> y",
                                    .type = forward_type,
                                    .grad = max_gradient,
                                    .cost = forward_cost,
                                    .reference = max_reference,
                                    .examples = kMaxExamples},
                                   {.name = "max_pool_grad",
                                    .signature = "(x: float, dy: float, epilogue operands: float...) -> dx",
                                    .type = max_grad_type,
                                    .cost = max_grad_cost,
                                    .reference = max_grad_reference,
                                    .magnitude = max_grad_magnitude,
                                    .examples = kMaxGradExamples},
                                   {.name = "avg_pool",
                                    .signature = "(x: float) -> y",
                                    .type = forward_type,
                                    .grad = avg_gradient,
                                    .cost = forward_cost,
                                    .reference = avg_reference,
                                    .examples = kAvgExamples},
                                   {.name = "avg_pool_grad",
                                    .signature = "(dy: float) -> dx",
                                    .type = avg_grad_type,
                                    .grad = avg_grad_gradient,
                                    .cost = avg_grad_cost,
                                    .reference = avg_grad_reference,
                                    .examples = kAvgGradExamples}};
  return defs;
}
}  // namespace situ::ops::defs
