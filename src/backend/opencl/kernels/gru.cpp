// gru.cpp -- a GRU layer and its gradient.
#include "backend/opencl/kernels/recurrent.h"

namespace situ::opencl::kernels {
namespace {

Call bind_gru(const LaunchSpec& launch, const Target& target) {
  return recurrent_call("gru.cl", launch, target, launch.out[0].shape(), "gru");
}
Call bind_grad(const LaunchSpec& launch, const Target& target) {
  Call call = recurrent_call("gru.cl", launch, target, launch.in[0].shape(), "gru_grad");
  call.define("HAS_DGATES", launch.in.size() > 4);
  return call;
}

void expand_gru(Expansion& e) { expand_recurrent(e, "gru_packed", 1, false); }
void expand_grad(Expansion& e) { expand_recurrent(e, "gru_grad_packed", 2, true); }

}  // namespace

KernelList gru() {
  static constexpr Kernel kernels[] = {{"gru_packed", bind_gru}, {"gru_grad_packed", bind_grad}};
  static constexpr device::Candidate candidates[] = {{.op = "gru", .name = "packed", .expand = expand_gru},
                                                     {.op = "gru_grad", .name = "packed", .expand = expand_grad}};
  return {kernels, candidates};
}

}  // namespace situ::opencl::kernels
