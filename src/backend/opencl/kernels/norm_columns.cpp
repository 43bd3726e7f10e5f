// norm_columns.cpp -- statistics of columns; few columns and many rows are cut into parts, joined by a second launch.
#include "backend/opencl/kernels/norm_columns.h"

#include "backend/opencl/kernels/call.h"

namespace situ::opencl::kernels {
namespace {

Call column_call(std::string_view kernel, const Target& target, int64_t cols, int64_t parts) {
  Call call = make_call("norm_columns.cl", kernel);
  const int64_t vw = vector_width(target, cols);
  call.define("VW", vw);
  return set_grid(call, ceil_div(cols, vw), parts, 1, tuned(target, "reduce.WX"));
}
Arg eps_of(const LaunchSpec& launch) { return static_cast<float>(launch.node.attrs.number("eps")); }

Call bind_moments(const LaunchSpec& launch, const Target& target) {
  const TensorArg& x = launch.in[0];
  Call call = column_call("moments", target, x.cols(), 1);
  add_tensors(call, launch.in);
  add_tensors(call, launch.out);
  add_ints(call, {x.rows(), x.cols()});
  return call.arg(eps_of(launch));
}
Call bind_moments_partial(const LaunchSpec& launch, const Target& target) {
  const TensorArg &x = launch.in[0], &y = launch.out[0];
  const int64_t parts = y.shape()[1];
  Call call = column_call("moments_partial", target, x.cols(), parts);
  add_tensors(call, {x, y});
  add_ints(call, {x.rows(), x.cols(), parts, ceil_div(x.rows(), parts)});
  return call;
}
Call bind_moments_final(const LaunchSpec& launch, const Target& target) {
  const TensorArg& x = launch.in[0];
  const int64_t parts = x.shape()[1], rows = launch.node.attrs.integer("rows");
  Call call = column_call("moments_final", target, x.cols(), 1);
  add_tensors(call, launch.in);
  add_tensors(call, launch.out);
  add_ints(call, {rows, x.cols(), parts, ceil_div(rows, parts)});
  return call.arg(eps_of(launch));
}

enum Centre { kGroup, kRow, kNoMean };  // CENTRE of norm_columns.cl

// The results lie in tensors of their own, or all parts of the first and then all of the second in one.
template <Centre centre, bool partial>
Call bind_sums(const LaunchSpec& launch, const Target& target) {
  const TensorArg &x = launch.in[0], &rstd = launch.in.back();
  const bool by_image = launch.node.op.starts_with("group");
  const int64_t images = by_image ? x.shape()[0] : 1, rows = x.rows() / images;
  const int64_t parts = partial ? launch.out[0].shape()[1] : 1, splits = parts / images;
  TensorArg first = launch.out[0], second = launch.out.back();
  if (partial) {
    first.type = second.type = f32({parts, x.cols()});
    if (centre != kNoMean) second.offset += parts * second.pitch * bytes_of(DType::f32);
  }
  Call call = column_call("norm_sums", target, x.cols(), parts);
  if (centre != kGroup) call.define("CENTRE", centre);  // as moments, which need none: fewer programs
  add_tensors(call, {x, launch.in[1], centre == kNoMean ? rstd : launch.in[2], rstd, first, second});
  add_ints(call, {images, rows, x.cols(), splits, ceil_div(rows, splits), by_image ? x.cols() / rstd.cols() : 1,
                  rstd.cols()});
  return call;
}
Call bind_sums_final(const LaunchSpec& launch, const Target& target) {
  const TensorArg& x = launch.in[0];
  const int64_t results = x.shape()[0];
  Call call = column_call("norm_sums_final", target, x.cols(), results);
  add_tensors(call, {x, launch.out[0], launch.out.back()});
  add_ints(call, {x.cols(), x.shape()[1], results});
  return call;
}

// --- one launch or two ----------------------------------------------------------------------------------------------
constexpr int64_t kWorthParts = 8;  // chunks; fewer are done before a second launch has begun
// Work-items of one part read neighbouring columns of the same rows, one after the other on a CPU: the part should
// still be in the cache then. But parts have rows enough to be worth their results. What has columns enough to keep the
// device busy and fits a second-level cache is one part: a second launch takes longer than the cache would save.
constexpr int64_t kPartElements = 32768, kPartRows = 64, kWholeElements = 262144;

int64_t parts_for(const Target& target, int64_t images, int64_t rows, int64_t cols) {
  const int64_t chunk = tuned(target, "reduce.CHUNK"), wanted = tuned(target, "reduce.ITEMS");
  const int64_t items = images * ceil_div(cols, vector_width(target, cols));
  if (rows * cols < kWorthParts * chunk) return 1;
  const int64_t busy = std::min(ceil_div(rows, std::max<int64_t>(1, chunk / cols)), ceil_div(wanted, items));
  if (busy == 1 && rows * cols <= kWholeElements) return 1;
  return std::max({busy, std::min(ceil_div(rows * cols, kPartElements), rows / kPartRows), int64_t{1}});
}

void expand(Expansion& e) { device::expand_statistics(e, statistics_parts); }

}  // namespace

int64_t statistics_parts(const Target& target, std::string_view op, const Shape& x) {
  const int64_t images = op == "group_norm_dparams" ? x[0] : 1;
  return images * parts_for(target, images, x.rows() / images, x.cols());
}

KernelList norm_columns() {
  static constexpr Kernel kernels[] = {{"moments", bind_moments, "X"},
                                       {"moments_partial", bind_moments_partial, "X"},
                                       {"moments_final", bind_moments_final},
                                       {"norm_sums", bind_sums<kGroup, false>, "X D"},
                                       {"norm_sums_partial", bind_sums<kGroup, true>, "X D"},
                                       {"layer_norm_dparams", bind_sums<kRow, false>, "X D"},
                                       {"layer_norm_dparams_partial", bind_sums<kRow, true>, "X D"},
                                       {"rms_norm_dparams", bind_sums<kNoMean, false>, "X D"},
                                       {"rms_norm_dparams_partial", bind_sums<kNoMean, true>, "X D"},
                                       {"group_norm_dparams", bind_sums<kGroup, false>, "X D"},
                                       {"group_norm_dparams_partial", bind_sums<kGroup, true>, "X D"},
                                       {"norm_sums_final", bind_sums_final}};
  static constexpr device::Candidate candidates[] = {{"moments", "columns", nullptr, nullptr, expand},
                                                     {"norm_sums", "columns", nullptr, nullptr, expand},
                                                     {"layer_norm_dparams", "columns", nullptr, nullptr, expand},
                                                     {"rms_norm_dparams", "columns", nullptr, nullptr, expand},
                                                     {"group_norm_dparams", "columns", nullptr, nullptr, expand}};
  return {kernels, candidates};
}

}  // namespace situ::opencl::kernels
