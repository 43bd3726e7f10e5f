// metrics.cpp -- the running totals of loss, score and weight.
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

}  // namespace

KernelList metrics() {
  static constexpr Kernel kernels[] = {{"metrics", bind_metrics}};
  return {kernels, {}};
}

}  // namespace situ::opencl::kernels
