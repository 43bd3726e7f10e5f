// few_rows.cpp -- matmuls with at most eight rows, as the last layer of a small batch: bound by reading b, which a tile
// that walks down b's columns would do in short pieces.
//
//   few_rows  y[i,n] = epilogue( sum over k of a[i,k] b[k,n] )
//   few_rows_parts  parts[p,i,n] = sum over range p of k; a sum_splits launch adds them in order
//   few_dots  y[i,n] = epilogue( sum over k of a[i,k] b[n,k] )
// A task of few_rows is a range of columns, whose sums lie on its stack; one of few_dots a few rows of b, each read
// once. One of few_rows_parts is a range of rows of b: where b is large, a core then reads what it wrote when it
// updated them, and lines do not travel from core to core in every step. A long sum is one of sums, as in gemm.cpp.
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
#include "base/error.h"

#ifndef SITU_BACKEND_CPU_FEW_ROWS_ONCE_
#define SITU_BACKEND_CPU_FEW_ROWS_ONCE_
namespace situ::cpu {
namespace {
constexpr int64_t kMostRows = 8;
constexpr int64_t kColumns = 256;  // of a task of few_rows: its sums and a row of b's piece stay in the L1 cache
constexpr int64_t kDots = 32;      // rows of b of a task of few_dots
constexpr int64_t kMostTerms = 512;
constexpr int64_t kFar = 1 << 17;  // elements of a b that is far away when it is needed
constexpr int64_t kFewestTerms = 128, kMostParts = 16;

struct Few {
  int64_t m = 0, n = 0, k = 0;
  const float *a = nullptr, *b = nullptr;
  int64_t a_pitch = 0, b_pitch = 0;
  float* y = nullptr;
  int64_t y_pitch = 0;
  TileEpilogue epilogue;
  int64_t parts = 1;
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

// The terms k .. k+7 of eight rows of b: sums[i][n], which begin with them if `fresh`. Each sum is loaded and stored
// once for eight terms. What comes next is asked for.
void add_eight(const Few& f, int64_t k, bool fresh, float* sums) {
  const float* b = f.b + k * f.b_pitch;
  const auto column = [&](int64_t n, auto whole) HWY_ATTR {
    constexpr bool WHOLE = decltype(whole)::value;
    const int64_t left = f.n - n;
    const auto row = [&](int64_t r) HWY_ATTR {
      hwy::Prefetch(b + (r + 8) * f.b_pitch + n);
      return load_up_to<WHOLE>(b + r * f.b_pitch + n, left);
    };
    const Floats b0 = kept(row(0)), b1 = kept(row(1)), b2 = kept(row(2)), b3 = kept(row(3));
    const Floats b4 = kept(row(4)), b5 = kept(row(5)), b6 = kept(row(6)), b7 = kept(row(7));
    for (int64_t i = 0; i < f.m; ++i) {
      const float* a = f.a + i * f.a_pitch + k;
      float* sum = sums + i * f.n + n;
      Floats even = fresh ? zeros() : load_up_to<WHOLE>(sum, left);
      even = plus_product(b4, a + 4, plus_product(b2, a + 2, plus_product(b0, a, even)));
      Floats odd = plus_product(b5, a + 5, plus_product(b3, a + 3, hn::Mul(b1, fill(a[1]))));
      store_up_to<WHOLE>(hn::Add(plus_product(b6, a + 6, even), plus_product(b7, a + 7, odd)), sum, left);
    }
  };
  int64_t n = 0;
  for (; n + lanes() <= f.n; n += lanes()) column(n, std::true_type());
  if (n < f.n) column(n, std::false_type());
}

void few_rows_part(const Few& f, int64_t part) {
  const int64_t k0 = f.k * part / f.parts, k1 = f.k * (part + 1) / f.parts;
  float* const sums = f.y + part * f.m * f.n;
  int64_t k = k0;
  for (; k + 8 <= k1; k += 8) add_eight(f, k, k == k0, sums);
  for (; k < k1; ++k)
    for (int64_t i = 0; i < f.m; ++i) {
      const Floats a = fill(f.a[i * f.a_pitch + k]);
      for (int64_t n = 0; n < f.n; n += lanes()) {
        const int64_t left = f.n - n;
        const Floats sum = k == k0 ? zeros() : load_up_to(sums + i * f.n + n, left);
        store_up_to(hn::MulAdd(a, load_up_to(f.b + k * f.b_pitch + n, left), sum), sums + i * f.n + n, left);
      }
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
HWY_EXPORT(few_rows_part);
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
Work bind_parts(const Call& call) {
  const Operand &a = call.in[0], &b = call.in[1], &y = call.out[0];
  SITU_ASSERT(y.shape().rank() == 3 && y.pitch == y.cols());
  const Few f{.m = y.shape()[1],
              .n = y.cols(),
              .k = b.rows(),
              .a = a.f32(),
              .b = b.f32(),
              .a_pitch = a.pitch,
              .b_pitch = b.pitch,
              .y = y.f32(),
              .epilogue = {},
              .parts = y.shape()[0]};
  const auto run = &HWY_DYNAMIC_DISPATCH(few_rows_part);
  return {f.parts, [f, run](int64_t part) { run(f, part); }};
}
Work bind_dots(const Call& call) { return bind_few(call, true, kDots, &HWY_DYNAMIC_DISPATCH(few_dots)); }

// With fewer columns than a handful of tasks the tile's splits of K serve better.
bool few(const ops::OpView& view, int64_t columns) {
  const Shape& y = view.out(0).shape;
  return !view.attrs.flag("ta") && y[0] <= kMostRows && y[1] >= columns;
}
// Against gemm.cpp's nominal rate: faster for any number of rows, most of all for one.
double seconds(const ops::OpView& view, const device::Target&) {
  return 4 * static_cast<double>(view.in(1).count()) / 100e9 + 2e-6;
}
bool accepts_rows(const ops::OpView& view, const device::Target&) {
  return few(view, kColumns) && !view.attrs.flag("tb");
}
int64_t parts_of(const ops::OpView& view) {
  const int64_t k = view.in(1).shape[0];
  return std::max(ceil_div(k, kMostTerms), std::min(k / kFewestTerms, kMostParts));
}
bool accepts_parts(const ops::OpView& view, const device::Target& target) {
  return accepts_rows(view, target) && parts_of(view) > 1;
}
double seconds_parts(const ops::OpView& view, const device::Target& target) {
  return seconds(view, target) * (view.in(1).count() >= kFar ? 0.9 : 1.1);
}
// Each lane of a dot sums its share of the terms.
bool accepts_dots(const ops::OpView& view, const device::Target& target) {
  const int64_t most = kMostTerms * target.tuning.get("simd.lanes", 8);
  return few(view, kDots) && view.attrs.flag("tb") && view.in(1).shape[1] <= most;
}
void expand_rows(device::Expansion& e) { e.result(0, e.launch("few_rows", e.inputs(), e.out_type(0), e.attrs())); }
void expand_parts(device::Expansion& e) {
  const Shape y = e.out_type(0).shape;
  const ir::Value parts = e.launch("few_rows_parts", {e.in(0), e.in(1)}, f32({parts_of(e.view()), y[0], y[1]}));
  ir::Values inputs = e.inputs();
  inputs.erase(inputs.begin());
  inputs[0] = parts;
  e.result(0, e.launch("sum_splits", inputs, e.out_type(0), {{"epilogue", e.attrs().text("epilogue", "")}}));
}
void expand_dots(device::Expansion& e) { e.result(0, e.launch("few_dots", e.inputs(), e.out_type(0), e.attrs())); }

}  // namespace

namespace kernels {
KernelList few_rows() {
  static constexpr Kernel kernels[] = {
      {"few_rows", bind_rows}, {"few_rows_parts", bind_parts}, {"few_dots", bind_dots}};
  static constexpr device::Candidate candidates[] = {
      {.op = "matmul", .name = "few_rows", .accepts = accepts_rows, .seconds = seconds, .expand = expand_rows},
      {.op = "matmul",
       .name = "few_rows_parts",
       .accepts = accepts_parts,
       .seconds = seconds_parts,
       .expand = expand_parts},
      {.op = "matmul", .name = "few_dots", .accepts = accepts_dots, .seconds = seconds, .expand = expand_dots}};
  return {kernels, candidates};
}
}  // namespace kernels
}  // namespace situ::cpu
#endif
