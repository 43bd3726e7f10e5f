// layer_norm.cpp -- every row (last axis) normalised by its own statistics; rms_norm leaves the mean out.
//
//   layer_norm  h = (x - mean) rstd, y = h gamma + beta, rstd = 1 / sqrt(mean((x - mean)^2) + eps)
//   rms_norm    h = x rstd, y = h gamma, rstd = 1 / sqrt(mean(x^2) + eps)
//   dx = rstd (g - mean(g) - h mean(g h)), g = dy gamma (rms: without mean(g)); dgamma = sum dy h, dbeta = sum dy
// mean and rstd have x's shape without its last axis.
#include <cmath>
#include <numeric>

#include "ops/pointwise_op.h"

namespace situ::ops::defs {
namespace {

using elementwise::scaled;
using elementwise::times;

// --- types ---
Shape rows_shape(const Shape& x) {
  std::vector<int64_t> dims = x.dims();
  dims.pop_back();
  return Shape(dims);
}
void need_x(const OpView& v) {
  need(v.in(0).dtype == DType::f32 && v.in(0).shape.rank() >= 1, "x must be f32 with an axis");
}
void need_columns(const OpView& v, int i) {
  if (v.in(i) != f32({v.in(0).shape.cols()})) fail("operand {} must be f32[{}]", i, v.in(0).shape.cols());
}
void need_rows(const OpView& v, int i) {
  const Type expected = f32(rows_shape(v.in(0).shape));
  if (v.in(i) != expected) fail("operand {} must be {}", i, to_string(expected));
}
void need_alike(const OpView& v) { need(v.in(0) == v.in(1), "x and dy must have one type"); }

// MEAN: layer_norm; else rms_norm, which has no beta and no mean.
template <bool MEAN>
Types type(const OpView& v) {
  need(v.arity() == (MEAN ? 3 : 2), MEAN ? "3 operands are needed: x, gamma, beta" : "2 operands are needed: x, gamma");
  need_x(v);
  for (int i = 1; i < v.arity(); ++i) need_columns(v, i);
  need(v.attrs.number("eps") > 0, "`eps` must be positive");
  const Type rows = f32(rows_shape(v.in(0).shape));
  return MEAN ? Types{v.in(0), rows, rows} : Types{v.in(0), rows};
}
template <bool MEAN>
Types dx_type(const OpView& v) {
  need(v.arity() == (MEAN ? 5 : 4),
       MEAN ? "5 operands are needed: x, dy, gamma, mean, rstd" : "4 operands are needed: x, dy, gamma, rstd");
  need_x(v);
  need_alike(v);
  need_columns(v, 2);
  for (int i = 3; i < v.arity(); ++i) need_rows(v, i);
  return {v.in(0)};
}
template <bool MEAN>
Types dparams_type(const OpView& v) {
  need(v.arity() == (MEAN ? 4 : 3),
       MEAN ? "4 operands are needed: x, dy, mean, rstd" : "3 operands are needed: x, dy, rstd");
  need_x(v);
  need_alike(v);
  for (int i = 2; i < v.arity(); ++i) need_rows(v, i);
  return Types(MEAN ? 2 : 1, f32({v.in(0).shape.cols()}));
}

// --- gradients ---
// A value per row, with a last axis of 1 to stretch over the columns.
Value as_column(GradBuilder& g, Value rows) {
  std::vector<int64_t> dims = g.type(rows).shape.dims();
  dims.push_back(1);
  return g.emit("reshape", {rows}, {{"shape", dims}});
}
// What arrives at rstd: -rstd^3 drstd / n, times x or x - mean.
Value slope_of_rstd(GradBuilder& g, int rstd) {
  const Value cube = times(g, g.emit("square", {g.out(rstd)}), g.out(rstd));
  const double n = static_cast<double>(g.type(g.in(0)).shape.cols());
  return as_column(g, scaled(g, times(g, cube, g.dout(rstd)), -1 / n));
}

void gradient(GradBuilder& g) {
  const Value x = g.in(0), mean = g.out(1), rstd = g.out(2);
  if (g.has_dout(0) && g.wants(0)) g.add(0, g.emit("layer_norm_dx", {x, g.dout(0), g.in(1), mean, rstd}));
  if (g.has_dout(0) && (g.wants(1) || g.wants(2))) {
    const Values d = g.emit_all("layer_norm_dparams", {x, g.dout(0), mean, rstd});
    for (int i = 0; i < 2; ++i) g.add(i + 1, d[static_cast<size_t>(i)]);
  }
  if (!g.wants(0)) return;
  if (g.has_dout(2)) g.add(0, times(g, g.emit("sub", {x, as_column(g, mean)}), slope_of_rstd(g, 2)));
  if (g.has_dout(1)) {
    const Shape shape = g.type(x).shape;
    const std::string expr = fmt::format("t0 = mul(i0, {:a})", 1 / static_cast<double>(shape.cols()));
    g.add(0, g.emit("fused", {as_column(g, g.dout(1))}, {{"expr", expr}, {"shape", shape.dims()}}));
  }
}
void rms_gradient(GradBuilder& g) {
  const Value x = g.in(0), rstd = g.out(1);
  if (g.has_dout(0) && g.wants(0)) g.add(0, g.emit("rms_norm_dx", {x, g.dout(0), g.in(1), rstd}));
  if (g.has_dout(0) && g.wants(1)) g.add(1, g.emit("rms_norm_dparams", {x, g.dout(0), rstd}));
  if (g.has_dout(1) && g.wants(0)) g.add(0, times(g, x, slope_of_rstd(g, 1)));
}

template <int flops>
Cost cost(const OpView& v) {
  return {.flops = flops * static_cast<double>(v.in(0).count())};
}
std::vector<Alias> over_x_or_dy(const OpView&) { return {{0, 0}, {0, 1}}; }

// --- references ---
struct Row {
  const double* x;
  int64_t n;
  double mean, rstd;
  double centred(int64_t i) const { return x[i] - mean; }
};
template <bool MEAN>
Row row_of(const RefTensor& x, int64_t r, double eps) {
  const int64_t cols = x.shape().cols();
  Row row{x.data + r * cols, cols, 0, 0};
  const double n = static_cast<double>(cols);
  if (MEAN) row.mean = std::accumulate(row.x, row.x + cols, 0.0) / n;
  double squares = 0;
  for (int64_t i = 0; i < cols; ++i) squares += row.centred(i) * row.centred(i);
  row.rstd = 1 / std::sqrt(squares / n + eps);
  return row;
}

template <bool MEAN>
void reference(const RefCall& c) {
  const int64_t cols = c.in[0].shape().cols();
  for (int64_t r = 0; r < c.in[0].shape().rows(); ++r) {
    const Row row = row_of<MEAN>(c.in[0], r, c.attrs.number("eps"));
    for (int64_t i = 0; i < cols; ++i)
      c.out[0][r * cols + i] = row.centred(i) * row.rstd * c.in[1][i] + (MEAN ? c.in[2][i] : 0);
    if (MEAN) c.out[1][r] = row.mean;
    c.out.back()[r] = row.rstd;
  }
}
// Errors of x move the mean of squares by 2 |x - mean| of them; those of the mean cancel there.
template <bool MEAN>
void magnitude(const RefCall& c) {
  const int64_t cols = c.in[0].shape().cols();
  for (int64_t r = 0; r < c.in[0].shape().rows(); ++r) {
    const Row row = row_of<MEAN>(c.in[0], r, c.attrs.number("eps"));
    double mean = 0, squares = 0;
    for (int64_t i = 0; i < cols; ++i) {
      const double size = std::fabs(row.x[i]), centred = std::fabs(row.centred(i));
      if (MEAN) mean += size / static_cast<double>(cols);
      squares += (centred * centred + 2 * centred * size) / static_cast<double>(cols);
    }
    const double rstd = row.rstd + 0.5 * row.rstd * row.rstd * row.rstd * squares;
    for (int64_t i = 0; i < cols; ++i)
      c.out[0][r * cols + i] =
          ((std::fabs(row.x[i]) + mean) * row.rstd + std::fabs(row.centred(i)) * rstd) * std::fabs(c.in[1][i]) +
          (MEAN ? std::fabs(c.in[2][i]) : 0);
    if (MEAN) c.out[1][r] = mean;
    c.out.back()[r] = rstd;
  }
}

// x, dy, gamma, mean, rstd -> dx; without the mean: x, dy, gamma, rstd.
template <bool MEAN>
void dx_reference(const RefCall& c) {
  const int64_t cols = c.in[0].shape().cols();
  const double n = static_cast<double>(cols);
  for (int64_t r = 0; r < c.in[0].shape().rows(); ++r) {
    const double *dy = c.in[1].data + r * cols, rstd = c.in.back()[r];
    const Row row{c.in[0].data + r * cols, cols, MEAN ? c.in[3][r] : 0, rstd};
    double plain = 0, product = 0;
    for (int64_t i = 0; i < cols; ++i) {
      if (MEAN) plain += dy[i] * c.in[2][i] / n;
      product += dy[i] * c.in[2][i] * row.centred(i) * rstd / n;
    }
    for (int64_t i = 0; i < cols; ++i)
      c.out[0][r * cols + i] = rstd * (dy[i] * c.in[2][i] - plain - row.centred(i) * rstd * product);
  }
}
template <bool MEAN>
void dx_magnitude(const RefCall& c) {
  const int64_t cols = c.in[0].shape().cols();
  const double n = static_cast<double>(cols);
  for (int64_t r = 0; r < c.in[0].shape().rows(); ++r) {
    const double *dy = c.in[1].data + r * cols, rstd = std::fabs(c.in.back()[r]);
    const Row row{c.in[0].data + r * cols, cols, MEAN ? c.in[3][r] : 0, rstd};
    const auto size = [&](int64_t i) { return (std::fabs(row.x[i]) + std::fabs(row.mean)) * rstd; };
    double plain = 0, product = 0, product_size = 0;
    for (int64_t i = 0; i < cols; ++i) {
      const double g = dy[i] * c.in[2][i] / n;
      if (MEAN) plain += std::fabs(g);
      product += g * row.centred(i) * rstd;
      product_size += std::fabs(g) * size(i);
    }
    for (int64_t i = 0; i < cols; ++i)
      c.out[0][r * cols + i] = rstd * (std::fabs(dy[i] * c.in[2][i]) + plain + size(i) * std::fabs(product) +
                                       std::fabs(row.centred(i)) * rstd * product_size);
  }
}

// x, dy, mean, rstd -> dgamma, dbeta; without the mean: x, dy, rstd -> dgamma.
template <bool MEAN>
void dparams_reference(const RefCall& c) {
  const int64_t cols = c.in[0].shape().cols();
  for (const RefTensor& t : c.out) std::fill_n(t.data, cols, 0.0);
  for (int64_t i = 0; i < c.in[0].count(); ++i) {
    const double mean = MEAN ? c.in[2][i / cols] : 0;
    c.out[0][i % cols] += c.in[1][i] * (c.in[0][i] - mean) * c.in.back()[i / cols];
    if (MEAN) c.out[1][i % cols] += c.in[1][i];
  }
}
template <bool MEAN>
void dparams_magnitude(const RefCall& c) {
  const int64_t cols = c.in[0].shape().cols();
  for (const RefTensor& t : c.out) std::fill_n(t.data, cols, 0.0);
  for (int64_t i = 0; i < c.in[0].count(); ++i) {
    const double size = std::fabs(c.in[0][i]) + (MEAN ? std::fabs(c.in[2][i / cols]) : 0);
    c.out[0][i % cols] += std::fabs(c.in[1][i] * c.in.back()[i / cols]) * size;
    if (MEAN) c.out[1][i % cols] += std::fabs(c.in[1][i]);
  }
}

// --- examples: rows around vector widths, one of each, many rows, a mean far from 0 ---
constexpr std::string_view kLayer =
    "f32[7,9], f32[9], f32[9] {eps=1.0e-5}; f32[1], f32[1], f32[1] {eps=0.1}; f32[33], f32[33], f32[33] {eps=1.0e-5};"
    "f32[5,1], f32[1], f32[1] {eps=0.01}; f32[2,3,8], f32[8], f32[8] {eps=1.0e-5}; f32[2,3,4,17], f32[17], f32[17] "
    "{eps=1.0e-3}; f32[4,64]+, f32[64], f32[64] {eps=1.0e-5}; f32[3,65]*30, f32[65], f32[65] {eps=1.0e-5};"
    "f32[50,31], f32[31], f32[31] {eps=1.0e-5}; f32[3,1000]+, f32[1000], f32[1000] {eps=1.0e-5}";
constexpr std::string_view kLayerDx =
    "f32[7,9], f32[7,9], f32[9], f32[7], f32[7]+; f32[1], f32[1], f32[1], f32[], f32[]+; f32[33], f32[33], f32[33], "
    "f32[], f32[]+; f32[5,1], f32[5,1], f32[1], f32[5], f32[5]+; f32[2,3,8], f32[2,3,8], f32[8], f32[2,3], f32[2,3]+;"
    "f32[2,3,4,17], f32[2,3,4,17], f32[17], f32[2,3,4], f32[2,3,4]+; f32[4,64], f32[4,64], f32[64], f32[4], f32[4]+;"
    "f32[3,65], f32[3,65], f32[65], f32[3], f32[3]+; f32[50,31], f32[50,31], f32[31], f32[50], f32[50]+;"
    "f32[3,1000], f32[3,1000], f32[1000], f32[3], f32[3]+";
constexpr std::string_view kLayerDparams =
    "f32[7,9], f32[7,9], f32[7], f32[7]+; f32[1], f32[1], f32[], f32[]+; f32[33], f32[33], f32[], f32[]+;"
    "f32[5,1], f32[5,1], f32[5], f32[5]+; f32[2,3,8], f32[2,3,8], f32[2,3], f32[2,3]+; f32[2,3,40,17], f32[2,3,40,17], "
    "f32[2,3,40], f32[2,3,40]+; f32[4,64], f32[4,64], f32[4], f32[4]+; f32[3,130], f32[3,130], f32[3], f32[3]+;"
    "f32[1500,31], f32[1500,31], f32[1500], f32[1500]+";
constexpr std::string_view kRms =
    "f32[7,9], f32[9] {eps=1.0e-5}; f32[1], f32[1] {eps=0.1}; f32[33], f32[33] {eps=1.0e-5}; f32[5,1], f32[1] "
    "{eps=0.01}; f32[2,3,8], f32[8] {eps=1.0e-5}; f32[2,3,4,17], f32[17] {eps=1.0e-3}; f32[4,64]+, f32[64] "
    "{eps=1.0e-5}; f32[3,65]*30, f32[65] {eps=1.0e-5}; f32[50,31], f32[31] {eps=1.0e-5}; f32[3,1000], f32[1000] "
    "{eps=1.0e-5}";
constexpr std::string_view kRmsDx =
    "f32[7,9], f32[7,9], f32[9], f32[7]+; f32[1], f32[1], f32[1], f32[]+; f32[33], f32[33], f32[33], f32[]+;"
    "f32[5,1], f32[5,1], f32[1], f32[5]+; f32[2,3,8], f32[2,3,8], f32[8], f32[2,3]+; f32[2,3,4,17], f32[2,3,4,17], "
    "f32[17], f32[2,3,4]+; f32[4,64], f32[4,64], f32[64], f32[4]+; f32[3,65], f32[3,65], f32[65], f32[3]+;"
    "f32[50,31], f32[50,31], f32[31], f32[50]+; f32[3,1000], f32[3,1000], f32[1000], f32[3]+";
constexpr std::string_view kRmsDparams =
    "f32[7,9], f32[7,9], f32[7]+; f32[1], f32[1], f32[]+; f32[33], f32[33], f32[]+; f32[5,1], f32[5,1], f32[5]+;"
    "f32[2,3,8], f32[2,3,8], f32[2,3]+; f32[2,3,40,17], f32[2,3,40,17], f32[2,3,40]+; f32[4,64], f32[4,64], f32[4]+;"
    "f32[3,130], f32[3,130], f32[3]+; f32[1500,31], f32[1500,31], f32[1500]+";

}  // namespace

OpList layer_norm() {
  static constexpr OpDef defs[] = {{.name = "layer_norm",
                                    .signature = "(x: float, gamma: float, beta: float) -> y, mean, rstd",
                                    .type = type<true>,
                                    .grad = gradient,
                                    .cost = cost<8>,
                                    .reference = reference<true>,
                                    .magnitude = magnitude<true>,
                                    .aliases = first_over_first,
                                    .examples = kLayer},
                                   {.name = "layer_norm_dx",
                                    .signature = "(x: float, dy: float, gamma: float, mean: float, rstd: float) -> dx",
                                    .type = dx_type<true>,
                                    .cost = cost<11>,
                                    .reference = dx_reference<true>,
                                    .magnitude = dx_magnitude<true>,
                                    .aliases = over_x_or_dy,
                                    .examples = kLayerDx},
                                   {.name = "layer_norm_dparams",
                                    .signature = "(x: float, dy: float, mean: float, rstd: float) -> dgamma, dbeta",
                                    .type = dparams_type<true>,
                                    .cost = cost<5>,
                                    .reference = dparams_reference<true>,
                                    .magnitude = dparams_magnitude<true>,
                                    .examples = kLayerDparams},
                                   {.name = "rms_norm",
                                    .signature = "(x: float, gamma: float) -> y, rstd",
                                    .type = type<false>,
                                    .grad = rms_gradient,
                                    .cost = cost<4>,
                                    .reference = reference<false>,
                                    .magnitude = magnitude<false>,
                                    .aliases = first_over_first,
                                    .examples = kRms},
                                   {.name = "rms_norm_dx",
                                    .signature = "(x: float, dy: float, gamma: float, rstd: float) -> dx",
                                    .type = dx_type<false>,
                                    .cost = cost<8>,
                                    .reference = dx_reference<false>,
                                    .magnitude = dx_magnitude<false>,
                                    .aliases = over_x_or_dy,
                                    .examples = kRmsDx},
                                   {.name = "rms_norm_dparams",
                                    .signature = "(x: float, dy: float, rstd: float) -> dgamma",
                                    .type = dparams_type<false>,
                                    .cost = cost<3>,
                                    .reference = dparams_reference<false>,
                                    .magnitude = dparams_magnitude<false>,
                                    .examples = kRmsDparams}};
  return defs;
}
}  // namespace situ::ops::defs
