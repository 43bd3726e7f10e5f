// group_norm.cpp -- the channels (last axis) of each image in groups, each group normalised by its own statistics.
//
//   h = (x - mean) rstd, y = h gamma + beta; mean and rstd [N, groups] over the axes between first and last and the
//   channels of a group; dx = rstd (g - mean(g) - h mean(g h)), g = dy gamma; dgamma = sum dy h, dbeta = sum dy
#include <algorithm>
#include <cmath>

#include "ops/pointwise_op.h"

namespace situ::ops::defs {
namespace {

using elementwise::scaled;
using elementwise::times;

// --- types ---
void need_x(const OpView& v) {
  need(v.in(0).dtype == DType::f32 && v.in(0).shape.rank() >= 2, "x must be f32 with axes of images and channels");
}
void need_channels(const OpView& v, int i) {
  if (v.in(i) != f32({v.in(0).shape.cols()})) fail("operand {} must be f32[{}]", i, v.in(0).shape.cols());
}
void need_statistics(const OpView& v, int first) {
  const Type& given = v.in(first);
  const Shape& x = v.in(0).shape;
  const bool fits = given.dtype == DType::f32 && given.shape.rank() == 2 && given.shape[0] == x[0] &&
                    given.shape[1] > 0 && x.cols() % given.shape[1] == 0;
  need(fits && given == v.in(first + 1), "mean and rstd must be f32[images, groups]");
}
void need_alike(const OpView& v) { need(v.in(0) == v.in(1), "x and dy must have one type"); }

Types type(const OpView& v) {
  need(v.arity() == 3, "3 operands are needed: x, gamma, beta");
  need_x(v);
  for (int i = 1; i < 3; ++i) need_channels(v, i);
  need(v.attrs.number("eps") > 0, "`eps` must be positive");
  const int64_t groups = v.attrs.integer("groups"), channels = v.in(0).shape.cols();
  if (groups < 1 || channels % groups) fail("{} channels do not make {} groups", channels, groups);
  const Type statistics = f32({v.in(0).shape[0], groups});
  return {v.in(0), statistics, statistics};
}
Types dx_type(const OpView& v) {
  need(v.arity() == 5, "5 operands are needed: x, dy, gamma, mean, rstd");
  need_x(v);
  need_alike(v);
  need_channels(v, 2);
  need_statistics(v, 3);
  return {v.in(0)};
}
Types dparams_type(const OpView& v) {
  need(v.arity() == 4, "4 operands are needed: x, dy, mean, rstd");
  need_x(v);
  need_alike(v);
  need_statistics(v, 2);
  return Types(2, f32({v.in(0).shape.cols()}));
}

// x seen as [images, pixels, groups, width].
struct Layout {
  int64_t images, pixels, groups, width;
  Layout(const Shape& x, int64_t groups_)
      : images(x[0]), pixels(x.rows() / x[0]), groups(groups_), width(x.cols() / groups_) {}
  int64_t channels() const { return groups * width; }
  int64_t members() const { return pixels * width; }                       // of a group
  int64_t first(int64_t group) const {                                     // groups of all images in a row
    return group / groups * pixels * channels() + group % groups * width;  // its first element
  }
  template <class Visit>
  void each(int64_t group, const Visit& visit) const {
    for (int64_t p = 0; p < pixels; ++p)
      for (int64_t w = 0; w < width; ++w) visit(first(group) + p * channels() + w);
  }
  int64_t group_of(int64_t i) const { return i / (pixels * channels()) * groups + i % channels() / width; }
};

// --- gradients ---
// What arrives at mean and rstd: dx = (dmean - (x - mean) rstd^3 drstd) / n.
void through_statistics(GradBuilder& g) {
  const Shape shape = g.type(g.in(0)).shape;
  const Layout at(shape, g.attrs().integer("groups"));
  const double inv_n = 1 / static_cast<double>(at.members());
  const Shape whole{at.images, at.pixels, at.groups, at.width}, few{at.images, 1, at.groups, 1};
  Value dx = ir::kNoValue;
  if (g.has_dout(2)) {
    const Value cube = times(g, g.emit("square", {g.out(2)}), g.out(2));
    const Value slope = g.reshaped(scaled(g, times(g, cube, g.dout(2)), -inv_n), few);
    dx = times(g, g.emit("sub", {g.reshaped(g.in(0), whole), g.reshaped(g.out(1), few)}), slope);
  }
  if (g.has_dout(1)) {
    const Value part = g.reshaped(scaled(g, g.dout(1), inv_n), few);
    const Attrs stretched{{"expr", "t0 = mul(i0, 0x1p+0)"}, {"shape", whole.dims()}};
    dx = dx == ir::kNoValue ? g.emit("fused", {part}, stretched) : g.emit("add", {dx, part});
  }
  if (dx != ir::kNoValue) g.add(0, g.reshaped(dx, shape));
}

void gradient(GradBuilder& g) {
  const Value x = g.in(0), mean = g.out(1), rstd = g.out(2);
  if (g.has_dout(0) && g.wants(0)) g.add(0, g.emit("group_norm_dx", {x, g.dout(0), g.in(1), mean, rstd}));
  if (g.has_dout(0) && (g.wants(1) || g.wants(2))) {
    const Values d = g.emit_all("group_norm_dparams", {x, g.dout(0), mean, rstd});
    for (int i = 0; i < 2; ++i) g.add(i + 1, d[static_cast<size_t>(i)]);
  }
  if (g.wants(0)) through_statistics(g);
}

template <int flops>
Cost cost(const OpView& v) {
  return {.flops = flops * static_cast<double>(v.in(0).count())};
}
std::vector<Alias> over_x_or_dy(const OpView&) { return {{0, 0}, {0, 1}}; }

// --- references ---
void statistics_of(const RefCall& c, const Layout& at) {
  const RefTensor &x = c.in[0], &mean = c.out[1], &rstd = c.out[2];
  const double n = static_cast<double>(at.members());
  for (int64_t g = 0; g < at.images * at.groups; ++g) {
    double sum = 0, squares = 0;
    at.each(g, [&](int64_t i) { sum += x[i]; });
    mean[g] = sum / n;
    at.each(g, [&](int64_t i) { squares += (x[i] - mean[g]) * (x[i] - mean[g]); });
    rstd[g] = 1 / std::sqrt(squares / n + c.attrs.number("eps"));
  }
}
void reference(const RefCall& c) {
  const RefTensor& x = c.in[0];
  const Layout at(x.shape(), c.attrs.integer("groups"));
  statistics_of(c, at);
  for (int64_t i = 0; i < x.count(); ++i) {
    const int64_t g = at.group_of(i), k = i % at.channels();
    c.out[0][i] = (x[i] - c.out[1][g]) * c.out[2][g] * c.in[1][k] + c.in[2][k];
  }
}
// Errors of x move the variance by 2 |x - mean| of them; those of the mean cancel there.
void magnitude(const RefCall& c) {
  const RefTensor &x = c.in[0], &mean = c.out[1], &rstd = c.out[2];
  const Layout at(x.shape(), c.attrs.integer("groups"));
  const double n = static_cast<double>(at.members());
  statistics_of(c, at);
  for (int64_t g = 0; g < at.images * at.groups; ++g) {
    double size = 0, squares = 0;
    at.each(g, [&](int64_t i) {
      const double centred = std::fabs(x[i] - mean[g]);
      size += std::fabs(x[i]) / n;
      squares += (centred * centred + 2 * centred * std::fabs(x[i])) / n;
    });
    const double of_rstd = rstd[g] + 0.5 * rstd[g] * rstd[g] * rstd[g] * squares;
    at.each(g, [&](int64_t i) {
      const int64_t k = i % at.channels();
      const double h = (std::fabs(x[i]) + size) * rstd[g] + std::fabs(x[i] - mean[g]) * of_rstd;
      c.out[0][i] = h * std::fabs(c.in[1][k]) + std::fabs(c.in[2][k]);
    });
    mean[g] = size;
    rstd[g] = of_rstd;
  }
}

void dx_reference(const RefCall& c) {  // x, dy, gamma, mean, rstd
  const RefTensor &x = c.in[0], &dy = c.in[1], &gamma = c.in[2], &mean = c.in[3], &rstd = c.in[4];
  const Layout at(x.shape(), mean.shape().cols());
  const double n = static_cast<double>(at.members());
  for (int64_t g = 0; g < at.images * at.groups; ++g) {
    double plain = 0, product = 0;
    at.each(g, [&](int64_t i) {
      const double d = dy[i] * gamma[i % at.channels()];
      plain += d / n;
      product += d * (x[i] - mean[g]) * rstd[g] / n;
    });
    at.each(g, [&](int64_t i) {
      const double d = dy[i] * gamma[i % at.channels()];
      c.out[0][i] = rstd[g] * (d - plain - (x[i] - mean[g]) * rstd[g] * product);
    });
  }
}
void dx_magnitude(const RefCall& c) {
  const RefTensor &x = c.in[0], &dy = c.in[1], &gamma = c.in[2], &mean = c.in[3], &rstd = c.in[4];
  const Layout at(x.shape(), mean.shape().cols());
  const double n = static_cast<double>(at.members());
  for (int64_t g = 0; g < at.images * at.groups; ++g) {
    const double s = std::fabs(rstd[g]);
    const auto size = [&](int64_t i) { return (std::fabs(x[i]) + std::fabs(mean[g])) * s; };
    double plain = 0, product = 0, of_product = 0;
    at.each(g, [&](int64_t i) {
      const double d = dy[i] * gamma[i % at.channels()] / n;
      plain += std::fabs(d);
      product += d * (x[i] - mean[g]) * s;
      of_product += std::fabs(d) * size(i);
    });
    at.each(g, [&](int64_t i) {
      const double d = std::fabs(dy[i] * gamma[i % at.channels()]);
      c.out[0][i] = s * (d + plain + size(i) * std::fabs(product) + std::fabs(x[i] - mean[g]) * s * of_product);
    });
  }
}

void dparams_reference(const RefCall& c) {  // x, dy, mean, rstd
  const Layout at(c.in[0].shape(), c.in[2].shape().cols());
  for (const RefTensor& t : c.out) std::fill_n(t.data, t.count(), 0.0);
  for (int64_t i = 0; i < c.in[0].count(); ++i) {
    const int64_t g = at.group_of(i), k = i % at.channels();
    c.out[0][k] += c.in[1][i] * (c.in[0][i] - c.in[2][g]) * c.in[3][g];
    c.out[1][k] += c.in[1][i];
  }
}
void dparams_magnitude(const RefCall& c) {
  const Layout at(c.in[0].shape(), c.in[2].shape().cols());
  for (const RefTensor& t : c.out) std::fill_n(t.data, t.count(), 0.0);
  for (int64_t i = 0; i < c.in[0].count(); ++i) {
    const int64_t g = at.group_of(i), k = i % at.channels();
    c.out[0][k] += std::fabs(c.in[1][i] * c.in[3][g]) * (std::fabs(c.in[0][i]) + std::fabs(c.in[2][g]));
    c.out[1][k] += std::fabs(c.in[1][i]);
  }
}

// --- examples: one group, a group for each channel, groups that cut vectors, wide groups, many pixels ---
constexpr std::string_view kExamples =
    "f32[2,3,3,4], f32[4], f32[4] {groups=2, eps=1.0e-5}; f32[1,1], f32[1], f32[1] {groups=1, eps=0.1};"
    "f32[3,6], f32[6], f32[6] {groups=3, eps=0.01}; f32[2,5,9], f32[9], f32[9] {groups=3, eps=1.0e-5};"
    "f32[2,4,15], f32[15], f32[15] {groups=1, eps=1.0e-5}; f32[2,4,17], f32[17], f32[17] {groups=17, eps=1.0e-3};"
    "f32[1,2,3,64]+, f32[64], f32[64] {groups=32, eps=1.0e-5}; f32[2,7,66], f32[66], f32[66] {groups=6, eps=1.0e-5};"
    "f32[2,3,150]*20, f32[150], f32[150] {groups=2, eps=1.0e-5}; f32[1,40,40,8]+, f32[8], f32[8] {groups=4, "
    "eps=1.0e-5}; f32[2,9,130], f32[130], f32[130] {groups=10, eps=1.0e-5}";
constexpr std::string_view kDxExamples =
    "f32[2,3,3,4], f32[2,3,3,4], f32[4], f32[2,2], f32[2,2]+; f32[1,1], f32[1,1], f32[1], f32[1,1], f32[1,1]+;"
    "f32[3,6], f32[3,6], f32[6], f32[3,3], f32[3,3]+; f32[2,5,9], f32[2,5,9], f32[9], f32[2,3], f32[2,3]+;"
    "f32[2,4,15], f32[2,4,15], f32[15], f32[2,1], f32[2,1]+; f32[2,4,17], f32[2,4,17], f32[17], f32[2,17], f32[2,17]+;"
    "f32[1,2,3,64], f32[1,2,3,64], f32[64], f32[1,32], f32[1,32]+; f32[2,7,66], f32[2,7,66], f32[66], f32[2,6], "
    "f32[2,6]+; f32[2,3,150], f32[2,3,150], f32[150], f32[2,2], f32[2,2]+;"
    "f32[1,40,40,8], f32[1,40,40,8], f32[8], f32[1,4], f32[1,4]+";
constexpr std::string_view kDparamsExamples =
    "f32[2,3,3,4], f32[2,3,3,4], f32[2,2], f32[2,2]+; f32[1,1], f32[1,1], f32[1,1], f32[1,1]+;"
    "f32[3,6], f32[3,6], f32[3,3], f32[3,3]+; f32[2,5,9], f32[2,5,9], f32[2,3], f32[2,3]+;"
    "f32[2,4,17], f32[2,4,17], f32[2,17], f32[2,17]+; f32[1,2,3,64], f32[1,2,3,64], f32[1,32], f32[1,32]+;"
    "f32[2,3,150], f32[2,3,150], f32[2,2], f32[2,2]+; f32[2,60,60,8], f32[2,60,60,8], f32[2,4], f32[2,4]+;"
    "f32[40,4,9], f32[40,4,9], f32[40,1], f32[40,1]+";

}  // namespace

OpList group_norm() {
  static constexpr OpDef defs[] = {{.name = "group_norm",
                                    .signature = "(x: float, gamma: float, beta: float) -> y, mean, rstd",
                                    .type = type,
                                    .grad = gradient,
                                    .cost = cost<8>,
                                    .reference = reference,
                                    .magnitude = magnitude,
                                    .aliases = first_over_first,
                                    .examples = kExamples},
                                   {.name = "group_norm_dx",
                                    .signature = "(x: float, dy: float, gamma: float, mean: float, rstd: float) -> dx",
                                    .type = dx_type,
                                    .cost = cost<11>,
                                    .reference = dx_reference,
                                    .magnitude = dx_magnitude,
                                    .aliases = over_x_or_dy,
                                    .examples = kDxExamples},
                                   {.name = "group_norm_dparams",
                                    .signature = "(x: float, dy: float, mean: float, rstd: float) -> dgamma, dbeta",
                                    .type = dparams_type,
                                    .cost = cost<4>,
                                    .reference = dparams_reference,
                                    .magnitude = dparams_magnitude,
                                    .examples = kDparamsExamples}};
  return defs;
}
}  // namespace situ::ops::defs
