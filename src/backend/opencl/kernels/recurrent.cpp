// recurrent.cpp -- packs the weight of a recurrent layer.
#include "backend/opencl/kernels/recurrent.h"

namespace situ::opencl::kernels {
namespace {

Call pack_call(const LaunchSpec& launch, const Target& target, std::string_view kernel, int64_t depth,
               int64_t columns) {
  const TensorArg &w = launch.in[0], &p = launch.out[0];
  const int64_t width = w.rows(), vw = recurrent_width(target, width);
  const int64_t chunk = std::max<int64_t>(1, tuned(target, "pack.CHUNK") / columns);
  SITU_ASSERT(p.dense());
  Call call = make_call("recurrent.cl", kernel);
  call.define("VW", vw);
  add_tensor(call, w);
  add_tensor(call, p);
  add_ints(call, {width, w.cols() / width, chunk});
  return set_grid(call, ceil_div(depth, chunk), ceil_div(width, vw), 1, tuned(target, "gemm.WX"));
}
Call bind_gates(const LaunchSpec& launch, const Target& target) {
  return pack_call(launch, target, "pack_gates", launch.in[0].rows(), launch.out[0].cols());
}
Call bind_back(const LaunchSpec& launch, const Target& target) {
  return pack_call(launch, target, "pack_back", launch.in[0].cols(), launch.out[0].cols());
}

}  // namespace

KernelList recurrent() {
  static constexpr Kernel kernels[] = {{"pack_gates", bind_gates}, {"pack_back", bind_back}};
  return {kernels, {}};
}

}  // namespace situ::opencl::kernels
