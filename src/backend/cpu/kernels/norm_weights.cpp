// norm_weights.cpp -- the batch norm of a product x w by x's statistics (ops/defs/norm_weights.cpp).
//
//   covariance_partial   x[N,C] -> parts[P][C+1][C]: sum (x - mean)^T (x - mean) of a part's rows; last, their mean
//   covariance_final     joins the parts: mean, cov
//   norm_weights         a task is a vector of w's columns
//   norm_weights_dw      gradients of w and gamma, by columns as well
//   norm_weights_dcov    those of mean and cov, by rows
//   covariance_slope     what x is multiplied by, and what is added, in the gradient of x
//
// Blocks of rows have means of their own and are joined in order (Chan), as moments are: sums about a common point
// would lose the digits that lie between it and the mean. x is narrow: all but the first launch work on matrices that
// fit the first cache.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels/norm_weights.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <algorithm>
#include <cmath>

#include "backend/cpu/block_product.h"
#include "backend/cpu/simd-inl.h"
#include "base/error.h"
#include "device/norm_launches.h"
#include "ops/statistics.h"

#ifndef SITU_BACKEND_CPU_NORM_WEIGHTS_ONCE_
#define SITU_BACKEND_CPU_NORM_WEIGHTS_ONCE_
namespace situ::cpu {
namespace {

struct CovarianceParts {
  Matrix x;
  int64_t rows = 0, cols = 0, splits = 1;
  float* parts = nullptr;
  int64_t pitch = 0;  // of the copy of a block
  PanelSet set;
};
constexpr int64_t kBlockRows = 64, kMostLanes = 64;

struct CovarianceJoin {
  const float* parts = nullptr;
  int64_t splits = 0, rows = 0, cols = 0;
  float* mean = nullptr;
  Matrix cov;
};

// x's statistics and the weights, which forward and backward meet in the same way.
struct Weighted {
  const float* mean = nullptr;
  Matrix cov, w;
  int64_t inner = 0, cols = 0;
};
struct NormWeights : Weighted {
  float eps = 0, unbiased = 1;
  const float *gamma = nullptr, *beta = nullptr;
  Matrix weight;
  float *shift = nullptr, *product_mean = nullptr, *var = nullptr, *rstd = nullptr;
};
struct NormWeightsDw : Weighted {
  const float *gamma = nullptr, *product_mean = nullptr, *rstd = nullptr;
  Matrix dweight, dw;
  const float *dshift = nullptr, *dmean = nullptr, *dv = nullptr;    // what arrived
  float *dgamma = nullptr, *all_dmean = nullptr, *all_dv = nullptr;  // with what came by weight and shift
};
struct NormWeightsDcov {
  Matrix w, dcov;
  int64_t inner = 0, cols = 0;
  const float *dmean = nullptr, *dv = nullptr;
  float* dx_mean = nullptr;
};

struct Slope {
  const float *mean = nullptr, *dmean = nullptr;
  Matrix dcov, slope;
  int64_t cols = 0;
  float inv_n = 0;
  float* shift = nullptr;
};

}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

// Copies rows [row0, row0 + rows) less their mean, which goes to `mean`; what pads a vector is 0.
void copy_centred(const CovarianceParts& c, int64_t row0, int64_t rows, float* to, float* mean) {
  for (int64_t j = 0; j < c.cols; j += lanes()) {
    const int64_t n = c.cols - j;
    Floats even = zeros(), odd = zeros();
    for (int64_t r = 0; r + 1 < rows; r += 2) {
      even = hn::Add(even, load_up_to(c.x.at(row0 + r, j), n));
      odd = hn::Add(odd, load_up_to(c.x.at(row0 + r + 1, j), n));
    }
    if (rows % 2) even = hn::Add(even, load_up_to(c.x.at(row0 + rows - 1, j), n));
    const Floats m = hn::Div(hn::Add(even, odd), fill(static_cast<float>(rows)));
    hn::StoreU(m, Tag(), mean + j);
    for (int64_t r = 0; r < rows; ++r)
      hn::StoreU(hn::Sub(load_up_to(c.x.at(row0 + r, j), n), m), Tag(), to + r * c.pitch + j);
  }
}

// Joins the means and squares of b_rows rows to those of a_rows: squares [cols][cols], the mean behind them. b's
// squares may have been added already (null). Both means are whole vectors.
void join_blocks(int64_t cols, float* a, float* a_mean, int64_t a_rows, const float* b, const float* b_mean,
                 int64_t b_rows) {
  const float share = static_cast<float>(b_rows) / static_cast<float>(a_rows + b_rows);
  const Floats weight = fill(static_cast<float>(a_rows) * share);
  for (int64_t i = 0; i < cols; ++i) {
    const Floats distance = hn::Mul(fill(b_mean[i] - a_mean[i]), weight);
    for (int64_t j = 0; j < cols; j += lanes()) {
      const int64_t n = cols - j;
      const Floats other = hn::Sub(hn::LoadU(Tag(), b_mean + j), hn::LoadU(Tag(), a_mean + j));
      Floats sum = load_up_to(a + i * cols + j, n);
      if (b) sum = hn::Add(sum, load_up_to(b + i * cols + j, n));
      store_up_to(hn::MulAdd(distance, other, sum), a + i * cols + j, n);
    }
  }
  for (int64_t j = 0; j < cols; j += lanes()) {
    const Floats from = hn::LoadU(Tag(), a_mean + j);
    const Floats by = hn::Sub(hn::LoadU(Tag(), b_mean + j), from);
    hn::StoreU(hn::MulAdd(by, fill(share), from), Tag(), a_mean + j);
  }
}

void divide_covariance(const CovarianceJoin& c, const float* squares, const float* mean) {
  const Floats inv_n = fill(1.0f / static_cast<float>(c.rows));
  for (int64_t j = 0; j < c.cols; j += lanes()) {
    const int64_t n = c.cols - j;
    store_up_to(hn::LoadU(Tag(), mean + j), c.mean + j, n);
    for (int64_t i = 0; i < c.cols; ++i)
      store_up_to(hn::Mul(load_up_to(squares + i * c.cols + j, n), inv_n), c.cov.at(i, j), n);
  }
}

// Rows i..i+3 of (cov + SYMMETRIC * cov^T) w, of the columns from `col` on; those beyond the last repeat it. Four
// references, because vectors of unknown length are no members of a struct.
template <bool SYMMETRIC>
HWY_INLINE void weighted_rows(const Weighted& p, int64_t i, int64_t col, Floats& v0, Floats& v1, Floats& v2,
                              Floats& v3) {
  const int64_t n = p.cols - col, last = p.inner - 1;
  const int64_t i1 = std::min(i + 1, last), i2 = std::min(i + 2, last), i3 = std::min(i + 3, last);
  const auto factor = [&](int64_t row, int64_t k) HWY_ATTR {
    return fill(SYMMETRIC ? *p.cov.at(row, k) + *p.cov.at(k, row) : *p.cov.at(row, k));
  };
  v0 = zeros(), v1 = zeros(), v2 = zeros(), v3 = zeros();
  for (int64_t k = 0; k < p.inner; ++k) {
    const Floats w = load_up_to(p.w.at(k, col), n);
    v0 = hn::MulAdd(factor(i, k), w, v0);
    v1 = hn::MulAdd(factor(i1, k), w, v1);
    v2 = hn::MulAdd(factor(i2, k), w, v2);
    v3 = hn::MulAdd(factor(i3, k), w, v3);
  }
}
// Calls f(row, vector) for all rows of (cov + SYMMETRIC * cov^T) w.
template <bool SYMMETRIC, typename F>
HWY_INLINE void each_weighted_row(const Weighted& p, int64_t col, F f) {
  for (int64_t i = 0; i < p.inner; i += 4) {
    Floats v0, v1, v2, v3;
    weighted_rows<SYMMETRIC>(p, i, col, v0, v1, v2, v3);
    f(i, v0);
    if (i + 1 < p.inner) f(i + 1, v1);
    if (i + 2 < p.inner) f(i + 2, v2);
    if (i + 3 < p.inner) f(i + 3, v3);
  }
}

void norm_weights_columns(const NormWeights& p, int64_t task) {
  const int64_t col = task * lanes(), n = p.cols - col;
  Floats mean = zeros(), v = zeros();
  each_weighted_row<false>(p, col, [&](int64_t row, Floats sum) HWY_ATTR {
    const Floats w = load_up_to(p.w.at(row, col), n);
    mean = hn::MulAdd(fill(p.mean[row]), w, mean);
    v = hn::MulAdd(sum, w, v);
  });
  v = at_least(zeros(), v);  // rounding may leave a little less than nothing of a column that does not vary
  const Floats rstd = hn::Div(fill(1.0f), hn::Sqrt(hn::Add(v, fill(p.eps))));
  const Floats scale = hn::Mul(load_up_to(p.gamma + col, n), rstd);
  for (int64_t i = 0; i < p.inner; ++i)
    store_up_to(hn::Mul(load_up_to(p.w.at(i, col), n), scale), p.weight.at(i, col), n);
  store_up_to(hn::NegMulAdd(mean, scale, load_up_to(p.beta + col, n)), p.shift + col, n);
  store_up_to(mean, p.product_mean + col, n);
  store_up_to(hn::Mul(v, fill(p.unbiased)), p.var + col, n);
  store_up_to(rstd, p.rstd + col, n);
}

void norm_weights_dw_columns(const NormWeightsDw& p, int64_t task) {
  const int64_t col = task * lanes(), n = p.cols - col;
  const Floats dshift = load_up_to(p.dshift + col, n), rstd = load_up_to(p.rstd + col, n);
  const Floats gamma = load_up_to(p.gamma + col, n), scale = hn::Mul(gamma, rstd);
  Floats dscale = hn::Neg(hn::Mul(load_up_to(p.product_mean + col, n), dshift));
  for (int64_t i = 0; i < p.inner; ++i)
    dscale = hn::MulAdd(load_up_to(p.w.at(i, col), n), load_up_to(p.dweight.at(i, col), n), dscale);
  const Floats dgamma = hn::Mul(dscale, rstd);
  const Floats dmean = hn::NegMulAdd(scale, dshift, load_up_to(p.dmean + col, n));
  const Floats dv =
      hn::NegMulAdd(hn::Mul(fill(0.5f), hn::Mul(rstd, rstd)), hn::Mul(gamma, dgamma), load_up_to(p.dv + col, n));
  store_up_to(dgamma, p.dgamma + col, n);
  store_up_to(dmean, p.all_dmean + col, n);
  store_up_to(dv, p.all_dv + col, n);
  each_weighted_row<true>(p, col, [&](int64_t row, Floats sum) HWY_ATTR {
    const Floats through = hn::MulAdd(sum, dv, hn::Mul(fill(p.mean[row]), dmean));
    store_up_to(hn::MulAdd(load_up_to(p.dweight.at(row, col), n), scale, through), p.dw.at(row, col), n);
  });
}

// One row of dcov, and one element of the gradient of x's mean.
void norm_weights_dcov_row(const NormWeightsDcov& p, int64_t i) {
  Floats sum = zeros();
  for (int64_t col = 0; col < p.cols; col += lanes()) {
    const int64_t n = p.cols - col;
    sum = hn::MulAdd(load_up_to(p.w.at(i, col), n), load_up_to(p.dmean + col, n), sum);
  }
  p.dx_mean[i] = sum_lanes(sum);
  for (int64_t j = 0; j < p.inner; ++j) {
    sum = zeros();
    for (int64_t col = 0; col < p.cols; col += lanes()) {
      const int64_t n = p.cols - col;
      const Floats weighted = hn::Mul(load_up_to(p.w.at(i, col), n), load_up_to(p.dv + col, n));
      sum = hn::MulAdd(weighted, load_up_to(p.w.at(j, col), n), sum);
    }
    *p.dcov.at(i, j) = sum_lanes(sum);
  }
}

// A vector of columns: cov and what belongs to it are small, one way through them is enough.
void slope_columns(const Slope& s, int64_t task) {
  const int64_t col = task * lanes(), n = std::min(lanes(), s.cols - col);
  Floats shift = hn::Mul(load_up_to(s.dmean + col, n), fill(s.inv_n));
  HWY_ALIGN float turned[kMostLanes] = {};
  for (int64_t i = 0; i < s.cols; ++i) {
    for (int64_t j = 0; j < n; ++j) turned[j] = *s.dcov.at(col + j, i);
    const Floats both = hn::Add(load_up_to(s.dcov.at(i, col), n), hn::Load(Tag(), turned));
    const Floats slope = hn::Mul(both, fill(s.inv_n));
    store_up_to(slope, s.slope.at(i, col), n);
    shift = hn::NegMulAdd(fill(s.mean[i]), slope, shift);
  }
  store_up_to(shift, s.shift + col, n);
}

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(copy_centred);
HWY_EXPORT(join_blocks);
HWY_EXPORT(divide_covariance);
HWY_EXPORT(norm_weights_columns);
HWY_EXPORT(norm_weights_dw_columns);
HWY_EXPORT(norm_weights_dcov_row);
HWY_EXPORT(slope_columns);

int64_t lanes_of(const Call& call) {
  const int64_t lanes = call.tuning().get("simd.lanes", 8);
  SITU_ASSERT(lanes <= kMostLanes);
  return lanes;
}

constexpr int64_t kMostPadded = ops::kMostCovarianceColumns + kMostLanes;

void run_part(const CovarianceParts& c, int64_t split) {
  float copy[kBlockRows * kMostPadded], mean[kMostPadded], total[kMostPadded] = {};
  const int64_t begin = c.rows * split / c.splits, end = c.rows * (split + 1) / c.splits;
  float* part = c.parts + split * (c.cols + 1) * c.cols;
  for (int64_t row = begin; row < end; row += kBlockRows) {
    const int64_t rows = std::min(kBlockRows, end - row);
    HWY_DYNAMIC_DISPATCH(copy_centred)(c, row, rows, copy, mean);
    multiply(c.set, {.m = c.cols,
                     .k = rows,
                     .a = copy,
                     .a_row = 1,
                     .a_step = c.pitch,
                     .b = copy,
                     .b_step = c.pitch,
                     .y = part,
                     .y_pitch = c.cols,
                     .accumulate = row > begin});
    HWY_DYNAMIC_DISPATCH(join_blocks)(c.cols, part, total, row - begin, nullptr, mean, rows);
  }
  std::copy_n(total, c.cols, part + c.cols * c.cols);
}

void run_final(const CovarianceJoin& c) {
  float squares[ops::kMostCovarianceColumns * ops::kMostCovarianceColumns] = {};
  float mean[kMostPadded] = {}, total[kMostPadded] = {};
  const int64_t part = (c.cols + 1) * c.cols;
  for (int64_t p = 0; p < c.splits; ++p) {
    const int64_t begin = c.rows * p / c.splits, end = c.rows * (p + 1) / c.splits;
    std::copy_n(c.parts + p * part + c.cols * c.cols, c.cols, mean);
    HWY_DYNAMIC_DISPATCH(join_blocks)(c.cols, squares, total, begin, c.parts + p * part, mean, end - begin);
  }
  HWY_DYNAMIC_DISPATCH(divide_covariance)(c, squares, total);
}

Work bind_covariance_partial(const Call& call) {
  const Operand &x = call.in[0], &parts = call.out[0];
  CovarianceParts c;
  c.x = Matrix(x);
  c.rows = x.rows();
  c.cols = x.cols();
  c.splits = parts.shape()[0];
  c.parts = parts.f32();
  c.pitch = round_up(c.cols, lanes_of(call));
  c.set = make_panels(c.cols, true, c.cols, call.tuning());
  SITU_ASSERT(parts.pitch == c.cols);
  return {c.splits, [c](int64_t task) { run_part(c, task); }};
}

// One task: a few thousand sums.
Work bind_covariance_final(const Call& call) {
  const Operand& parts = call.in[0];
  CovarianceJoin c;
  c.parts = parts.f32();
  c.splits = parts.shape()[0];
  c.rows = call.attrs.integer("rows");
  c.cols = parts.cols();
  c.mean = call.out[0].f32();
  c.cov = Matrix(call.out[1]);
  return {1, [c](int64_t) { run_final(c); }};
}

void set_weighted(Weighted& p, const Call& call) {
  p.mean = call.in[0].f32();
  p.cov = Matrix(call.in[1]);
  p.w = Matrix(call.in[2]);
  p.inner = call.in[2].rows();
  p.cols = call.in[2].cols();
}

Work bind_norm_weights(const Call& call) {
  NormWeights p;
  set_weighted(p, call);
  p.gamma = call.in[3].f32();
  p.eps = static_cast<float>(call.attrs.number("eps"));
  p.unbiased = static_cast<float>(ops::unbiased(static_cast<double>(call.attrs.integer("rows"))));
  p.beta = call.in[4].f32();
  p.weight = Matrix(call.out[0]);
  p.shift = call.out[1].f32();
  p.product_mean = call.out[2].f32();
  p.var = call.out[3].f32();
  p.rstd = call.out[4].f32();
  return {ceil_div(p.cols, lanes_of(call)), [p](int64_t task) { HWY_DYNAMIC_DISPATCH(norm_weights_columns)(p, task); }};
}

Work bind_norm_weights_dw(const Call& call) {
  NormWeightsDw p;
  set_weighted(p, call);
  p.gamma = call.in[3].f32();
  p.product_mean = call.in[4].f32();
  p.rstd = call.in[5].f32();
  p.dweight = Matrix(call.in[6]);
  p.dshift = call.in[7].f32();
  p.dmean = call.in[8].f32();
  p.dv = call.in[9].f32();
  p.dw = Matrix(call.out[0]);
  p.dgamma = call.out[1].f32();
  p.all_dmean = call.out[2].f32();
  p.all_dv = call.out[3].f32();
  return {ceil_div(p.cols, lanes_of(call)), [p](int64_t task) {
            HWY_DYNAMIC_DISPATCH(norm_weights_dw_columns)(p, task);
          }};
}

Work bind_norm_weights_dcov(const Call& call) {
  NormWeightsDcov p;
  p.w = Matrix(call.in[0]);
  p.inner = call.in[0].rows();
  p.cols = call.in[0].cols();
  p.dmean = call.in[1].f32();
  p.dv = call.in[2].f32();
  p.dx_mean = call.out[0].f32();
  p.dcov = Matrix(call.out[1]);
  return {p.inner, [p](int64_t task) { HWY_DYNAMIC_DISPATCH(norm_weights_dcov_row)(p, task); }};
}

Work bind_covariance_slope(const Call& call) {
  Slope s;
  s.mean = call.in[0].f32();
  s.dmean = call.in[1].f32();
  s.dcov = Matrix(call.in[2]);
  s.cols = call.in[2].cols();
  s.inv_n = 1.0f / static_cast<float>(call.attrs.integer("rows"));
  s.slope = Matrix(call.out[0]);
  s.shift = call.out[1].f32();
  return {ceil_div(s.cols, lanes_of(call)), [s](int64_t task) { HWY_DYNAMIC_DISPATCH(slope_columns)(s, task); }};
}

// Parts of x: long enough to be worth a matrix each, and enough of them for a handful of threads. By shape alone: sums
// must not change with the number of threads.
int64_t parts_of(const device::Target&, std::string_view, const Shape& x) {
  constexpr int64_t kMostParts = 16;
  return std::clamp<int64_t>(x.rows() / std::max<int64_t>(4 * x.cols(), 2 * kBlockRows), 1, kMostParts);
}
void expand_covariance(device::Expansion& e) { device::expand_covariance(e, parts_of); }

}  // namespace

namespace kernels {
KernelList norm_weights() {
  static constexpr Kernel kernels[] = {
      {"covariance_partial", bind_covariance_partial}, {"covariance_final", bind_covariance_final},
      {"covariance_slope", bind_covariance_slope},     {"norm_weights", bind_norm_weights},
      {"norm_weights_dw", bind_norm_weights_dw},       {"norm_weights_dcov", bind_norm_weights_dcov}};
  static constexpr device::Candidate candidates[] = {
      {.op = "covariance", .name = "parts", .expand = expand_covariance},
      {.op = "norm_weights_grad", .name = "by_sides", .expand = device::expand_norm_weights_grad}};
  return {kernels, candidates};
}
}  // namespace kernels
}  // namespace situ::cpu
#endif
