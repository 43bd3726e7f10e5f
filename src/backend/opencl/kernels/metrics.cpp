// metrics.cpp -- running totals: of loss, score and weight; of labels and answers; of errors.
#include "backend/opencl/kernels/call.h"

namespace situ::opencl::kernels {
namespace {

Call bind_metrics(const LaunchSpec& launch, const Target& target) {
  Call call = make_call("metrics.cl", "metrics");
  call.define("VW", tuned(target, "vector.VW"));
  add_tensors(call, launch.in);
  add_tensors(call, launch.out);
  add_ints(call, {launch.in[1].count()});
  return set_grid(call, 1, 1, 1, 1);
}

Call bind_confusion(const LaunchSpec& launch, const Target& target) {
  const int64_t samples = launch.in[1].rows(), classes = launch.in[1].cols();
  Call call = make_call("metrics.cl", "confusion");
  add_tensors(call, launch.in);
  add_tensors(call, launch.out);
  add_ints(call, {samples, classes});
  return set_grid(call, classes, 1, 1, std::min<int64_t>(tuned(target, "vector.WX"), 16));
}

// A vector is a column of samples; anything else has `lines` rows for each sample.
Call bind_regression(const LaunchSpec& launch, const Target& target) {
  const TensorArg &x = launch.in[1], &t = launch.in[2];
  const int64_t n = x.shape()[0];
  Call call = make_call("metrics.cl", "regression_metrics");
  call.define("VW", tuned(target, "vector.VW"));
  add_tensors(call, launch.in);
  add_tensors(call, launch.out);
  if (x.shape().rank() == 1)
    add_ints(call, {n, 1, 1, 1, 1});
  else
    add_ints(call, {x.rows(), x.cols(), x.pitch, t.pitch, x.rows() / n});
  return set_grid(call, 1, 1, 1, 1);
}

}  // namespace

KernelList metrics() {
  static constexpr Kernel kernels[] = {
      {"metrics", bind_metrics}, {"confusion", bind_confusion}, {"regression_metrics", bind_regression}};
  return {kernels, {}};
}

}  // namespace situ::opencl::kernels
