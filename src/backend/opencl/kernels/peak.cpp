// peak.cpp -- multiply-adds from registers, and c = a / 2 + b over a working set: for step/roofline.cpp alone.
#include "backend/opencl/kernels/call.h"

namespace situ::opencl::kernels {
namespace {

Call bind_flops(const LaunchSpec& launch, const Target& target) {
  const TensorArg& y = launch.out[0];
  Call call = make_call("peak.cl", "peak_flops");
  call.define("VW", tuned(target, "gemm.VW")).define("MAC_FORM", tuned(target, "gemm.MAC"));
  call.define("VECTOR_HINT", tuned(target, "gemm.HINT"));
  SITU_ASSERT(y.cols() % (10 * tuned(target, "gemm.VW")) == 0, "{} columns are no whole chains", y.cols());
  add_tensor(call, y);
  add_ints(call, {y.rows(), y.cols(), launch.node.attrs.integer("rounds")});
  call.arg(0.999f);
  call.arg(0.001f);
  return set_grid(call, y.rows(), 1, 1, tuned(target, "vector.WX"));
}

// Groups enough for every compute unit; where a group is a single item, as on CPUs, one for each.
Call bind_triad(const LaunchSpec& launch, const Target& target) {
  constexpr int64_t kGroupsPerUnit = 16;
  const int64_t vw = tuned(target, "vector.VW"), wx = tuned(target, "vector.WX");
  SITU_ASSERT(launch.out[0].count() % vw == 0, "{} elements are no whole vectors", launch.out[0].count());
  const int64_t vectors = launch.out[0].count() / vw;
  const int64_t groups = std::max<int64_t>(1, target.compute_units) * (wx > 1 ? kGroupsPerUnit : 1);
  const int64_t share = std::max(wx, ceil_div(vectors, groups));
  Call call = make_call("peak.cl", "peak_triad");
  call.define("VW", vw);
  add_tensors(call, {launch.in[0], launch.in[1], launch.out[0]});
  add_ints(call, {vectors, share, launch.node.attrs.integer("rounds")});
  return set_grid(call, ceil_div(vectors, share) * wx, 1, 1, wx);
}

}  // namespace

KernelList peak() {
  static constexpr Kernel kernels[] = {{"peak_flops", bind_flops}, {"peak_triad", bind_triad}};
  return {kernels, {}};
}

}  // namespace situ::opencl::kernels
