// group_norm.cpp -- group norm and its dx, a work-item per group of an image, or per vector of narrow groups. Its
// dgamma and dbeta are in norm_columns.cpp.
#include "backend/opencl/kernels/call.h"

namespace situ::opencl::kernels {
namespace {

Call group_call(const LaunchSpec& launch, const Target& target, int64_t groups) {
  const TensorArg& x = launch.in[0];
  const int64_t images = x.shape()[0], width = x.cols() / groups;
  const int64_t vw = tuned(target, "vector.VW");
  const bool lanes = width < vw && vw % width == 0 && x.cols() % vw == 0;  // whole groups fill a vector
  const int64_t span = lanes ? vw : width, spans = x.cols() / span;
  Call call = make_call("group_norm.cl", launch.node.op);
  call.define("VW", lanes ? vw : vector_width(target, width)).define("LANES", lanes);
  add_tensors(call, launch.in);
  add_tensors(call, launch.out);
  add_ints(call, {images, x.rows() / images, spans, span, width});
  return set_grid(call, spans, images, 1, std::min<int64_t>(tuned(target, "vector.WX"), 16));
}

Call bind_forward(const LaunchSpec& launch, const Target& target) {
  Call call = group_call(launch, target, launch.node.attrs.integer("groups"));
  return call.arg(static_cast<float>(launch.node.attrs.number("eps")));
}
Call bind_dx(const LaunchSpec& launch, const Target& target) { return group_call(launch, target, launch.in[3].cols()); }

}  // namespace

KernelList group_norm() {
  static constexpr Kernel kernels[] = {{"group_norm", bind_forward, "X -> Y"}, {"group_norm_dx", bind_dx, "X D -> Y"}};
  return {kernels, {}};
}

}  // namespace situ::opencl::kernels
