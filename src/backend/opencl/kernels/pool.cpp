// pool.cpp -- pooling and its gradients: one channel vector of one pixel of the result per work-item.
#include "backend/opencl/kernels/call.h"

namespace situ::opencl::kernels {
namespace {

// `large` is the image the window slides over; reversed: it is written and the pooled one is read.
Call pool_call(const LaunchSpec& launch, const Target& target, const Shape& large, bool reversed) {
  const ir::Attrs& attrs = launch.node.attrs;
  const ops::Window window = ops::window_of(attrs, {large[1], large[2]}, attrs.ints("kernel"));
  const TensorArg& y = launch.out[0];
  const int64_t c = y.cols(), vw = vector_width(target, c), items = y.rows() * ceil_div(c, vw);
  Call call = make_call("pool.cl", launch.node.op);
  call.define("VW", vw);
  add_tensors(call, launch.in);
  add_tensor(call, y);
  add_ints(call, reversed ? reversed_window_ints(window, c, c) : window_ints(window, c, c));
  add_ints(call, {items});
  if (launch.node.op.starts_with("avg")) add_ints(call, {attrs.flag("count_pad")});
  return set_grid(call, items, 1, 1, tuned(target, "vector.WX"));
}

Call bind_forward(const LaunchSpec& launch, const Target& target) {
  return pool_call(launch, target, launch.in[0].shape(), false);
}
Call bind_gradient(const LaunchSpec& launch, const Target& target) {
  return pool_call(launch, target, launch.out[0].shape(), true);
}

}  // namespace

KernelList pool() {
  static constexpr Kernel kernels[] = {{"max_pool", bind_forward},
                                       {"avg_pool", bind_forward},
                                       {"max_pool_grad", bind_gradient},
                                       {"avg_pool_grad", bind_gradient}};
  return {kernels, {}};
}

}  // namespace situ::opencl::kernels
