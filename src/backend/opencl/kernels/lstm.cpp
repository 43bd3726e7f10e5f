// lstm.cpp -- an LSTM layer and its gradient.
#include "backend/opencl/kernels/recurrent.h"

namespace situ::opencl::kernels {
namespace {

Call bind_lstm(const LaunchSpec& launch, const Target& target) {
  return recurrent_call("lstm.cl", launch, target, launch.out[0].shape(), "lstm");
}
Call bind_grad(const LaunchSpec& launch, const Target& target) {
  Call call = recurrent_call("lstm.cl", launch, target, launch.in[0].shape(), "lstm_grad");
  call.define("HAS_DC", launch.in.size() > 4).define("HAS_DGATES", launch.in.size() > 5);
  return call;
}

void expand_lstm(Expansion& e) { expand_recurrent(e, "lstm_packed", 1, false); }
void expand_grad(Expansion& e) { expand_recurrent(e, "lstm_grad_packed", 2, true); }

}  // namespace

KernelList lstm() {
  static constexpr Kernel kernels[] = {{"lstm_packed", bind_lstm}, {"lstm_grad_packed", bind_grad}};
  static constexpr device::Candidate candidates[] = {{.op = "lstm", .name = "packed", .expand = expand_lstm},
                                                     {.op = "lstm_grad", .name = "packed", .expand = expand_grad}};
  return {kernels, candidates};
}

}  // namespace situ::opencl::kernels
