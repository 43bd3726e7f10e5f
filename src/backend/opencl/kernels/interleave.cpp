// interleave.cpp -- images into sheaves and back (interleave.cl); launched by the candidates whose lanes are images,
// and by pass/image_sheaves.cpp.
#include "backend/opencl/kernels/sheaves.h"

namespace situ::opencl::kernels {
namespace {

Call bind_interleave(const LaunchSpec& launch, const Target& target) {
  const TensorArg &x = launch.in[0], &y = launch.out[0];
  const ir::Ints& before = launch.node.attrs.ints("before");
  SITU_ASSERT(y.dense(), "sheaves are dense");
  Call call = make_call("interleave.cl", "interleave_images");
  call.define("VW", tuned(target, "gemm.VW"));
  add_tensors(call, {x, y});
  add_ints(call, x.shape().dims());
  add_ints(call, {y.shape()[1], y.shape()[2], before[0], before[1]});
  return set_grid(call, y.shape()[1], y.shape()[0], 1, tuned(target, "gemm.WX"));
}

Call bind_spread(const LaunchSpec& launch, const Target& target) {
  const TensorArg &x = launch.in[0], &y = launch.out[0];
  SITU_ASSERT(x.dense(), "sheaves are dense");
  Call call = make_call("interleave.cl", "spread_images");
  call.define("VW", tuned(target, "gemm.VW"));
  add_tensors(call, {x, y});
  add_ints(call, y.shape().dims());
  return set_grid(call, y.shape()[1], x.shape()[0], 1, tuned(target, "gemm.WX"));
}

}  // namespace

KernelList interleave() {
  static constexpr Kernel kernels[] = {{"interleave_images", bind_interleave, "X -> Y"},
                                       {"spread_images", bind_spread, "X -> Y"}};
  return {kernels, {}};
}

}  // namespace situ::opencl::kernels
