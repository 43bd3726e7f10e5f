// lstm.cpp -- an LSTM layer and its gradient.
#include "backend/opencl/kernels/recurrent.h"

namespace situ::opencl::kernels {
namespace {

Call bind_lstm(const LaunchSpec& launch, const Target& target) {
  return recurrent_call("lstm.cl", launch, target, launch.out[0].shape());
}
Call bind_grad(const LaunchSpec& launch, const Target& target) {
  Call call = recurrent_call("lstm.cl", launch, target, launch.in[0].shape());
  call.define("HAS_DC", launch.in.size() > 4).define("HAS_DGATES", launch.in.size() > 5);
  return call;
}

}  // namespace

KernelList lstm() {
  static constexpr Kernel kernels[] = {{"lstm", bind_lstm}, {"lstm_grad", bind_grad}};
  return {kernels, {}};
}

}  // namespace situ::opencl::kernels
