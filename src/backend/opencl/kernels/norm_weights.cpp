// norm_weights.cpp -- the batch norm of a product by the statistics of its left side.
#include "backend/opencl/kernels/call.h"
#include "device/norm_launches.h"
#include "ops/statistics.h"

namespace situ::opencl::kernels {
namespace {

constexpr int64_t kRows = 4;  // of a covariance that a work-item owns

Call weights_call(std::string_view kernel, const LaunchSpec& launch, const Target& target, int64_t vw, int64_t x,
                  int64_t y = 1, int64_t z = 1) {
  Call call = make_call("norm_weights.cl", kernel);
  call.define("VW", vw).define("MAC_FORM", tuned(target, "gemm.MAC"));
  add_tensors(call, launch.in);
  add_tensors(call, launch.out);
  return set_grid(call, x, y, z, tuned(target, "reduce.WX"));
}

Call bind_covariance_partial(const LaunchSpec& launch, const Target& target) {
  const TensorArg& x = launch.in[0];
  const int64_t parts = launch.out[0].shape()[0], vw = vector_width(target, x.cols());
  Call call =
      weights_call("covariance_partial", launch, target, vw, ceil_div(x.cols(), vw), ceil_div(x.cols(), kRows), parts);
  add_ints(call, {x.rows(), x.cols(), ceil_div(x.rows(), parts)});
  return call;
}
Call bind_covariance_final(const LaunchSpec& launch, const Target& target) {
  const TensorArg& part = launch.in[0];
  const int64_t cols = part.cols(), parts = part.shape()[0], rows = launch.node.attrs.integer("rows");
  const int64_t vw = vector_width(target, cols);
  Call call = weights_call("covariance_final", launch, target, vw, ceil_div(cols, vw), cols);
  add_ints(call, {rows, cols, ceil_div(rows, parts)});
  return call;
}

Call bind_norm_weights(const LaunchSpec& launch, const Target& target) {
  const TensorArg& w = launch.in[2];
  const int64_t vw = vector_width(target, w.cols());
  Call call = weights_call("norm_weights", launch, target, vw, ceil_div(w.cols(), vw));
  add_ints(call, {w.rows(), w.cols()});
  const double rows = static_cast<double>(launch.node.attrs.integer("rows"));
  return call.arg(static_cast<float>(launch.node.attrs.number("eps"))).arg(static_cast<float>(ops::unbiased(rows)));
}
Call bind_norm_weights_dw(const LaunchSpec& launch, const Target& target) {
  const TensorArg& w = launch.in[2];
  const int64_t vw = vector_width(target, w.cols());
  Call call = weights_call("norm_weights_dw", launch, target, vw, ceil_div(w.cols(), vw));
  add_ints(call, {w.rows(), w.cols()});
  return call;
}
Call bind_norm_weights_dcov(const LaunchSpec& launch, const Target& target) {
  const TensorArg& w = launch.in[0];
  Call call = weights_call("norm_weights_dcov", launch, target, vector_width(target, w.cols()), w.rows() + 1, w.rows());
  add_ints(call, {w.rows(), w.cols()});
  return call;
}

Call bind_covariance_slope(const LaunchSpec& launch, const Target& target) {
  const int64_t cols = launch.in[2].cols();
  Call call = weights_call("covariance_slope", launch, target, vector_width(target, cols), cols);
  add_ints(call, {cols});
  return call.arg(1.0f / static_cast<float>(launch.node.attrs.integer("rows")));
}

// Parts of x's rows: as many as keep the device busy, each long enough to be worth a matrix, and none empty.
int64_t parts_of(const Target& target, std::string_view, const Shape& x) {
  const int64_t rows = x.rows(), cols = x.cols();
  const int64_t items = ceil_div(cols, vector_width(target, cols)) * ceil_div(cols, kRows);
  const int64_t busy = ceil_div(tuned(target, "reduce.ITEMS"), items), longest = ceil_div(rows, 1024);
  const int64_t parts = std::clamp<int64_t>(std::max(busy, longest), 1, std::max<int64_t>(1, rows / (2 * cols)));
  return ceil_div(rows, ceil_div(rows, parts));
}
void expand_covariance(Expansion& e) { device::expand_covariance(e, parts_of); }

}  // namespace

KernelList norm_weights() {
  static constexpr Kernel kernels[] = {{"covariance_partial", bind_covariance_partial, "X"},
                                       {"covariance_final", bind_covariance_final},
                                       {"covariance_slope", bind_covariance_slope},
                                       {"norm_weights", bind_norm_weights},
                                       {"norm_weights_dw", bind_norm_weights_dw},
                                       {"norm_weights_dcov", bind_norm_weights_dcov}};
  static constexpr device::Candidate candidates[] = {
      {"covariance", "parts", nullptr, nullptr, expand_covariance},
      {"norm_weights_grad", "by_sides", nullptr, nullptr, device::expand_norm_weights_grad}};
  return {kernels, candidates};
}

}  // namespace situ::opencl::kernels
