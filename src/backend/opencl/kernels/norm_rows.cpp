// norm_rows.cpp -- layer norm and rms norm, a work-item or a group per row. Operands rms norm lacks are named twice,
// never read.
#include "backend/opencl/kernels/rows.h"

namespace situ::opencl::kernels {
namespace {

Call row_call(std::string_view kernel, const Target& target, const TensorArg& x, bool centred) {
  Call call = make_call("norm_rows.cl", kernel);
  call.define("VW", tuned(target, "vector.VW")).define("CENTRED", centred);
  return set_rows(call, target, x.rows(), x.cols());
}

template <bool centred>
Call bind_forward(const LaunchSpec& launch, const Target& target) {
  const TensorArg &x = launch.in[0], &rstd = launch.out.back();
  Call call = row_call("norm_rows", target, x, centred);
  add_tensors(call, {x, launch.in[1], launch.in.back(), launch.out[0], launch.out[1], rstd});
  add_ints(call, {x.rows(), x.cols(), rstd.cols()});
  return call.arg(static_cast<float>(launch.node.attrs.number("eps")));
}
template <bool centred>
Call bind_dx(const LaunchSpec& launch, const Target& target) {
  const TensorArg &x = launch.in[0], &rstd = launch.in.back();
  Call call = row_call("norm_dx", target, x, centred);
  add_tensors(call, {x, launch.in[1], launch.in[2], launch.in[3], rstd, launch.out[0]});
  add_ints(call, {x.rows(), x.cols(), rstd.cols()});
  return call;
}

}  // namespace

KernelList norm_rows() {
  static constexpr Kernel kernels[] = {{"layer_norm", bind_forward<true>, "X -> Y"},
                                       {"layer_norm_dx", bind_dx<true>, "X D -> Y"},
                                       {"rms_norm", bind_forward<false>, "X -> Y"},
                                       {"rms_norm_dx", bind_dx<false>, "X D -> Y"}};
  return {kernels, {}};
}

}  // namespace situ::opencl::kernels
