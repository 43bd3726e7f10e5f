// shift_time.cpp -- rows moved by one time step.
#include "backend/opencl/kernels/call.h"

namespace situ::opencl::kernels {
namespace {

Call bind_shift(const LaunchSpec& launch, const Target& target) {
  const TensorArg &x = launch.in[0], &y = launch.out[0];
  const int64_t vw = vector_width(target, y.cols()), vectors = ceil_div(y.cols(), vw);
  const Units units = units_for(target, vw, vectors);
  Call call = make_call("shift_time.cl", "shift_time");
  call.define("VW", vw);
  add_tensor(call, x);
  add_tensor(call, y);
  add_ints(call, {y.rows(), y.cols(), x.shape()[1], launch.node.attrs.flag("reverse"), units.chunk, units.whole});
  return set_grid(call, ceil_div(int_of(y.rows() * vectors), units.chunk), 1, 1, tuned(target, "vector.WX"));
}

}  // namespace

KernelList shift_time() {
  static constexpr Kernel kernels[] = {{"shift_time", bind_shift, "X -> Y"}};
  return {kernels, {}};
}

}  // namespace situ::opencl::kernels
