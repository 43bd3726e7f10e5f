// dropout.cpp -- dropout from the named random stream; a Philox block of four elements per work-item.
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
  add_ints(call, {x.count(), one_row ? x.count() : x.cols(), static_cast<int32_t>(stream)});
  call.arg(static_cast<float>(p)).arg(static_cast<float>(1 / (1 - p)));
  return set_grid(call, ceil_div(x.count(), 4), 1, 1, tuned(target, "vector.WX"));
}

}  // namespace

KernelList dropout() {
  static constexpr Kernel kernels[] = {{"dropout", bind_dropout}};
  return {kernels, {}};
}

}  // namespace situ::opencl::kernels
