// group_norm.cpp -- group norm and its gradient with respect to x; the parameters' gradient is in norm_columns.cpp.
//
//   group_norm     y = (x - mean) rstd gamma + beta, mean and rstd of an image's group of channels
//   group_norm_dx  dx = rstd (g - mean(g) - h mean(g h)), g = dy gamma, h = (x - mean) rstd
// A task is some groups of one image, about kNormColumns columns. Columns are summed first, whole vectors at a time,
// then those of a group are put together, in double: there are few.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels/group_norm.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <algorithm>
#include <cmath>

#include "backend/cpu/columns-inl.h"

#ifndef SITU_BACKEND_CPU_GROUP_NORM_ONCE_
#define SITU_BACKEND_CPU_GROUP_NORM_ONCE_
namespace situ::cpu {
namespace {

struct GroupWork {
  Matrix x, dy, y;                          // y: dx in the gradient
  int64_t rows = 0, groups = 1, width = 1;  // rows of an image, channels of a group
  int64_t chunk = 1, chunks = 1;            // groups of a task, tasks of an image
  const float *gamma = nullptr, *beta = nullptr;
  Statistic mean, rstd;
  float eps = 0;
};

// The groups of a task and their columns.
struct Part {
  int64_t image, group0, group1, col0, col1;
  Part(const GroupWork& w, int64_t task)
      : image(task / w.chunks),
        group0(task % w.chunks * w.chunk),
        group1(std::min(w.groups, group0 + w.chunk)),
        col0(group0 * w.width),
        col1(group1 * w.width) {}
};

// Equal numbers of rows of each column joined, column by column.
struct GroupMoments {
  double mean = 0, m2 = 0, columns = 0;
  void join(double other, double squares, double rows) {
    const double d = other - mean;
    mean += d / (columns + 1);
    m2 += squares + d * d * rows * columns / (columns + 1);
    columns += 1;
  }
};

}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

void statistics_of(const GroupWork& w, const Part& part) {
  GroupMoments groups[kNormColumns];
  for (int64_t col = part.col0; col < part.col1; col += kNormColumns) {
    const int64_t n = std::min(kNormColumns, part.col1 - col);
    Moments m;
    column_moments(w.x.at(part.image * w.rows, col), w.x.pitch, w.rows, n, m);
    for (int64_t c = 0; c < n; ++c)
      groups[(col + c) / w.width - part.group0].join(m.mean[c], m.m2[c], static_cast<double>(w.rows));
  }
  const double members = static_cast<double>(w.rows * w.width);
  for (int64_t g = part.group0; g < part.group1; ++g) {
    const GroupMoments& m = groups[g - part.group0];
    w.mean[part.image * w.groups + g] = static_cast<float>(m.mean);
    w.rstd[part.image * w.groups + g] = static_cast<float>(1 / std::sqrt(m.m2 / members + w.eps));
  }
}

void forward_task(const GroupWork& w, int64_t task) {
  const Tag d;
  const Part part(w, task);
  statistics_of(w, part);
  HWY_ALIGN float shift[kNormBuffer] = {}, scale[kNormBuffer] = {}, offset[kNormBuffer] = {};
  for (int64_t col = part.col0; col < part.col1; col += kNormColumns) {
    const int64_t n = std::min(kNormColumns, part.col1 - col);
    for (int64_t c = 0; c < n; ++c) {
      const int64_t g = part.image * w.groups + (col + c) / w.width;
      shift[c] = w.mean[g];
      scale[c] = w.rstd[g] * w.gamma[col + c];
      offset[c] = w.beta[col + c];
    }
    for (int64_t row = part.image * w.rows; row < (part.image + 1) * w.rows; ++row) {
      const float* x = w.x.at(row, col);
      float* y = w.y.at(row, col);
      for (int64_t c = 0; c < n; c += lanes()) {
        const Floats centred = hn::Sub(load_up_to(x + c, n - c), hn::LoadU(d, shift + c));
        store_up_to(hn::MulAdd(centred, hn::LoadU(d, scale + c), hn::LoadU(d, offset + c)), y + c, n - c);
      }
    }
  }
}

// The means of g and of g h of each group.
struct GroupSums {
  double plain = 0, product = 0;
};

void gradient_sums(const GroupWork& w, const Part& part, GroupSums* sums) {
  for (int64_t col = part.col0; col < part.col1; col += kNormColumns) {
    const int64_t n = std::min(kNormColumns, part.col1 - col);
    HWY_ALIGN float shift[kNormBuffer] = {}, products[kNormBuffer] = {}, plain[kNormBuffer] = {};
    for (int64_t c = 0; c < n; ++c) shift[c] = w.mean[part.image * w.groups + (col + c) / w.width];
    column_sums(w.x, w.dy, part.image * w.rows, (part.image + 1) * w.rows, col, n, shift, products, plain);
    for (int64_t c = 0; c < n; ++c) {
      const int64_t g = (col + c) / w.width;
      const double share = static_cast<double>(w.gamma[col + c]) / static_cast<double>(w.rows * w.width);
      sums[g - part.group0].plain += share * plain[c];
      sums[g - part.group0].product += share * products[c] * w.rstd[part.image * w.groups + g];
    }
  }
}

// dx = scale dy - offset - (x - shift) slope, with all four by column.
void dx_task(const GroupWork& w, int64_t task) {
  const Tag d;
  const Part part(w, task);
  GroupSums sums[kNormColumns];
  gradient_sums(w, part, sums);
  HWY_ALIGN float shift[kNormBuffer] = {}, scale[kNormBuffer] = {}, slope[kNormBuffer] = {}, offset[kNormBuffer] = {};
  for (int64_t col = part.col0; col < part.col1; col += kNormColumns) {
    const int64_t n = std::min(kNormColumns, part.col1 - col);
    for (int64_t c = 0; c < n; ++c) {
      const int64_t g = (col + c) / w.width;
      const float rstd = w.rstd[part.image * w.groups + g];
      const GroupSums& s = sums[g - part.group0];
      shift[c] = w.mean[part.image * w.groups + g];
      scale[c] = rstd * w.gamma[col + c];
      offset[c] = static_cast<float>(rstd * s.plain);
      slope[c] = static_cast<float>(rstd * s.product) * rstd;
    }
    for (int64_t row = part.image * w.rows; row < (part.image + 1) * w.rows; ++row) {
      const float *x = w.x.at(row, col), *dy = w.dy.at(row, col);
      float* dx = w.y.at(row, col);
      for (int64_t c = 0; c < n; c += lanes()) {
        const Floats centred = hn::Sub(load_up_to(x + c, n - c), hn::LoadU(d, shift + c));
        const Floats g = hn::MulSub(load_up_to(dy + c, n - c), hn::LoadU(d, scale + c), hn::LoadU(d, offset + c));
        store_up_to(hn::NegMulAdd(centred, hn::LoadU(d, slope + c), g), dx + c, n - c);
      }
    }
  }
}

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(forward_task);
HWY_EXPORT(dx_task);

GroupWork over(const Operand& x, const Operand& y, const Operand& mean, const Operand& rstd) {
  GroupWork w;
  w.x = Matrix(x);
  w.y = Matrix(y);
  w.rows = x.rows() / x.shape()[0];
  w.groups = mean.cols();
  w.width = x.cols() / w.groups;
  w.chunk = std::max<int64_t>(1, kNormColumns / w.width);
  w.chunks = ceil_div(w.groups, w.chunk);
  w.mean = Statistic(mean);
  w.rstd = Statistic(rstd);
  return w;
}
template <typename Run>
Work work(const GroupWork& w, int64_t images, Run run) {
  return {images * w.chunks, [w, run](int64_t task) { run(w, task); }};
}

Work bind_forward(const Call& call) {
  GroupWork w = over(call.in[0], call.out[0], call.out[1], call.out[2]);
  w.gamma = call.in[1].f32();
  w.beta = call.in[2].f32();
  w.eps = static_cast<float>(call.attrs.number("eps"));
  return work(w, call.in[0].shape()[0], &HWY_DYNAMIC_DISPATCH(forward_task));
}
Work bind_dx(const Call& call) {
  GroupWork w = over(call.in[0], call.out[0], call.in[3], call.in[4]);
  w.dy = Matrix(call.in[1]);
  w.gamma = call.in[2].f32();
  return work(w, call.in[0].shape()[0], &HWY_DYNAMIC_DISPATCH(dx_task));
}

}  // namespace

namespace kernels {
KernelList group_norm() {
  static constexpr Kernel kernels[] = {{"group_norm", bind_forward}, {"group_norm_dx", bind_dx}};
  return {kernels, {}};
}
}  // namespace kernels
}  // namespace situ::cpu
#endif
