// norm_weights.cpp -- a batch norm behind a product x w that never looks at the product: its statistics follow from
// those of x, and it goes into w.
//
//   mean = sum x / n,  cov = sum (x - mean)^T (x - mean) / n                                   covariance
//   mean' = mean w,  v = w^T cov w (the diagonal),  rstd = 1 / sqrt(v + eps)                   norm_weights
//   weight = w gamma rstd,  shift = beta - mean' gamma rstd:  x weight + shift = normalized x w
//   var = v rows / max(1, rows - 1), the unbiased one, which running statistics keep
// Worth it where x is narrow and the product wide, as in front of a depthwise convolution: what a norm reads and writes
// twice forward and three times backward is the wide one.
//   dmean = w dmean'^T,  dcov = w diag(dv) w^T,  dw = dweight gamma rstd + mean^T dmean' + (cov + cov^T) w diag(dv),
//   dgamma = rstd (sum w dweight - mean' dshift), with what shift and rstd add to dmean' and dv    norm_weights_grad
//   dx = x slope + shift,  slope = (dcov + dcov^T) / rows,  shift = dmean / rows - mean slope       covariance_slope
#include <algorithm>
#include <cmath>

#include "ops/magnitude.h"
#include "ops/pointwise_op.h"
#include "ops/statistics.h"

namespace situ::ops::defs {
namespace {

using elementwise::scaled;
using elementwise::times;

double unbiased_of(const Attrs& attrs) { return unbiased(static_cast<double>(attrs.integer("rows"))); }

void need_floats(const OpView& v, int operands) {
  if (v.arity() != operands) fail("{} operands are needed, not {}", operands, v.arity());
  for (const Type& t : v.ins) need(t.dtype == DType::f32, "all operands must be f32");
}
void need_rows(const Attrs& attrs) { need(attrs.integer("rows") > 0, "`rows` must be positive"); }

// --- covariance ---
Types covariance_type(const OpView& v) {
  need_floats(v, 1);
  need(v.in(0).shape.rank() >= 1, "x must have columns");
  const int64_t cols = v.in(0).shape.cols();
  if (cols > kMostCovarianceColumns) fail("x has {} columns, more than {}", cols, kMostCovarianceColumns);
  return {f32({cols}), f32({cols, cols})};
}

void covariance_gradient(GradBuilder& g) {
  if (!g.wants(0)) return;
  const Shape x = g.type(g.in(0)).shape;
  const Values by = g.emit_all("covariance_slope", {g.out(0), g.dout(0), g.dout(1)}, {{"rows", x.rows()}});
  const Value product = g.emit("matmul", {g.reshaped(g.in(0), Shape{x.rows(), x.cols()}), by[0]});
  g.add(0, g.reshaped(g.emit("bias", {product, by[1]}), x));
}

Cost covariance_cost(const OpView& v) {
  return {.flops = 2 * static_cast<double>(v.in(0).count()) * static_cast<double>(v.in(0).shape.cols())};
}

void covariance_reference(const RefCall& c) {
  const RefTensor &x = c.in[0], &mean = c.out[0], &cov = c.out[1];
  const int64_t rows = x.shape().rows(), cols = x.shape().cols();
  const double n = static_cast<double>(rows);
  std::fill_n(mean.data, mean.count(), 0);
  std::fill_n(cov.data, cov.count(), 0);
  for (int64_t i = 0; i < x.count(); ++i) mean[i % cols] += x[i] / n;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < cols; ++i)
      for (int64_t j = 0; j < cols; ++j)
        cov[i * cols + j] += (x[r * cols + i] - mean[i]) * (x[r * cols + j] - mean[j]) / n;
}
// An error of eps |x| in x moves a product by that times what it is multiplied with; the errors of the mean cancel.
void covariance_magnitude(const RefCall& c) {
  const RefTensor &x = c.in[0], &mean = c.out[0], &cov = c.out[1];
  const int64_t rows = x.shape().rows(), cols = x.shape().cols();
  const double n = static_cast<double>(rows);
  covariance_reference(c);
  std::fill_n(cov.data, cov.count(), 0);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < cols; ++i)
      for (int64_t j = 0; j < cols; ++j) {
        const double a = x[r * cols + i], b = x[r * cols + j];
        const double from_a = std::fabs(a - mean[i]), from_b = std::fabs(b - mean[j]);
        cov[i * cols + j] += (from_a * from_b + std::fabs(a) * from_b + from_a * std::fabs(b)) / n;
      }
  std::fill_n(mean.data, mean.count(), 0);
  for (int64_t i = 0; i < x.count(); ++i) mean[i % cols] += std::fabs(x[i]) / n;
}

// --- covariance_slope ---
Types slope_type(const OpView& v) {
  need_floats(v, 3);
  const int64_t cols = v.in(0).count();
  need(v.in(0) == f32({cols}) && v.in(1) == v.in(0), "mean and dmean must have one axis of equal length");
  need(v.in(2) == f32({cols, cols}), "dcov must have as many rows and columns as mean is long");
  need_rows(v.attrs);
  return {v.in(2), v.in(0)};
}
void slope_reference(const RefCall& c) {
  const RefTensor &mean = c.in[0], &dmean = c.in[1], &dcov = c.in[2], &slope = c.out[0], &shift = c.out[1];
  const int64_t cols = mean.count();
  const double n = static_cast<double>(c.attrs.integer("rows"));
  for (int64_t j = 0; j < cols; ++j) {
    shift[j] = dmean[j] / n;
    for (int64_t i = 0; i < cols; ++i) {
      slope[i * cols + j] = (dcov[i * cols + j] + dcov[j * cols + i]) / n;
      shift[j] -= mean[i] * slope[i * cols + j];
    }
  }
}
void slope_magnitude(const RefCall& c) {
  slope_reference(AbsoluteCall(c).call());
  for (int64_t j = 0; j < c.out[1].count(); ++j)  // the difference is a sum here
    c.out[1][j] = 2 * std::fabs(c.in[1][j]) / static_cast<double>(c.attrs.integer("rows")) - c.out[1][j];
}

// --- norm_weights ---
void need_statistics(const OpView& v) {
  need(v.in(2).shape.rank() >= 2, "w must be a matrix");
  const int64_t inner = v.in(2).shape.rows();
  need(v.in(0).shape == Shape{inner}, "mean must be as long as w has rows");
  need((v.in(1).shape == Shape{inner, inner}), "cov must have as many rows and columns as w has rows");
}
void need_columns(const OpView& v, int first, int last) {
  const int64_t cols = v.in(2).shape.cols();
  for (int i = first; i < last; ++i)
    if (v.in(i) != f32({cols})) fail("operand {} must be f32[{}], as long as w has columns", i, cols);
}
Types type(const OpView& v) {
  need_floats(v, 5);
  need_statistics(v);
  need_columns(v, 3, 5);
  need(v.attrs.number("eps") > 0, "`eps` must be positive");
  need_rows(v.attrs);
  Types types(5, v.in(3));
  types[0] = v.in(2);
  return types;
}
Types grad_type(const OpView& v) {
  need_floats(v, 10);
  need_statistics(v);
  need_columns(v, 3, 6);
  need(v.in(6) == v.in(2), "dweight must have the type of w");
  need_columns(v, 7, 10);
  return {v.in(0), v.in(1), v.in(2), v.in(3)};
}

void gradient(GradBuilder& g) {
  bool wanted = false;
  for (int i = 0; i < 4; ++i) wanted = wanted || g.wants(i);
  if (g.wants(4) && g.has_dout(1)) g.add(4, g.dout(1));
  if (!wanted) return;
  Value dv = g.has_dout(3) ? scaled(g, g.dout(3), unbiased_of(g.attrs())) : ir::kNoValue;
  if (g.has_dout(4)) {
    const Value cube = times(g, g.emit("square", {g.out(4)}), g.out(4));
    const Value part = scaled(g, times(g, cube, g.dout(4)), -0.5);
    dv = dv == ir::kNoValue ? part : g.emit("add", {dv, part});
  }
  if (dv == ir::kNoValue) dv = g.constant(0, g.type(g.out(4)));
  const Values d = g.emit_all("norm_weights_grad", {g.in(0), g.in(1), g.in(2), g.in(3), g.out(2), g.out(4), g.dout(0),
                                                    g.dout(1), g.dout(2), dv});
  for (int i = 0; i < 4; ++i) g.add(i, d[static_cast<size_t>(i)]);
}

Cost cost(const OpView& v) {
  return {.flops = 2 * static_cast<double>(v.in(1).count()) * static_cast<double>(v.in(2).shape.cols())};
}
Cost grad_cost(const OpView& v) {
  return {.flops = 5 * static_cast<double>(v.in(1).count()) * static_cast<double>(v.in(2).shape.cols())};
}
Cost slope_cost(const OpView& v) { return {.flops = 4 * static_cast<double>(v.in(2).count())}; }

// v of a column, of these values or of their magnitudes.
double quadratic(const double* cov, const double* w, int64_t inner, int64_t cols, int64_t col) {
  double v = 0;
  for (int64_t i = 0; i < inner; ++i)
    for (int64_t j = 0; j < inner; ++j) v += w[i * cols + col] * cov[i * inner + j] * w[j * cols + col];
  return v;
}
void reference(const RefCall& c) {
  const RefTensor &mean = c.in[0], &cov = c.in[1], &w = c.in[2], &gamma = c.in[3], &beta = c.in[4];
  const int64_t inner = w.shape().rows(), cols = w.shape().cols();
  for (int64_t col = 0; col < cols; ++col) {
    const double v = std::max(0.0, quadratic(cov.data, w.data, inner, cols, col));  // below 0: rounding
    const double rstd = 1 / std::sqrt(v + c.attrs.number("eps"));
    double product = 0;
    for (int64_t i = 0; i < inner; ++i) {
      product += mean[i] * w[i * cols + col];
      c.out[0][i * cols + col] = w[i * cols + col] * gamma[col] * rstd;
    }
    c.out[1][col] = beta[col] - product * gamma[col] * rstd;
    c.out[2][col] = product;
    c.out[3][col] = v * unbiased_of(c.attrs);
    c.out[4][col] = rstd;
  }
}
void magnitude(const RefCall& c) {
  const RefTensor &w = c.in[2], &gamma = c.in[3], &beta = c.in[4];
  const int64_t inner = w.shape().rows(), cols = w.shape().cols();
  reference(c);
  const std::vector<double> mean(c.out[2].data, c.out[2].data + cols), rstd(c.out[4].data, c.out[4].data + cols);
  reference(AbsoluteCall(c).call());
  for (int64_t col = 0; col < cols; ++col) {
    const double r = rstd[static_cast<size_t>(col)], v = c.out[3][col] / unbiased_of(c.attrs);
    const double size = r + 0.5 * r * r * r * v;
    for (int64_t i = 0; i < inner; ++i) c.out[0][i * cols + col] = std::fabs(w[i * cols + col] * gamma[col]) * size;
    c.out[1][col] = std::fabs(beta[col]) +
                    std::fabs(gamma[col]) * (c.out[2][col] * r + std::fabs(mean[static_cast<size_t>(col)]) * size);
    c.out[4][col] = size;
  }
}

// With what the sums are made of in `sign`: 1, or -1 where magnitudes must not cancel.
void grad_of(const RefCall& c, double sign) {
  const RefTensor &mean = c.in[0], &cov = c.in[1], &w = c.in[2], &gamma = c.in[3], &product = c.in[4], &rstd = c.in[5];
  const RefTensor &dweight = c.in[6], &dshift = c.in[7], &dmean = c.in[8], &dv = c.in[9];
  const RefTensor &dx_mean = c.out[0], &dcov = c.out[1], &dw = c.out[2], &dgamma = c.out[3];
  const int64_t inner = w.shape().rows(), cols = w.shape().cols();
  std::fill_n(dx_mean.data, dx_mean.count(), 0);
  std::fill_n(dcov.data, dcov.count(), 0);
  for (int64_t o = 0; o < cols; ++o) {
    double dscale = -sign * product[o] * dshift[o];
    for (int64_t i = 0; i < inner; ++i) dscale += w[i * cols + o] * dweight[i * cols + o];
    const double scale = gamma[o] * rstd[o], dm = dmean[o] - sign * scale * dshift[o];
    const double d = dv[o] - sign * 0.5 * rstd[o] * rstd[o] * rstd[o] * gamma[o] * dscale;
    dgamma[o] = dscale * rstd[o];
    for (int64_t i = 0; i < inner; ++i) {
      dx_mean[i] += w[i * cols + o] * dm;
      double sum = 0;
      for (int64_t j = 0; j < inner; ++j) {
        dcov[i * inner + j] += w[i * cols + o] * d * w[j * cols + o];
        sum += (cov[i * inner + j] + cov[j * inner + i]) * w[j * cols + o];
      }
      dw[i * cols + o] = dweight[i * cols + o] * scale + mean[i] * dm + sum * d;
    }
  }
}
void grad_reference(const RefCall& c) { grad_of(c, 1); }
void grad_magnitude(const RefCall& c) { grad_of(AbsoluteCall(c).call(), -1); }

constexpr std::string_view kCovarianceExamples =
    "f32[7,9]; f32[1]; f32[5]; f32[2,1]; f32[3,5,7,3]; f32[33,17]+; f32[65,64]; f32[100,31]*20; f32[129,1];"
    "f32[2,8,8,16]; f32[700,24]+; f32[1200,5]; f32[2,40,15,33]; f32[520,65]";
constexpr std::string_view kSlopeExamples =
    "f32[3], f32[3], f32[3,3] {rows=9}; f32[1], f32[1], f32[1,1] {rows=1}; f32[17], f32[17], f32[17,17] {rows=100};"
    "f32[64], f32[64], f32[64,64] {rows=7}; f32[31], f32[31], f32[31,31]*9 {rows=3}; f32[100], f32[100], f32[100,100] "
    "{rows=40}";
// Positive numbers: at a variance of 0 the gradient is that of the side above it, which differences do not see.
constexpr std::string_view kExamples =
    "f32[3], f32[3,3]+, f32[3,7]+, f32[7], f32[7] {eps=1.0e-5, rows=9};"
    "f32[1], f32[1,1]+, f32[1,1]+, f32[1], f32[1] {eps=1.0e-3, rows=1};"
    "f32[16], f32[16,16]+, f32[1,1,16,96]+, f32[96]+, f32[96] {eps=1.0e-5, rows=1000};"
    "f32[9], f32[9,9]+, f32[9,1]+, f32[1], f32[1] {eps=0.1, rows=2};"
    "f32[17], f32[17,17]+, f32[1,1,17,33]+, f32[33], f32[33]*9 {eps=1.0e-5, rows=64};"
    "f32[33], f32[33,33]+, f32[33,65]+, f32[65], f32[65] {eps=0.01, rows=7};"
    "f32[65], f32[65,65]+, f32[65,130]+, f32[130], f32[130] {eps=1.0e-5, rows=300}";
constexpr std::string_view kGradExamples =
    "f32[3], f32[3,3], f32[3,7], f32[7], f32[7], f32[7]+, f32[3,7], f32[7], f32[7], f32[7];"
    "f32[1], f32[1,1], f32[1,1], f32[1], f32[1], f32[1]+, f32[1,1], f32[1], f32[1], f32[1];"
    "f32[16], f32[16,16], f32[1,1,16,96], f32[96], f32[96], f32[96]+, f32[1,1,16,96], f32[96], f32[96]=0, f32[96]=0;"
    "f32[9], f32[9,9]+, f32[9,1], f32[1], f32[1], f32[1]+, f32[9,1], f32[1], f32[1], f32[1];"
    "f32[17], f32[17,17], f32[1,1,17,33], f32[33], f32[33], f32[33]+, f32[1,1,17,33]*5, f32[33], f32[33]=0, f32[33];"
    "f32[6], f32[6,6], f32[6,65]+, f32[65], f32[65], f32[65]+, f32[6,65], f32[65]*9, f32[65], f32[65];"
    "f32[65], f32[65,65], f32[65,130], f32[130], f32[130], f32[130]+, f32[65,130], f32[130], f32[130], f32[130]";

}  // namespace

OpList norm_weights() {
  static constexpr OpDef defs[] = {{.name = "covariance",
                                    .signature = "(x: float) -> mean, cov",
                                    .type = covariance_type,
                                    .grad = covariance_gradient,
                                    .cost = covariance_cost,
                                    .reference = covariance_reference,
                                    .magnitude = covariance_magnitude,
                                    .examples = kCovarianceExamples},
                                   {.name = "covariance_slope",
                                    .signature = "(mean: float, dmean: float, dcov: float) -> slope, shift",
                                    .type = slope_type,
                                    .cost = slope_cost,
                                    .reference = slope_reference,
                                    .magnitude = slope_magnitude,
                                    .examples = kSlopeExamples},
                                   {.name = "norm_weights",
                                    .signature = "(mean: float, cov: float, w: float, gamma: float, beta: float) -> "
                                                 "weight, shift, mean, var, rstd",
                                    .type = type,
                                    .grad = gradient,
                                    .cost = cost,
                                    .reference = reference,
                                    .magnitude = magnitude,
                                    .examples = kExamples},
                                   {.name = "norm_weights_grad",
                                    .signature = "(mean: float, cov: float, w: float, gamma: float, product_mean: "
                                                 "float, rstd: float, dweight: float, dshift: float, dproduct_mean: "
                                                 "float, dv: float) -> dmean, dcov, dw, dgamma",
                                    .type = grad_type,
                                    .cost = grad_cost,
                                    .reference = grad_reference,
                                    .magnitude = grad_magnitude,
                                    .examples = kGradExamples}};
  return defs;
}
}  // namespace situ::ops::defs
