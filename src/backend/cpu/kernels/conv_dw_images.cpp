// conv_dw_images.cpp -- the weight gradient of a convolution with few results, images in the lanes.
//
//   conv2d_dw_images   dw[r,s,c,o] = sum over pixels q, images n:  x[q at tap (r,s), c, n] * dy[q, o, n]
//                      splits as conv2d_dw; with `sums`, sums[split, o] = sum over the split's pixels of dy, too
//
// x and dy come side by side (interleave.cpp), x with the zeros around it, so a window never leaves the image. A tile
// is six results (three where there are 16 registers) by four rows (r,s,c) of dw, a vector of images each; lanes are
// added at the end.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels/conv_dw_images.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <algorithm>
#include <memory>

#include "backend/cpu/conv_splits.h"
#include "backend/cpu/kernel.h"
#include "backend/cpu/sheaves.h"
#include "backend/cpu/simd-inl.h"
#include "ops/window.h"

#ifndef SITU_BACKEND_CPU_CONV_DW_IMAGES_ONCE_
#define SITU_BACKEND_CPU_CONV_DW_IMAGES_ONCE_
namespace situ::cpu {
namespace {
struct ImagesDw {
  const float *x = nullptr, *dy = nullptr;
  float *dw = nullptr, *sums = nullptr;
  int64_t images = 0, results = 0, dw_pitch = 0;
  int64_t lines = 0, of_image = 0, pixels = 0;  // of dy: lines of all sheaves and of one, and pixels in a line
  int64_t x_sheaf = 0;
  int64_t x_line = 0, x_pixel = 0;  // elements of x from line to line of dy, and from pixel to pixel
  int64_t splits = 1;
  std::vector<int64_t> from = {};  // of the rows (r,s,c) of dw, elements of x from a pixel's first tap
};
struct Range {
  int64_t first = 0, last = 0;
};
}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

// Sums are named, c<result><row>: vectors of unknown length fit no array.
#define SITU_ROW(DO, i) DO(i, 0) DO(i, 1) DO(i, 2) DO(i, 3)
#if SITU_FEW_REGISTERS
constexpr int64_t kTileResults = 3;
#define SITU_RESULTS(DO) DO(0) DO(1) DO(2)
#else
constexpr int64_t kTileResults = 6;
#define SITU_RESULTS(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5)
#endif
constexpr int64_t kTileRows = 4;
#define SITU_CLEAR(i, j) Floats c##i##j = zeros();
#define SITU_CLEAR_RESULT(i)                                        \
  const int64_t at##i = std::min(o0 + i, d.results - 1) * d.images; \
  SITU_ROW(SITU_CLEAR, i)
#define SITU_MULADD(i, j) c##i##j = hn::MulAdd(a, b##j, c##i##j);
#define SITU_MULADD_RESULT(LOAD, i)    \
  {                                    \
    const Floats a = LOAD(dy + at##i); \
    SITU_ROW(SITU_MULADD, i)           \
  }
#define SITU_PUT(i, j) \
  if (o0 + i < d.results && k0 + j < rows) dw[(k0 + j) * d.dw_pitch + o0 + i] = sum_lanes(c##i##j);
#define SITU_PUT_RESULT(i) SITU_ROW(SITU_PUT, i)
#define SITU_STEP(LOAD, MULADD)                                                                          \
  {                                                                                                      \
    const Floats b0 = LOAD(x + from0), b1 = LOAD(x + from1), b2 = LOAD(x + from2), b3 = LOAD(x + from3); \
    SITU_RESULTS(MULADD)                                                                                 \
  }
#define SITU_WHOLE(p) hn::LoadU(Tag(), (p) + n)
#define SITU_PART(p) load_part((p) + n, d.images - n)
#define SITU_MULADD_WHOLE(i) SITU_MULADD_RESULT(SITU_WHOLE, i)
#define SITU_MULADD_PART(i) SITU_MULADD_RESULT(SITU_PART, i)

void run_tile(const ImagesDw& d, Range lines, int64_t k0, int64_t o0, float* dw) {
  const int64_t rows = static_cast<int64_t>(d.from.size());
  const auto from = [&](int64_t j) { return d.from[static_cast<size_t>(std::min(k0 + j, rows - 1))]; };
  const int64_t from0 = from(0), from1 = from(1), from2 = from(2), from3 = from(3);
  const int64_t whole = d.images / lanes() * lanes();
  SITU_RESULTS(SITU_CLEAR_RESULT)
  for (int64_t line = lines.first; line < lines.last; ++line) {
    const float *x = d.x + line / d.of_image * d.x_sheaf + line % d.of_image * d.x_line,
                *dy = d.dy + line * d.pixels * d.results * d.images;
    for (int64_t p = 0; p < d.pixels; ++p, x += d.x_pixel, dy += d.results * d.images) {
      int64_t n = 0;
      for (; n < whole; n += lanes()) SITU_STEP(SITU_WHOLE, SITU_MULADD_WHOLE)
      if (n < d.images) SITU_STEP(SITU_PART, SITU_MULADD_PART)
    }
  }
  SITU_RESULTS(SITU_PUT_RESULT)
}

void sum_pixels(const ImagesDw& d, Range lines, float* sums) {
  for (int64_t o = 0; o < d.results; ++o) {
    Floats sum = zeros();
    const float* dy = d.dy + (lines.first * d.pixels * d.results + o) * d.images;
    for (int64_t p = 0; p < (lines.last - lines.first) * d.pixels; ++p, dy += d.results * d.images)
      for (int64_t n = 0; n < d.images; n += lanes()) sum = hn::Add(sum, load_up_to(dy + n, d.images - n));
    sums[o] = sum_lanes(sum);
  }
}

void run_split(const ImagesDw& d, int64_t split) {
  const int64_t rows = static_cast<int64_t>(d.from.size());
  const Range lines{d.lines * split / d.splits, d.lines * (split + 1) / d.splits};
  for (int64_t k0 = 0; k0 < rows; k0 += kTileRows)
    for (int64_t o0 = 0; o0 < d.results; o0 += kTileResults)
      run_tile(d, lines, k0, o0, d.dw + split * rows * d.dw_pitch);
  if (d.sums) sum_pixels(d, lines, d.sums + split * d.results);
}

#undef SITU_ROW
#undef SITU_RESULTS
#undef SITU_CLEAR
#undef SITU_CLEAR_RESULT
#undef SITU_MULADD
#undef SITU_MULADD_RESULT
#undef SITU_PUT
#undef SITU_PUT_RESULT
#undef SITU_STEP
#undef SITU_WHOLE
#undef SITU_PART
#undef SITU_MULADD_WHOLE
#undef SITU_MULADD_PART

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(run_split);

Work bind_dw(const Call& call) {
  const Operand &x = call.in[0], &dy = call.in[1], &dw = call.out[0];
  const ir::Ints &kernel = call.attrs.ints("kernel"), &stride = call.attrs.ints("stride");
  const ir::Ints dilation = call.attrs.ints("dilation", {1, 1});
  auto d = std::make_shared<ImagesDw>();
  d->splits = call.attrs.integer("splits");
  d->images = call.attrs.integer("images");
  d->results = dw.cols();
  d->x = x.f32();
  d->dy = dy.f32();
  d->dw = dw.f32();
  d->dw_pitch = dw.pitch;
  if (call.attrs.flag("sums")) d->sums = call.out[1].f32();
  d->of_image = dy.shape()[1];
  d->lines = dy.shape()[0] * d->of_image;
  d->x_sheaf = x.type.count() / x.shape()[0];
  d->pixels = dy.shape()[2];
  const int64_t channels = x.cols() / d->images, line = x.shape()[2] * x.cols();
  d->x_line = stride[0] * line;
  d->x_pixel = stride[1] * x.cols();
  for (int64_t r = 0; r < kernel[0]; ++r)
    for (int64_t s = 0; s < kernel[1]; ++s)
      for (int64_t c = 0; c < channels; ++c)
        d->from.push_back(r * dilation[0] * line + s * dilation[1] * x.cols() + c * d->images);
  const auto run = &HWY_DYNAMIC_DISPATCH(run_split);
  return {d->splits, [d, run](int64_t split) { run(*d, split); }};
}

// --- where it pays --------------------------------------------------------------------------------------------------
bool accepts(const ops::OpView& view, const device::Target& target) {
  return view.attrs.integer("groups", 1) == 1 && view.in(1).shape[3] <= target.tuning.get("conv.planar_results", 8);
}
// A rank, before taps in the lanes (conv_dw_few.cpp) where images fill vectors.
double seconds(const ops::OpView& view, const device::Target& target) {
  return view.in(0).shape[0] >= target.tuning.get("simd.lanes", 8) ? -0.2 : 0.2;
}

void expand(device::Expansion& e) {
  const Shape& x = e.view().in(0).shape;
  const ops::Window window = ops::window_of(e.attrs(), {x[1], x[2]}, e.attrs().ints("kernel"));
  const int64_t images = images_of_sheaf(x[0], e.target().tuning);
  const int64_t splits = std::min(conv_dw_splits(e.view(), e.target()), x[0] / images * window.y.out);
  const ops::Window padded = padded_window(window);
  const ir::Value sheaves = interleave(e, e.in(0), padded.y.in, padded.x.in, {window.y.before, window.x.before});
  const ir::Value dy = interleave(e, e.in(1), window.y.out, window.x.out, {0, 0});
  const ir::Attrs attrs{{"kernel", ir::Ints{window.y.kernel, window.x.kernel}},
                        {"stride", ir::Ints{window.y.stride, window.x.stride}},
                        {"dilation", ir::Ints{window.y.dilation, window.x.dilation}},
                        {"images", images},
                        {"splits", splits},
                        {"sums", int64_t{0}}};  // pass/image_sheaves.cpp
  e.result(0, launch_by_splits(e, "conv2d_dw_images", splits, {sheaves, dy}, attrs, e.out_type(0)));
}

}  // namespace

namespace kernels {
KernelList conv_dw_images() {
  static constexpr Kernel kernels[] = {{"conv2d_dw_images", bind_dw}};
  static constexpr device::Candidate candidates[] = {
      {.op = "conv2d_dw", .name = "images", .accepts = accepts, .seconds = seconds, .expand = expand}};
  return {kernels, candidates};
}
}  // namespace kernels
}  // namespace situ::cpu
#endif
