// upsample.cpp -- images [N, H, W, C] made larger by whole factors, and the gradient of that, its transpose.
//   nearest: each pixel repeated     bilinear: between pixel centres (PyTorch's align_corners=False)
#include <algorithm>
#include <cmath>

#include "ops/op.h"

namespace situ::ops::defs {
namespace {

void need_images(const OpView& v) {
  need(v.arity() == 1 && v.in(0).dtype == DType::f32 && v.in(0).shape.rank() == 4, "x must be f32[N, H, W, C]");
  const Ints& factor = v.attrs.ints("factor");
  need(factor.size() == 2 && factor[0] >= 1 && factor[1] >= 1, "`factor` must be two positive numbers: [fy, fx]");
  const std::string& mode = v.attrs.text("mode");
  if (mode != "nearest" && mode != "bilinear") fail("`{}` is no mode of upsampling: use nearest or bilinear", mode);
}
Types type(const OpView& v) {
  need_images(v);
  Shape shape = v.in(0).shape;
  for (int i : {1, 2}) shape[i] *= v.attrs.ints("factor")[static_cast<size_t>(i - 1)];
  return {f32(shape)};
}
Types grad_type(const OpView& v) {
  need_images(v);
  Shape shape = v.in(0).shape;
  for (int i : {1, 2}) {
    const int64_t factor = v.attrs.ints("factor")[static_cast<size_t>(i - 1)];
    if (shape[i] % factor) fail("axis {} of {} is no multiple of its factor {}", i, shape[i], factor);
    shape[i] /= factor;
  }
  return {f32(shape)};
}

void gradient(GradBuilder& g) {
  if (g.wants(0)) g.add(0, g.emit("upsample_grad", {g.dout(0)}, g.attrs()));
}
void grad_gradient(GradBuilder& g) {
  if (g.wants(0)) g.add(0, g.emit("upsample", {g.dout(0)}, g.attrs()));
}

Cost cost(const OpView& v) {
  const double large = static_cast<double>(std::max(v.in(0).count(), v.out(0).count()));
  return {.flops = (v.attrs.text("mode") == "bilinear" ? 8 : 1) * large};
}

// How much element i of an axis of `size` weighs in element o of the enlarged one.
double weight(int64_t o, int64_t i, int64_t size, int64_t factor, bool bilinear) {
  if (!bilinear) return i == o / factor ? 1 : 0;
  const double centre = (static_cast<double>(o) + 0.5) / static_cast<double>(factor) - 0.5;
  const double place = std::clamp(centre, 0.0, static_cast<double>(size - 1));
  return std::max(0.0, 1 - std::fabs(place - static_cast<double>(i)));
}

// Calls visit(element of the small images, element of the large ones, weight).
void each_tap(const Shape& small, const Attrs& attrs, auto visit) {
  const Ints& factor = attrs.ints("factor");
  const bool bilinear = attrs.text("mode") == "bilinear";
  const int64_t h = small[1], w = small[2], c = small[3], large_h = h * factor[0], large_w = w * factor[1];
  for (int64_t from = 0; from < small[0] * h * w; ++from)
    for (int64_t ly = 0; ly < large_h; ++ly) {
      const double wy = weight(ly, from / w % h, h, factor[0], bilinear);
      for (int64_t lx = 0; wy > 0 && lx < large_w; ++lx) {
        const double both = wy * weight(lx, from % w, w, factor[1], bilinear);
        const int64_t to = (from / (h * w) * large_h + ly) * large_w + lx;
        for (int64_t k = 0; both > 0 && k < c; ++k) visit(from * c + k, to * c + k, both);
      }
    }
}
void reference(const RefCall& c) {
  const RefTensor &x = c.in[0], &y = c.out[0];
  std::fill_n(y.data, y.count(), 0.0);
  each_tap(x.shape(), c.attrs, [&](int64_t small, int64_t large, double w) { y[large] += w * x[small]; });
}
void grad_reference(const RefCall& c) {
  const RefTensor &dy = c.in[0], &dx = c.out[0];
  std::fill_n(dx.data, dx.count(), 0.0);
  each_tap(dx.shape(), c.attrs, [&](int64_t small, int64_t large, double w) { dx[small] += w * dy[large]; });
}

constexpr std::string_view kExamples =
    "f32[1,2,3,4] {factor=[2,2], mode=\"nearest\"}; f32[2,3,2,1] {factor=[2,2], mode=\"bilinear\"}; f32[1,1,1,3] "
    "{factor=[3,2], mode=\"bilinear\"}; f32[1,4,5,7] {factor=[1,3], mode=\"bilinear\"}; f32[2,3,3,17] {factor=[2,1], "
    "mode=\"nearest\"}; f32[1,5,4,9] {factor=[4,3], mode=\"bilinear\"}; f32[2,3,4,33] {factor=[2,2], "
    "mode=\"bilinear\"}; f32[1,3,2,8] {factor=[5,4], mode=\"nearest\"}; f32[1,1,6,65] {factor=[2,2], "
    "mode=\"bilinear\"}; f32[1,2,2,5] {factor=[1,1], mode=\"bilinear\"}";
constexpr std::string_view kGradExamples =
    "f32[1,4,6,4] {factor=[2,2], mode=\"nearest\"}; f32[2,6,4,1] {factor=[2,2], mode=\"bilinear\"}; f32[1,3,2,3] "
    "{factor=[3,2], mode=\"bilinear\"}; f32[1,4,15,7] {factor=[1,3], mode=\"bilinear\"}; f32[2,6,3,17] {factor=[2,1], "
    "mode=\"nearest\"}; f32[1,20,12,9] {factor=[4,3], mode=\"bilinear\"}; f32[2,6,8,33] {factor=[2,2], "
    "mode=\"bilinear\"}; f32[1,15,8,8] {factor=[5,4], mode=\"nearest\"}; f32[1,2,12,65] {factor=[2,2], "
    "mode=\"bilinear\"}";

}  // namespace

OpList upsample() {
  static constexpr OpDef defs[] = {{.name = "upsample",
                                    .signature = "(x: float) -> y",
                                    .type = type,
                                    .grad = gradient,
                                    .cost = cost,
                                    .reference = reference,
                                    .examples = kExamples},
                                   {.name = "upsample_grad",
                                    .signature = "(dy: float) -> dx",
                                    .type = grad_type,
                                    .grad = grad_gradient,
                                    .cost = cost,
                                    .reference = grad_reference,
                                    .examples = kGradExamples}};
  return defs;
}
}  // namespace situ::ops::defs
