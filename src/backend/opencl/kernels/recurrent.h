// recurrent.h -- the grid of kernels that walk through time (recurrent.clh): a group per TM sequences.
#pragma once
#include "backend/opencl/kernels/call.h"

namespace situ::opencl::kernels {

// state: [N,T,H]. Every device allows groups of 64; where vectors would leave items of a group idle, they are shorter.
inline Call recurrent_call(std::string_view file, const LaunchSpec& launch, const Target& target, const Shape& state) {
  const int64_t wx = std::min<int64_t>(tuned(target, "vector.WX"), 64), tm = tuned(target, "recurrent.TM");
  int64_t vw = vector_width(target, state[2]);
  while (vw > 1 && ceil_div(state[2], vw) < wx) vw /= 2;
  Call call = make_call(file, launch.node.op);
  call.define("VW", vw).define("TM", tm).define("MAC_FORM", tuned(target, "gemm.MAC"));
  add_tensors(call, launch.in);
  add_tensors(call, launch.out);
  add_ints(call, {state[0], state[1], state[2], launch.node.attrs.flag("reverse")});
  return set_grid(call, ceil_div(state[0], tm) * wx, 1, 1, wx);
}

}  // namespace situ::opencl::kernels
