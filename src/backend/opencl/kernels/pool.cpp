// pool.cpp -- pooling and its gradients, in channel vectors. A max gradient whose windows do not overlap, or only with
// their neighbours, is filled cell by cell.
//
// Where a pixel has fewer channels than a vector lanes, the vector is the next power of two and the rest of it is dead.
#include "backend/opencl/kernels/call.h"

namespace situ::opencl::kernels {
namespace {

constexpr int64_t kUnrolled = 3;  // windows up to this size become constants of the program

// Lanes of a vector: all channels of a pixel if they fit.
int64_t pixel_width(const Target& target, int64_t channels) {
  int64_t vw = tuned(target, "vector.VW");
  while (vw / 2 >= channels) vw /= 2;
  return vw;
}

// Whether windows reach over at most so many strides.
bool spans(const ops::Window& w, int64_t strides) {
  return w.y.kernel <= strides * w.y.stride && w.x.kernel <= strides * w.x.stride;
}

// `large` is the image the window slides over; reversed: it is written and the pooled one is read.
Call pool_call(const LaunchSpec& launch, const Target& target, const Shape& large, bool reversed) {
  const ir::Attrs& attrs = launch.node.attrs;
  const ops::Window w = ops::window_of(attrs, {large[1], large[2]}, attrs.ints("kernel"));
  const TensorArg& y = launch.out[0];
  const bool cells = launch.node.op == "max_pool_grad" && spans(w, 2);
  const int64_t c = y.cols(), vw = pixel_width(target, c), vectors = ceil_div(c, vw);
  const int64_t pixels =
      cells ? y.shape()[0] * ceil_div(w.y.in + w.y.before, w.y.stride) * ceil_div(w.x.in + w.x.before, w.x.stride)
            : y.rows();
  const Units units = units_for(target, vw, vectors);
  Call call = make_call("pool.cl", !cells        ? launch.node.op
                                   : spans(w, 1) ? "max_pool_grad_cells"
                                                 : "max_pool_grad_pairs");
  call.define("VW", vw).define("LANES", c <= vw ? c : 0);
  if (std::max({w.y.kernel, w.x.kernel, w.y.stride, w.x.stride}) <= kUnrolled)
    call.define("KR", w.y.kernel).define("KS", w.x.kernel).define("KSH", w.y.stride).define("KSW", w.x.stride);
  define_epilogue(call, launch, 2);
  const size_t operands = launch.node.op == "max_pool_grad" ? 2 : 1;  // the others are the epilogue's
  for (size_t i = 0; i < operands; ++i) add_tensor(call, launch.in[i]);
  add_tensor(call, y);
  for (size_t i = operands; i < launch.in.size(); ++i) add_tensor(call, launch.in[i]);
  add_ints(call, reversed ? reversed_window_ints(w, c, c) : window_ints(w, c, c));
  add_ints(call, {pixels * vectors, units.chunk, units.whole});
  if (launch.node.op.starts_with("avg")) add_ints(call, {attrs.flag("count_pad")});
  return set_grid(call, ceil_div(pixels * vectors, units.chunk), 1, 1, tuned(target, "vector.WX"));
}

Call bind_forward(const LaunchSpec& launch, const Target& target) {
  return pool_call(launch, target, launch.in[0].shape(), false);
}
Call bind_gradient(const LaunchSpec& launch, const Target& target) {
  return pool_call(launch, target, launch.out[0].shape(), true);
}

}  // namespace

KernelList pool() {
  static constexpr Kernel kernels[] = {{"max_pool", bind_forward, "X -> Y"},
                                       {"avg_pool", bind_forward, "X -> Y"},
                                       {"max_pool_grad", bind_gradient, "X D * -> Y"},
                                       {"avg_pool_grad", bind_gradient, "D -> Y"}};
  return {kernels, {}};
}

}  // namespace situ::opencl::kernels
