// batch_norm.cpp -- each channel (last axis) normalised over all other axes, and the parts it is made of.
//
//   mean = sum x / n, m2 = sum (x - mean)^2, rstd = 1 / sqrt(m2 / n + eps)                moments
//   var  = m2 / max(1, n - 1), the unbiased one, which running statistics keep
//   y    = (x - mean) rstd gamma + beta                                                   normalize, pointwise
//   dgamma = sum dy (x - mean) rstd, dbeta = sum dy                                       norm_sums
//   dx   = rstd gamma (dy - (dbeta + (x - mean) rstd dgamma) / n)                         norm_dx, pointwise
// Devices have kernels of the parts only, so the pointwise halves fuse with what stands around them. A layer that is
// not trained uses normalize alone, with statistics from elsewhere.
#include <algorithm>
#include <cmath>

#include "ops/pointwise_op.h"
#include "ops/statistics.h"

namespace situ::ops::defs {
namespace {

using elementwise::give;
using elementwise::pointwise_op;
using elementwise::scaled;
using elementwise::times;

// --- types ---
void need_channels(const OpView& v, int first, int last) {
  need(v.in(0).dtype == DType::f32 && v.in(0).shape.rank() >= 1, "x must be f32 with a channel axis");
  for (int i = first; i < last; ++i)
    if (v.in(i) != f32({v.in(0).shape.cols()})) fail("operand {} must be f32[{}]", i, v.in(0).shape.cols());
}
void need_alike(const OpView& v) { need(v.in(0) == v.in(1), "x and dy must have one type"); }
Types channels(const OpView& v, int results) {
  return Types(static_cast<size_t>(results), f32({v.in(0).shape.cols()}));
}

Types moments_type(const OpView& v) {
  need(v.arity() == 1, "one operand is needed");
  need_channels(v, 1, 1);
  need(v.attrs.number("eps") > 0, "`eps` must be positive");
  return channels(v, 3);
}
Types type(const OpView& v) {
  need(v.arity() == 3, "3 operands are needed: x, gamma, beta");
  need_channels(v, 1, 3);
  need(v.attrs.number("eps") > 0, "`eps` must be positive");
  Types types = channels(v, 4);
  types[0] = v.in(0);
  return types;
}
Types sums_type(const OpView& v) {
  need(v.arity() == 4, "4 operands are needed: x, dy, mean, rstd");
  need_channels(v, 2, 4);
  need_alike(v);
  return channels(v, 2);
}
Types grad_type(const OpView& v) {
  need(v.arity() == 5, "5 operands are needed: x, dy, mean, rstd, gamma");
  need_channels(v, 2, 5);
  need_alike(v);
  Types types = channels(v, 3);
  types[0] = v.in(0);
  return types;
}

// --- gradients ---
double rows_of(GradBuilder& g) { return static_cast<double>(g.type(g.in(0)).shape.rows()); }

// What arrives at mean, var and rstd: dx = dmean / n + (x - mean) (2 dvar n / (n - 1) - rstd^3 drstd) / n.
void through_statistics(GradBuilder& g, int mean, int var, int rstd) {
  const double inv_n = 1 / rows_of(g);
  Value slope = ir::kNoValue, dx = ir::kNoValue;
  if (g.has_dout(var)) slope = scaled(g, g.dout(var), 2 * inv_n * unbiased(rows_of(g)));
  if (g.has_dout(rstd)) {
    const Value cube = times(g, g.emit("square", {g.out(rstd)}), g.out(rstd));
    const Value part = scaled(g, times(g, cube, g.dout(rstd)), -inv_n);
    slope = slope == ir::kNoValue ? part : g.emit("add", {slope, part});
  }
  if (slope != ir::kNoValue) dx = times(g, g.emit("sub", {g.in(0), g.out(mean)}), slope);
  if (g.has_dout(mean)) {
    const Value part = scaled(g, g.dout(mean), inv_n);
    const Attrs stretched{{"expr", "t0 = mul(i0, 0x1p+0)"}, {"shape", g.type(g.in(0)).shape.dims()}};
    dx = dx == ir::kNoValue ? g.emit("fused", {part}, stretched) : g.emit("add", {dx, part});
  }
  if (dx != ir::kNoValue) g.add(0, dx);
}

void moments_gradient(GradBuilder& g) {
  if (g.wants(0)) through_statistics(g, 0, 1, 2);
}
void gradient(GradBuilder& g) {
  const Value x = g.in(0), mean = g.out(1), rstd = g.out(3);
  if (g.has_dout(0) && g.wants(0)) {
    const Values d = g.emit_all("batch_norm_grad", {x, g.dout(0), mean, rstd, g.in(1)});
    for (int i = 0; i < 3; ++i) g.add(i, d[static_cast<size_t>(i)]);
  } else if (g.has_dout(0) && (g.wants(1) || g.wants(2))) {
    const Values d = g.emit_all("norm_sums", {x, g.dout(0), mean, rstd});
    for (int i = 1; i < 3; ++i) g.add(i, d[static_cast<size_t>(i - 1)]);
  }
  if (g.wants(0)) through_statistics(g, 1, 2, 3);
}

// normalize: what a batch norm with given statistics needs, and those too.
void normalize_gradient(GradBuilder& g) {
  const Value dy = g.dout(0), mean = g.in(1), rstd = g.in(2);
  const auto factor = [&] { return times(g, dy, times(g, rstd, g.in(3))); };
  const auto centred = [&] { return times(g, dy, g.emit("sub", {g.in(0), mean})); };
  if (g.wants(0)) give(g, 0, factor());
  if (g.wants(1)) g.add(1, g.emit("neg", {g.sum_to(factor(), g.type(mean).shape)}));
  if (g.wants(2)) give(g, 2, times(g, centred(), g.in(3)));
  if (g.wants(3)) give(g, 3, times(g, centred(), rstd));
  if (g.wants(4)) give(g, 4, dy);
}

// --- parts ---
Values expand(Graph& graph, const Values& in, const Attrs& attrs) {
  const Values m = emit_all(graph, "moments", {in[0]}, {{"eps", attrs.number("eps")}});
  return {emit(graph, "normalize", {in[0], m[0], m[2], in[1], in[2]}), m[0], m[1], m[2]};
}
Values expand_grad(Graph& graph, const Values& in, const Attrs&) {
  const Value x = in[0], dy = in[1], mean = in[2], rstd = in[3], gamma = in[4];
  const Values sums = emit_all(graph, "norm_sums", {x, dy, mean, rstd});
  const Value inv_n = graph.constant(1 / static_cast<double>(graph.type(x).shape.rows()), f32(Shape{}));
  return {emit(graph, "norm_dx", {dy, x, mean, rstd, gamma, sums[0], sums[1], inv_n}), sums[0], sums[1]};
}

Cost cost(const OpView& v) { return {.flops = 8 * static_cast<double>(v.in(0).count())}; }
Cost moments_cost(const OpView& v) { return {.flops = 4 * static_cast<double>(v.in(0).count())}; }
Cost sums_cost(const OpView& v) { return {.flops = 4 * static_cast<double>(v.in(0).count())}; }

// --- references ---
void moments_of(const RefTensor& x, const Attrs& attrs, const RefTensor& mean, const RefTensor& var,
                const RefTensor& rstd) {
  const int64_t rows = x.shape().rows(), cols = x.shape().cols();
  const double n = static_cast<double>(rows);
  for (int64_t c = 0; c < cols; ++c) {
    mean[c] = var[c] = 0;
    for (int64_t r = 0; r < rows; ++r) mean[c] += x[r * cols + c] / n;
    for (int64_t r = 0; r < rows; ++r) var[c] += (x[r * cols + c] - mean[c]) * (x[r * cols + c] - mean[c]) / n;
    rstd[c] = 1 / std::sqrt(var[c] + attrs.number("eps"));
    var[c] *= unbiased(n);
  }
}

// An error of eps |x| in x moves var by 2 |x - mean| of it; the errors of mean cancel there.
struct Sizes {
  double mean = 0, var = 0, rstd = 0;
};
Sizes sizes_of(const RefTensor& x, int64_t c, double mean, double rstd) {
  const int64_t rows = x.shape().rows(), cols = x.shape().cols();
  Sizes size;
  for (int64_t i = c; i < x.count(); i += cols) {
    const double v = std::fabs(x[i]), centred = std::fabs(x[i] - mean);
    size.mean += v / static_cast<double>(rows);
    size.var += (centred * centred + 2 * centred * v) / static_cast<double>(rows);
  }
  size.rstd = rstd + 0.5 * rstd * rstd * rstd * size.var;
  return size;
}

void moments_reference(const RefCall& c) { moments_of(c.in[0], c.attrs, c.out[0], c.out[1], c.out[2]); }
void moments_magnitude(const RefCall& c) {
  moments_reference(c);
  for (int64_t i = 0; i < c.out[0].count(); ++i) {
    const Sizes size = sizes_of(c.in[0], i, c.out[0][i], c.out[2][i]);
    c.out[0][i] = size.mean;
    c.out[1][i] = size.var * unbiased(static_cast<double>(c.in[0].shape().rows()));
    c.out[2][i] = size.rstd;
  }
}

void reference(const RefCall& c) {
  const RefTensor &x = c.in[0], &mean = c.out[1], &rstd = c.out[3];
  moments_of(x, c.attrs, mean, c.out[2], rstd);
  const int64_t cols = x.shape().cols();
  for (int64_t i = 0; i < x.count(); ++i)
    c.out[0][i] = (x[i] - mean[i % cols]) * rstd[i % cols] * c.in[1][i % cols] + c.in[2][i % cols];
}
void magnitude(const RefCall& c) {
  const RefTensor &x = c.in[0], &mean = c.out[1], &rstd = c.out[3];
  moments_of(x, c.attrs, mean, c.out[2], rstd);
  const int64_t cols = x.shape().cols();
  for (int64_t k = 0; k < cols; ++k) {
    const Sizes size = sizes_of(x, k, mean[k], rstd[k]);
    for (int64_t i = k; i < x.count(); i += cols)
      c.out[0][i] =
          ((std::fabs(x[i]) + size.mean) * rstd[k] + std::fabs(x[i] - mean[k]) * size.rstd) * std::fabs(c.in[1][k]) +
          std::fabs(c.in[2][k]);
    mean[k] = size.mean;
    c.out[2][k] = size.var * unbiased(static_cast<double>(x.shape().rows()));
    rstd[k] = size.rstd;
  }
}

void sums_reference(const RefCall& c) {
  const RefTensor &x = c.in[0], &dy = c.in[1], &dgamma = c.out[0], &dbeta = c.out[1];
  const int64_t cols = x.shape().cols();
  for (int64_t k = 0; k < cols; ++k) {
    dgamma[k] = dbeta[k] = 0;
    for (int64_t i = k; i < x.count(); i += cols) {
      dgamma[k] += dy[i] * (x[i] - c.in[2][k]) * c.in[3][k];
      dbeta[k] += dy[i];
    }
  }
}
void sums_magnitude(const RefCall& c) {
  const RefTensor &x = c.in[0], &dy = c.in[1], &dgamma = c.out[0], &dbeta = c.out[1];
  const int64_t cols = x.shape().cols();
  for (int64_t k = 0; k < cols; ++k) {
    dgamma[k] = dbeta[k] = 0;
    for (int64_t i = k; i < x.count(); i += cols) {
      dgamma[k] += std::fabs(dy[i] * c.in[3][k]) * (std::fabs(x[i]) + std::fabs(c.in[2][k]));
      dbeta[k] += std::fabs(dy[i]);
    }
  }
}

void grad_reference(const RefCall& c) {
  const RefTensor &x = c.in[0], &dy = c.in[1], &dx = c.out[0], &dgamma = c.out[1], &dbeta = c.out[2];
  sums_reference({c.attrs, c.in.first(4), c.out.last(2)});
  const int64_t cols = x.shape().cols();
  const double n = static_cast<double>(x.shape().rows());
  for (int64_t i = 0; i < x.count(); ++i) {
    const int64_t k = i % cols;
    const double normal = (x[i] - c.in[2][k]) * c.in[3][k];
    dx[i] = c.in[3][k] * c.in[4][k] * (dy[i] - (dbeta[k] + normal * dgamma[k]) / n);
  }
}
void grad_magnitude(const RefCall& c) {
  const RefTensor &x = c.in[0], &dy = c.in[1], &dx = c.out[0], &dgamma = c.out[1], &dbeta = c.out[2];
  const int64_t cols = x.shape().cols();
  const double n = static_cast<double>(x.shape().rows());
  grad_reference(c);
  const std::vector<double> exact(dgamma.data, dgamma.data + cols);
  sums_magnitude({c.attrs, c.in.first(4), c.out.last(2)});
  for (int64_t i = 0; i < x.count(); ++i) {
    const int64_t k = i % cols;
    const double rstd = std::fabs(c.in[3][k]), mean = std::fabs(c.in[2][k]);
    const double normal = std::fabs(x[i] - c.in[2][k]) * rstd, size = (std::fabs(x[i]) + mean) * rstd;
    const double term = size * std::fabs(exact[static_cast<size_t>(k)]) + normal * dgamma[k];
    dx[i] = rstd * std::fabs(c.in[4][k]) * (std::fabs(dy[i]) + (dbeta[k] + term) / n);
  }
}

double normalize_of(const double* a) { return (a[0] - a[1]) * a[2] * a[3] + a[4]; }
double norm_dx_of(const double* a) {  // dy, x, mean, rstd, gamma, dgamma, dbeta, 1 / n
  return a[3] * a[4] * (a[0] - a[7] * (a[6] + (a[1] - a[2]) * a[3] * a[5]));
}

// --- examples: few and many rows, channels around vector widths, one of each ---
constexpr std::string_view kMomentsExamples =
    "f32[7,9] {eps=1.0e-5}; f32[1] {eps=0.1}; f32[5] {eps=1.0e-3}; f32[2,1] {eps=1.0e-5}; f32[1,8] {eps=1.0e-5};"
    "f32[3,5,7,3] {eps=1.0e-5}; f32[33,17]+ {eps=1.0e-5}; f32[65,64] {eps=1.0e-3}; f32[100,31]*20 {eps=1.0e-5};"
    "f32[2,8,8,33] {eps=1.0e-5}; f32[129,1] {eps=1.0e-5}; f32[4100,15]+ {eps=1.0e-5}; f32[9,130] {eps=1.0e-5};"
    "f32[1200,65] {eps=1.0e-5}; f32[20000,3]+ {eps=1.0e-5}";
constexpr std::string_view kExamples =
    "f32[7,9], f32[9], f32[9] {eps=1.0e-5}; f32[1], f32[1], f32[1] {eps=0.1}; f32[5], f32[5], f32[5] {eps=1.0e-3};"
    "f32[2,1], f32[1], f32[1] {eps=1.0e-5}; f32[4,8], f32[8], f32[8] {eps=1.0e-5};"
    "f32[3,5,7,3], f32[3], f32[3] {eps=1.0e-5}; f32[33,17]+, f32[17], f32[17] {eps=1.0e-5};"
    "f32[65,64], f32[64], f32[64] {eps=1.0e-3}; f32[2,4,4,33], f32[33], f32[33] {eps=1.0e-5};"
    "f32[900,31]*9, f32[31], f32[31] {eps=1.0e-5}; f32[1200,15], f32[15], f32[15] {eps=1.0e-5}";
constexpr std::string_view kSumsExamples =
    "f32[7,9], f32[7,9], f32[9], f32[9]+; f32[1], f32[1], f32[1], f32[1]+; f32[5], f32[5], f32[5], f32[5]+;"
    "f32[2,1], f32[2,1], f32[1], f32[1]+; f32[3,5,7,3], f32[3,5,7,3], f32[3], f32[3]+;"
    "f32[33,17], f32[33,17], f32[17], f32[17]+; f32[65,64], f32[65,64], f32[64], f32[64]+;"
    "f32[2,4,4,33], f32[2,4,4,33], f32[33], f32[33]+; f32[2200,31], f32[2200,31], f32[31], f32[31]+;"
    "f32[9,130], f32[9,130], f32[130], f32[130]+; f32[1300,8], f32[1300,8], f32[8], f32[8]+";
constexpr std::string_view kGradExamples =
    "f32[7,9], f32[7,9], f32[9], f32[9]+, f32[9]; f32[1], f32[1], f32[1], f32[1]+, f32[1];"
    "f32[2,1], f32[2,1], f32[1], f32[1]+, f32[1]; f32[3,5,7,3], f32[3,5,7,3], f32[3], f32[3]+, f32[3];"
    "f32[33,17], f32[33,17], f32[17], f32[17]+, f32[17]; f32[65,64], f32[65,64], f32[64], f32[64]+, f32[64];"
    "f32[2,4,4,33], f32[2,4,4,33], f32[33], f32[33]+, f32[33]; f32[1300,8], f32[1300,8], f32[8], f32[8]+, f32[8]";
constexpr std::string_view kNormalizeExamples =
    "f32[7,9], f32[9], f32[9], f32[9], f32[9]; f32[], f32[], f32[], f32[], f32[]; f32[5,1], f32[1], f32[1], f32[1], "
    "f32[1]; f32[2,3,5,17], f32[17], f32[17], f32[17], f32[17]; f32[65,64], f32[64], f32[64]+, f32[64], f32[64];"
    "f32[6,31], f32[6,1], f32[6,1]+, f32[31], f32[31]; f32[9,130], f32[130], f32[130], f32[130], f32[130];"
    "f32[33], f32[33], f32[33], f32[33], f32[33]; f32[3,1500], f32[1500], f32[1500], f32[1500], f32[]";
constexpr std::string_view kDxExamples =
    "f32[7,9], f32[7,9], f32[9], f32[9]+, f32[9], f32[9], f32[9], f32[]; f32[], f32[], f32[], f32[], f32[], f32[], "
    "f32[], f32[]; f32[2,3,5,17], f32[2,3,5,17], f32[17], f32[17]+, f32[17], f32[17], f32[17], f32[];"
    "f32[65,64], f32[65,64], f32[64], f32[64]+, f32[64], f32[64], f32[64], f32[];"
    "f32[6,31], f32[6,31], f32[6,1], f32[6,1]+, f32[31], f32[31], f32[6,31], f32[]";

}  // namespace

OpList batch_norm() {
  static constexpr OpDef defs[] = {
      {.name = "batch_norm",
       .signature = "(x: float, gamma: float, beta: float) -> y, mean, var, rstd",
       .type = type,
       .grad = gradient,
       .cost = cost,
       .reference = reference,
       .magnitude = magnitude,
       .expand = expand,
       .examples = kExamples},
      {.name = "batch_norm_grad",
       .signature = "(x: float, dy: float, mean: float, rstd: float, gamma: float) -> dx, dgamma, dbeta",
       .type = grad_type,
       .cost = cost,
       .reference = grad_reference,
       .magnitude = grad_magnitude,
       .expand = expand_grad,
       .examples = kGradExamples},
      {.name = "moments",
       .signature = "(x: float) -> mean, var, rstd",
       .type = moments_type,
       .grad = moments_gradient,
       .cost = moments_cost,
       .reference = moments_reference,
       .magnitude = moments_magnitude,
       .examples = kMomentsExamples},
      {.name = "norm_sums",
       .signature = "(x: float, dy: float, mean: float, rstd: float) -> dgamma, dbeta",
       .type = sums_type,
       .cost = sums_cost,
       .reference = sums_reference,
       .magnitude = sums_magnitude,
       .examples = kSumsExamples},
      pointwise_op<5, normalize_of>("normalize", normalize_gradient, kNormalizeExamples,
                                    "(x: float, mean: float, rstd: float, gamma: float, beta: float) -> y"),
      pointwise_op<8, norm_dx_of>("norm_dx", elementwise::no_gradient, kDxExamples,
                                  "(dy: constant, x: constant, mean: constant, rstd: constant, gamma: constant, "
                                  "dgamma: constant, dbeta: constant, inv_n: constant) -> dx")};
  return defs;
}
}  // namespace situ::ops::defs
