// dropout.cpp -- dropout from the named random stream, in Philox blocks of four elements.
#include "backend/opencl/kernels/call.h"

namespace situ::opencl::kernels {
namespace {

Call bind_dropout(const LaunchSpec& launch, const Target& target) {
  const double p = launch.node.attrs.number("p");
  const TensorArg &x = launch.in[0], &y = launch.out[0];
  const bool one_row = x.dense() && y.dense();
  Call call = make_call("dropout.cl", "dropout");
  add_tensors(call, launch.in);
  add_tensor(call, y);
  const auto stream = static_cast<uint32_t>(launch.node.attrs.integer("stream"));
  const int64_t blocks = ceil_div(x.count(), 4), chunk = tuned(target, "vector.CHUNK") / 4;
  add_ints(call, {x.count(), one_row ? x.count() : x.cols(), chunk, static_cast<int32_t>(stream)});
  call.arg(static_cast<float>(p)).arg(static_cast<float>(1 / (1 - p)));
  return set_grid(call, ceil_div(blocks, chunk), 1, 1, tuned(target, "vector.WX"));
}

}  // namespace

KernelList dropout() {
  static constexpr Kernel kernels[] = {{"dropout", bind_dropout, "X -> Y"}};
  return {kernels, {}};
}

}  // namespace situ::opencl::kernels
