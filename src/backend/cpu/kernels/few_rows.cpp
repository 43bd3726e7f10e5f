// few_rows.cpp -- matmuls with at most eight rows, as the last layer of a small batch: bound by reading b, which a tile
// that walks down b's columns would do in short pieces.
//
//   few_rows  y[i,n] = epilogue( sum over k of a[i,k] b[k,n] )
//   few_dots  y[i,n] = epilogue( sum over k of a[i,k] b[n,k] )
// A task of few_rows is a range of columns, whose sums lie on its stack; one of few_dots a few rows of b, each read
// once.
// A long sum is one of sums, as in gemm.cpp.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels/few_rows.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <hwy/cache_control.h>

#include <algorithm>
#include <memory>

#include "backend/cpu/epilogue-inl.h"
#include "backend/cpu/kernel.h"
#include "backend/cpu/simd-inl.h"
#include "backend/cpu/tile.h"

#ifndef SITU_BACKEND_CPU_FEW_ROWS_ONCE_
#define SITU_BACKEND_CPU_FEW_ROWS_ONCE_
namespace situ::cpu {
namespace {
constexpr int64_t kMostRows = 8;
constexpr int64_t kColumns = 256;  // of a task of few_rows: its sums and a row of b's piece stay in the L1 cache
constexpr int64_t kDots = 32;      // rows of b of a task of few_dots
constexpr int64_t kMostTerms = 512;

struct Few {
  int64_t m = 0, n = 0, k = 0;
  const float *a = nullptr, *b = nullptr;
  int64_t a_pitch = 0, b_pitch = 0;
  float* y = nullptr;
  int64_t y_pitch = 0;
  TileEpilogue epilogue;
};
}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

// sums[i][n] += the terms k .. k+3. Four rows of b at a time: each sum is loaded and stored once for four terms.
void add_four(const Few& f, int64_t k, const float* b, int64_t columns, float* sums) {
  for (int64_t n = 0; n < columns; n += lanes()) {
    const int64_t left = columns - n;
    const Floats b0 = load_up_to(b + n, left), b1 = load_up_to(b + f.b_pitch + n, left);
    const Floats b2 = load_up_to(b + 2 * f.b_pitch + n, left), b3 = load_up_to(b + 3 * f.b_pitch + n, left);
    for (int64_t r = 4; r < 8; ++r) hwy::Prefetch(b + r * f.b_pitch + n);
    for (int64_t i = 0; i < f.m; ++i) {
      const float* a = f.a + i * f.a_pitch + k;
      float* sum = sums + i * kColumns + n;
      const Floats even = hn::MulAdd(fill(a[2]), b2, hn::MulAdd(fill(a[0]), b0, hn::LoadU(Tag(), sum)));
      hn::StoreU(hn::Add(even, hn::MulAdd(fill(a[3]), b3, hn::Mul(fill(a[1]), b1))), Tag(), sum);
    }
  }
}
void add_one(const Few& f, int64_t k, const float* b, int64_t columns, float* sums) {
  for (int64_t n = 0; n < columns; n += lanes()) {
    const Floats b0 = load_up_to(b + n, columns - n);
    for (int64_t i = 0; i < f.m; ++i) {
      float* sum = sums + i * kColumns + n;
      hn::StoreU(hn::MulAdd(fill(f.a[i * f.a_pitch + k]), b0, hn::LoadU(Tag(), sum)), Tag(), sum);
    }
  }
}

void few_rows(const Few& f, int64_t task) {
  const int64_t first = task * kColumns, columns = std::min(kColumns, f.n - first);
  // A vector may end beyond the columns: the sums have room for it, b and y are never touched there.
  HWY_ALIGN float sums[kMostRows * kColumns + hn::MaxLanes(Tag())], total[kMostRows * kColumns + hn::MaxLanes(Tag())];
  std::fill_n(total, kMostRows * kColumns, 0.0f);
  for (int64_t k0 = 0; k0 < f.k; k0 += kMostTerms) {
    const int64_t k1 = std::min(f.k, k0 + kMostTerms);
    std::fill_n(sums, kMostRows * kColumns, 0.0f);
    int64_t k = k0;
    const float* b = f.b + k * f.b_pitch + first;
    for (; k + 4 <= k1; k += 4, b += 4 * f.b_pitch) add_four(f, k, b, columns, sums);
    for (; k < k1; ++k, b += f.b_pitch) add_one(f, k, b, columns, sums);
    for (int64_t i = 0; i < f.m * kColumns; i += lanes())
      hn::StoreU(hn::Add(hn::LoadU(Tag(), total + i), hn::LoadU(Tag(), sums + i)), Tag(), total + i);
  }
  for (int64_t i = 0; i < f.m; ++i)
    for (int64_t n = 0; n < columns; n += lanes()) {
      const int64_t left = columns - n;
      const Floats v = hn::LoadU(Tag(), total + i * kColumns + n);
      store_up_to(apply_epilogue(f.epilogue, v, i, first + n, left), f.y + i * f.y_pitch + first + n, left);
    }
}

// Eight sums at once, named because vectors of unknown length fit no array; rows beyond m repeat the last one.
void few_dots(const Few& f, int64_t task) {
  const int64_t last = std::min(f.n, (task + 1) * kDots);
  const float* a[kMostRows];
  for (int64_t i = 0; i < kMostRows; ++i) a[i] = f.a + std::min(i, f.m - 1) * f.a_pitch;
  for (int64_t n = task * kDots; n < last; ++n) {
    const float* b = f.b + n * f.b_pitch;
    Floats s0 = zeros(), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;
    for (int64_t k = 0; k < f.k; k += lanes()) {
      const int64_t left = f.k - k;
      const Floats v = load_up_to(b + k, left);
      s0 = hn::MulAdd(load_up_to(a[0] + k, left), v, s0);
      s1 = hn::MulAdd(load_up_to(a[1] + k, left), v, s1);
      s2 = hn::MulAdd(load_up_to(a[2] + k, left), v, s2);
      s3 = hn::MulAdd(load_up_to(a[3] + k, left), v, s3);
      s4 = hn::MulAdd(load_up_to(a[4] + k, left), v, s4);
      s5 = hn::MulAdd(load_up_to(a[5] + k, left), v, s5);
      s6 = hn::MulAdd(load_up_to(a[6] + k, left), v, s6);
      s7 = hn::MulAdd(load_up_to(a[7] + k, left), v, s7);
    }
    const float sums[kMostRows] = {sum_lanes(s0), sum_lanes(s1), sum_lanes(s2), sum_lanes(s3),
                                   sum_lanes(s4), sum_lanes(s5), sum_lanes(s6), sum_lanes(s7)};
    for (int64_t i = 0; i < f.m; ++i)
      store_up_to(apply_epilogue(f.epilogue, fill(sums[i]), i, n, 1), f.y + i * f.y_pitch + n, 1);
  }
}

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(few_rows);
HWY_EXPORT(few_dots);

template <typename Run>
Work bind_few(const Call& call, bool turned, int64_t columns, Run run) {
  const Operand &a = call.in[0], &b = call.in[1], &y = call.out[0];
  auto f = std::make_shared<Few>();
  *f = {.m = y.rows(),
        .n = y.cols(),
        .k = turned ? b.cols() : b.rows(),
        .a = a.f32(),
        .b = b.f32(),
        .a_pitch = a.pitch,
        .b_pitch = b.pitch,
        .y = y.f32(),
        .y_pitch = y.pitch,
        .epilogue = bind_epilogue(call, 2)};
  return {ceil_div(f->n, columns), [f, run](int64_t task) { run(*f, task); }};
}
Work bind_rows(const Call& call) { return bind_few(call, false, kColumns, &HWY_DYNAMIC_DISPATCH(few_rows)); }
Work bind_dots(const Call& call) { return bind_few(call, true, kDots, &HWY_DYNAMIC_DISPATCH(few_dots)); }

// With fewer columns than a handful of tasks the tile's splits of K serve better.
bool few(const ops::OpView& view, int64_t columns) {
  const Shape& y = view.out(0).shape;
  return !view.attrs.flag("ta") && y[0] <= kMostRows && y[1] >= columns;
}
bool accepts_rows(const ops::OpView& view, const device::Target&) {
  return few(view, kColumns) && !view.attrs.flag("tb");
}
// Each lane of a dot sums its share of the terms.
bool accepts_dots(const ops::OpView& view, const device::Target& target) {
  const int64_t most = kMostTerms * target.tuning.get("simd.lanes", 8);
  return few(view, kDots) && view.attrs.flag("tb") && view.in(1).shape[1] <= most;
}
// Against gemm.cpp's nominal rate: faster for any number of rows, most of all for one.
double seconds(const ops::OpView& view, const device::Target&) {
  return 4 * static_cast<double>(view.in(1).count()) / 100e9 + 2e-6;
}
void expand_rows(device::Expansion& e) { e.result(0, e.launch("few_rows", e.inputs(), e.out_type(0), e.attrs())); }
void expand_dots(device::Expansion& e) { e.result(0, e.launch("few_dots", e.inputs(), e.out_type(0), e.attrs())); }

}  // namespace

namespace kernels {
KernelList few_rows() {
  static constexpr Kernel kernels[] = {{"few_rows", bind_rows}, {"few_dots", bind_dots}};
  static constexpr device::Candidate candidates[] = {
      {.op = "matmul", .name = "few_rows", .accepts = accepts_rows, .seconds = seconds, .expand = expand_rows},
      {.op = "matmul", .name = "few_dots", .accepts = accepts_dots, .seconds = seconds, .expand = expand_dots}};
  return {kernels, candidates};
}
}  // namespace kernels
}  // namespace situ::cpu
#endif
