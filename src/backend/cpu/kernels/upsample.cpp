// upsample.cpp -- images made larger, nearest or bilinear, and the gradient: y = sum over taps of weight * x.
//
// Both are the same loop with other taps (ops/resample.h), those of rows and columns multiplied. A task is a line of y.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels/upsample.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <memory>

#include "backend/cpu/columns.h"
#include "backend/cpu/simd-inl.h"
#include "ops/resample.h"

#ifndef SITU_BACKEND_CPU_UPSAMPLE_ONCE_
#define SITU_BACKEND_CPU_UPSAMPLE_ONCE_
namespace situ::cpu {
namespace {
struct FloatTaps {
  int64_t first = 0;
  std::vector<float> weights;
};
struct Resample {
  Matrix x, y;
  int64_t h = 0, w = 0, cols = 0;  // of x
  std::vector<FloatTaps> lines, pixels;
};
}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

// One pixel: x points at its first tap.
HWY_INLINE void resample_pixel(const Resample& r, const FloatTaps& ty, const FloatTaps& tx, const float* x, float* y) {
  for (int64_t c = 0; c < r.cols; c += lanes()) {
    Floats sum = zeros();
    for (size_t a = 0; a < ty.weights.size(); ++a) {
      const float* line = x + static_cast<int64_t>(a) * r.w * r.x.pitch + c;
      Floats part = zeros();
      for (size_t b = 0; b < tx.weights.size(); ++b)
        part =
            hn::MulAdd(load_up_to(line + static_cast<int64_t>(b) * r.x.pitch, r.cols - c), fill(tx.weights[b]), part);
      sum = hn::MulAdd(part, fill(ty.weights[a]), sum);
    }
    store_up_to(sum, y + c, r.cols - c);
  }
}

void resample_line(const Resample& r, int64_t task) {
  const auto height = static_cast<int64_t>(r.lines.size()), width = static_cast<int64_t>(r.pixels.size());
  const int64_t image = task / height;
  const FloatTaps& ty = r.lines[static_cast<size_t>(task % height)];
  for (int64_t p = 0; p < width; ++p) {
    const FloatTaps& tx = r.pixels[static_cast<size_t>(p)];
    const float* x = r.x.at((image * r.h + ty.first) * r.w + tx.first, 0);
    resample_pixel(r, ty, tx, x, r.y.at(task * width + p, 0));
  }
}

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(resample_line);

std::vector<FloatTaps> taps_of(const Call& call, int axis) {
  std::vector<FloatTaps> list;
  for (const ops::WeightedTaps& t : ops::resample_taps(call.attrs, call.in[0].shape(), call.out[0].shape(), axis)) {
    list.push_back({t.first, {}});
    for (double weight : t.weights) list.back().weights.push_back(static_cast<float>(weight));
  }
  return list;
}

Work bind_resample(const Call& call) {
  const Operand &x = call.in[0], &y = call.out[0];
  auto r = std::make_shared<Resample>();
  r->x = Matrix(x);
  r->y = Matrix(y);
  r->h = x.shape()[1];
  r->w = x.shape()[2];
  r->cols = x.cols();
  r->lines = taps_of(call, 1);
  r->pixels = taps_of(call, 2);
  const auto run = &HWY_DYNAMIC_DISPATCH(resample_line);
  return {y.shape()[0] * y.shape()[1], [r, run](int64_t task) { run(*r, task); }};
}

}  // namespace

namespace kernels {
KernelList upsample() {
  static constexpr Kernel kernels[] = {{"upsample", bind_resample}, {"upsample_grad", bind_resample}};
  return {kernels, {}};
}
}  // namespace kernels
}  // namespace situ::cpu
#endif
