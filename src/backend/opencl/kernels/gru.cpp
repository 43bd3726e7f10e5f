// gru.cpp -- a GRU layer and its gradient.
#include "backend/opencl/kernels/recurrent.h"

namespace situ::opencl::kernels {
namespace {

Call bind_gru(const LaunchSpec& launch, const Target& target) {
  return recurrent_call("gru.cl", launch, target, launch.out[0].shape());
}
Call bind_grad(const LaunchSpec& launch, const Target& target) {
  Call call = recurrent_call("gru.cl", launch, target, launch.in[0].shape());
  call.define("HAS_DGATES", launch.in.size() > 4);
  return call;
}

}  // namespace

KernelList gru() {
  static constexpr Kernel kernels[] = {{"gru", bind_gru}, {"gru_grad", bind_grad}};
  return {kernels, {}};
}

}  // namespace situ::opencl::kernels
