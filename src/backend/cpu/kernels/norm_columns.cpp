// norm_columns.cpp -- statistics of columns over rows: what batch norm and the parameters of all norms need.
//
//   moments                       x -> mean, var, rstd of each column
//   norm_sums, *_norm_dparams     dgamma = sum dy (x - mean) rstd, dbeta = sum dy; mean and rstd belong to a column
//                                 (norm_sums), a row (layer, rms: no mean, no dbeta) or an image's group of columns
//   *_partial -> *_final          the same for many rows: parts of them first, then joined in order
// A task is up to kNormColumns columns of one part. columns-inl.h has the arithmetic.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels/norm_columns.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <algorithm>

#include "backend/cpu/columns-inl.h"
#include "backend/cpu/norm_columns.h"
#include "base/error.h"

#ifndef SITU_BACKEND_CPU_NORM_COLUMNS_ONCE_
#define SITU_BACKEND_CPU_NORM_COLUMNS_ONCE_
namespace situ::cpu {
namespace {

enum class Source { columns, rows, rms, groups };  // where mean and rstd come from

struct ColumnWork {
  Matrix x, dy;
  int64_t images = 1, rows = 0, cols = 0;  // rows of an image
  int64_t splits = 1, column_blocks = 1;   // a part is one of the splits of one of the images
  Source source = Source::columns;
  Statistic mean, rstd;
  int64_t groups = 1;
  float eps = 0;
  float* out[3] = {};     // part 0 of each result
  int64_t out_pitch = 0;  // to the next part
  bool direct = true;     // one part, finished here
  int64_t parts() const { return images * splits; }
  int64_t first_row(int64_t split) const { return rows * split / splits; }
};

}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

HWY_INLINE void copy_columns(const float* from, float* to, int64_t n) { std::copy_n(from, n, to); }

void moments_task(const ColumnWork& w, int64_t task) {
  const int64_t part = task / w.column_blocks, col = task % w.column_blocks * kNormColumns;
  const int64_t n = std::min(kNormColumns, w.cols - col), row = w.first_row(part);
  Moments m;
  column_moments(w.x.at(row, col), w.x.pitch, w.first_row(part + 1) - row, n, m);
  if (w.direct) return finish_moments(m, w.eps, n, w.out[0] + col, w.out[1] + col, w.out[2] + col);
  copy_columns(m.mean, w.out[0] + part * w.out_pitch + col, n);
  copy_columns(m.m2, w.out[1] + part * w.out_pitch + col, n);
}

// Joins the parts, which lie in x: means first, then sums of squares.
void join_task(const ColumnWork& w, int64_t task) {
  const int64_t col = task * kNormColumns, n = std::min(kNormColumns, w.cols - col);
  Moments total;
  for (int64_t part = 0; part < w.splits; ++part) {
    Moments one;
    copy_columns(w.x.at(part, col), one.mean, n);
    copy_columns(w.x.at(w.splits + part, col), one.m2, n);
    join_moments(total, one.mean, one.m2, w.first_row(part + 1) - w.first_row(part), n);
  }
  finish_moments(total, w.eps, n, w.out[0] + col, w.out[1] + col, w.out[2] + col);
}

// --- the sums of gradients ---
template <Centre CENTRE>
void sums_by_row(const ColumnWork& w, int64_t row0, int64_t row1, int64_t col, int64_t n, float* products,
                 float* plain) {
  float shift[kNormRows], scale[kNormRows];
  for (int64_t row = row0; row < row1; row += kNormRows) {
    const int64_t height = std::min(kNormRows, row1 - row);
    for (int64_t r = 0; r < height; ++r) {
      shift[r] = CENTRE == Centre::row ? w.mean[row + r] : 0;
      scale[r] = w.rstd[row + r];
    }
    add_sums<CENTRE>({w.x.at(row, col), w.dy.at(row, col), w.x.pitch, w.dy.pitch, height, shift, scale}, n, products,
                     plain);
  }
}

void sums_by_column(const ColumnWork& w, int64_t image, int64_t row0, int64_t row1, int64_t col, int64_t n,
                    float* products, float* plain) {
  HWY_ALIGN float shift[kNormBuffer] = {};
  const int64_t width = w.cols / w.groups;
  for (int64_t c = 0; c < n; ++c) shift[c] = w.mean[image * w.groups + (col + c) / width];
  column_sums(w.x, w.dy, image * w.rows + row0, image * w.rows + row1, col, n, shift, products, plain);
  for (int64_t c = 0; c < n; ++c) products[c] *= w.rstd[image * w.groups + (col + c) / width];
}

void sums_task(const ColumnWork& w, int64_t task) {
  const int64_t part = task / w.column_blocks, col = task % w.column_blocks * kNormColumns;
  const int64_t image = part / w.splits, split = part % w.splits, n = std::min(kNormColumns, w.cols - col);
  const int64_t row0 = w.first_row(split), row1 = w.first_row(split + 1);
  HWY_ALIGN float products[kNormBuffer] = {}, plain[kNormBuffer] = {};
  if (w.source == Source::rows)
    sums_by_row<Centre::row>(w, row0, row1, col, n, products, plain);
  else if (w.source == Source::rms)
    sums_by_row<Centre::none>(w, row0, row1, col, n, products, plain);
  else
    sums_by_column(w, image, row0, row1, col, n, products, plain);
  copy_columns(products, w.out[0] + part * w.out_pitch + col, n);
  if (w.out[1]) copy_columns(plain, w.out[1] + part * w.out_pitch + col, n);
}

// Adds up the parts, which lie in x: all of the first sum, then all of the second.
void add_parts_task(const ColumnWork& w, int64_t task) {
  const int64_t result = task / w.column_blocks, col = task % w.column_blocks * kNormColumns;
  const int64_t n = std::min(kNormColumns, w.cols - col);
  for (int64_t c = 0; c < n; c += lanes()) {
    Floats total = zeros();
    for (int64_t part = 0; part < w.splits;) {
      Floats few = zeros();
      for (const int64_t end = std::min(part + kNormBlocks, w.splits); part < end; ++part)
        few = hn::Add(few, load_up_to(w.x.at(result * w.splits + part, col + c), n - c));
      total = hn::Add(total, few);
    }
    store_up_to(total, w.out[result] + col + c, n - c);
  }
}

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(moments_task);
HWY_EXPORT(join_task);
HWY_EXPORT(sums_task);
HWY_EXPORT(add_parts_task);

ColumnWork over(const Shape& shape) {
  ColumnWork w;
  w.rows = shape.rows();
  w.cols = w.groups = shape.cols();
  w.column_blocks = ceil_div(w.cols, kNormColumns);
  return w;
}

// Results: one row of columns each, or all parts of the first, then all of the second, in one tensor.
void set_outputs(ColumnWork& w, const Call& call, bool partial) {
  w.direct = !partial;
  if (!partial) {
    for (size_t i = 0; i < call.out.size(); ++i) w.out[i] = call.out[i].f32();
    return;
  }
  const Operand& parts = call.out[0];
  w.splits = parts.shape()[1] / w.images;
  w.out_pitch = parts.pitch;
  for (int64_t i = 0; i < parts.shape()[0]; ++i) w.out[i] = parts.f32() + i * parts.shape()[1] * parts.pitch;
}

template <typename Run>
Work work(const ColumnWork& w, int64_t parts, Run run) {
  return {parts * w.column_blocks, [w, run](int64_t task) { run(w, task); }};
}

template <bool PARTIAL>
Work bind_moments(const Call& call) {
  ColumnWork w = over(call.in[0].shape());
  w.x = Matrix(call.in[0]);
  w.eps = static_cast<float>(call.attrs.number("eps"));
  set_outputs(w, call, PARTIAL);
  return work(w, w.parts(), &HWY_DYNAMIC_DISPATCH(moments_task));
}
Work bind_join(const Call& call) {
  const Operand& parts = call.in[0];
  ColumnWork w = over(parts.shape());
  w.x = Matrix(parts);
  w.splits = parts.shape()[1];
  w.rows = call.attrs.integer("rows");
  w.eps = static_cast<float>(call.attrs.number("eps"));
  set_outputs(w, call, false);
  return work(w, 1, &HWY_DYNAMIC_DISPATCH(join_task));
}

template <Source SOURCE, bool PARTIAL>
Work bind_sums(const Call& call) {
  const Operand& x = call.in[0];
  ColumnWork w = over(x.shape());
  w.source = SOURCE;
  w.x = Matrix(x);
  w.dy = Matrix(call.in[1]);
  if (SOURCE != Source::rms) w.mean = Statistic(call.in[2]);
  w.rstd = Statistic(call.in.back());
  if (SOURCE == Source::groups) {
    w.images = x.shape()[0];
    w.rows /= w.images;
    w.groups = call.in.back().cols();
  }
  set_outputs(w, call, PARTIAL);
  return work(w, w.parts(), &HWY_DYNAMIC_DISPATCH(sums_task));
}
Work bind_add_parts(const Call& call) {
  const Operand& parts = call.in[0];
  ColumnWork w = over(parts.shape());
  w.x = Matrix(parts);
  w.splits = parts.shape()[1];
  set_outputs(w, call, false);
  return work(w, parts.shape()[0], &HWY_DYNAMIC_DISPATCH(add_parts_task));
}

// --- one launch or two ---
constexpr int64_t kElementsPerTask = 16384, kEnoughTasks = 16, kMostParts = 32;

// Parts of these rows: as many as keep cores busy, none shorter than a block.
int64_t parts_of(int64_t rows, int64_t cols) {
  if (ceil_div(cols, kNormColumns) >= kEnoughTasks) return 1;
  return std::clamp<int64_t>(std::min(rows * cols / kElementsPerTask, rows / kNormRows), 1, kMostParts);
}

void expand(device::Expansion& e) { device::expand_statistics(e, statistics_parts); }

}  // namespace

int64_t statistics_parts(const device::Target&, std::string_view op, const Shape& x) {
  const int64_t images = op == "group_norm_dparams" ? x[0] : 1;
  return images * parts_of(x.rows() / images, x.cols());
}

namespace kernels {
KernelList norm_columns() {
  static constexpr Kernel kernels[] = {{"moments", bind_moments<false>},
                                       {"moments_partial", bind_moments<true>},
                                       {"moments_final", bind_join},
                                       {"norm_sums", bind_sums<Source::columns, false>},
                                       {"norm_sums_partial", bind_sums<Source::columns, true>},
                                       {"layer_norm_dparams", bind_sums<Source::rows, false>},
                                       {"layer_norm_dparams_partial", bind_sums<Source::rows, true>},
                                       {"rms_norm_dparams", bind_sums<Source::rms, false>},
                                       {"rms_norm_dparams_partial", bind_sums<Source::rms, true>},
                                       {"group_norm_dparams", bind_sums<Source::groups, false>},
                                       {"group_norm_dparams_partial", bind_sums<Source::groups, true>},
                                       {"norm_sums_final", bind_add_parts}};
  static constexpr device::Candidate candidates[] = {{.op = "moments", .name = "columns", .expand = expand},
                                                     {.op = "norm_sums", .name = "columns", .expand = expand},
                                                     {.op = "layer_norm_dparams", .name = "columns", .expand = expand},
                                                     {.op = "rms_norm_dparams", .name = "columns", .expand = expand},
                                                     {.op = "group_norm_dparams", .name = "columns", .expand = expand}};
  return {kernels, candidates};
}
}  // namespace kernels
}  // namespace situ::cpu
#endif
