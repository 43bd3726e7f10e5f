// recurrent.h -- the grid of kernels that walk through time (recurrent.clh), and how their weight is packed for them.
#pragma once
#include "backend/opencl/kernels/call.h"

namespace situ::opencl::kernels {

inline int64_t recurrent_group(const Target& target) { return std::min<int64_t>(tuned(target, "vector.WX"), 64); }

// Lanes of a channel vector. Every device allows groups of 64; where vectors would leave items of a group idle, they
// are shorter.
inline int64_t recurrent_width(const Target& target, int64_t width) {
  int64_t vw = vector_width(target, width);
  while (vw > 1 && ceil_div(width, vw) < recurrent_group(target)) vw /= 2;
  return vw;
}

// state: [N,T,H]. A group per `tiles` tiles of TM sequences: as few groups as keep the device busy, if it gains by
// them.
inline Call recurrent_call(std::string_view file, const LaunchSpec& launch, const Target& target, const Shape& state,
                           std::string_view kernel) {
  const int64_t wx = recurrent_group(target), tm = tuned(target, "recurrent.TM");
  const int64_t all = ceil_div(state[0], tm);
  const int64_t tiles = std::clamp<int64_t>(ceil_div(all, target.compute_units), 1, tuned(target, "recurrent.TILES"));
  Call call = make_call(file, kernel);
  call.define("VW", recurrent_width(target, state[2])).define("TM", tm).define("NV", tuned(target, "recurrent.NV"));
  call.define("MAC_FORM", tuned(target, "gemm.MAC"));
  add_tensors(call, launch.in);
  add_tensors(call, launch.out);
  add_ints(call, {state[0], state[1], state[2], launch.node.attrs.flag("reverse"), tiles});
  return set_grid(call, ceil_div(all, tiles) * wx, 1, 1, wx);
}

// Packs operand `weight`, [H, G * H], and launches `kernel` with the panels in its place; a gradient takes it
// transposed.
inline void expand_recurrent(Expansion& e, std::string_view kernel, int weight, bool gradient) {
  const Shape& w = e.type(e.in(weight)).shape;
  const int64_t vw = recurrent_width(e.target(), w[0]), vectors = ceil_div(w[0], vw), gates = w[1] / w[0];
  ir::Values inputs = e.inputs();
  inputs[static_cast<size_t>(weight)] = gradient
                                            ? e.launch("pack_back", {e.in(weight)}, f32({vectors, w[1], vw}))
                                            : e.launch("pack_gates", {e.in(weight)}, f32({vectors, w[0], gates * vw}));
  e.launch_op(kernel, inputs);
}

}  // namespace situ::opencl::kernels
