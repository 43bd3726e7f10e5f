// softmax.cpp -- the kernels that own a row of logits per work-item.
#include "backend/opencl/kernels/call.h"

namespace situ::opencl::kernels {
namespace {

// All take their inputs, their outputs, and the rows and columns of the first input.
Call bind_rows(const LaunchSpec& launch, const Target& target) {
  const TensorArg& x = launch.in[0];
  Call call = make_call("softmax.cl", launch.node.op);
  call.define("VW", tuned(target, "vector.VW"));
  add_tensors(call, launch.in);
  add_tensors(call, launch.out);
  add_ints(call, {x.rows(), x.cols()});
  return set_grid(call, x.rows(), 1, 1, std::min<int64_t>(tuned(target, "vector.WX"), 16));
}

}  // namespace

KernelList softmax() {
  static constexpr Kernel kernels[] = {
      {"softmax", bind_rows}, {"softmax_grad", bind_rows}, {"softmax_xent", bind_rows}, {"accuracy", bind_rows}};
  return {kernels, {}};
}

}  // namespace situ::opencl::kernels
