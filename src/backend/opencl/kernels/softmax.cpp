// softmax.cpp -- the kernels that own a row of logits per work-item or group.
#include "backend/opencl/kernels/rows.h"

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
  return set_rows(call, target, x.rows(), x.cols());
}

Call bind_xent(const LaunchSpec& launch, const Target& target) {
  const double smoothing = launch.node.attrs.number("smoothing", 0);
  Call call = bind_rows(launch, target);
  call.arg(static_cast<float>(smoothing / static_cast<double>(launch.in[0].cols())));
  call.arg(static_cast<float>(1 - smoothing));
  return call;
}

Call bind_accuracy(const LaunchSpec& launch, const Target& target) {
  Call call = bind_rows(launch, target);
  add_ints(call, {launch.node.attrs.integer("top", 1)});
  return call;
}

}  // namespace

KernelList softmax() {
  static constexpr Kernel kernels[] = {{"softmax", bind_rows},
                                       {"softmax_grad", bind_rows},
                                       {"softmax_xent", bind_xent},
                                       {"softmax_soft_xent", bind_rows},
                                       {"accuracy", bind_accuracy}};
  return {kernels, {}};
}

}  // namespace situ::opencl::kernels
