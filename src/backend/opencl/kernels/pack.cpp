// pack.cpp -- panels of a right operand; launched by the candidates of products and convolutions (tile.h).
#include "backend/opencl/kernels/tile.h"

namespace situ::opencl::kernels {
namespace {

// gemm.VW lanes, nv vectors; each work-item fills a number of rows of one panel.
Call pack_call(const LaunchSpec& launch, const Target& target, std::string_view kernel, int64_t n, int64_t k,
               int64_t groups, std::initializer_list<int64_t> sizes) {
  const int64_t vw = tuned(target, "gemm.VW"), nv = launch.node.attrs.integer("nv"), tn = vw * nv;
  const int64_t panels = ceil_div(n, tn), chunk = std::max<int64_t>(1, tuned(target, "pack.CHUNK") / tn);
  Call call = make_call("pack.cl", kernel);
  call.define("VW", vw);
  add_tensor(call, launch.in[0]);
  add_tensor(call, launch.out[0]);
  add_ints(call, sizes);
  add_ints(call, {tn, panels, chunk});
  return set_grid(call, ceil_div(k, chunk), groups * panels, 1, tuned(target, "gemm.WX"));
}

Call bind_rows(const LaunchSpec& launch, const Target& target) {
  const TensorArg& b = launch.in[0];
  const int64_t groups = launch.node.attrs.integer("groups"), n = b.cols() / groups, k = b.rows();
  return pack_call(launch, target, "pack_rows", n, k, groups, {n, k});
}

Call bind_cols(const LaunchSpec& launch, const Target& target) {
  const TensorArg& w = launch.in[0];
  const int64_t groups = launch.node.attrs.integer("groups"), taps = launch.node.attrs.integer("taps");
  const int64_t n = w.rows() / taps, kt = w.cols() / groups;
  return pack_call(launch, target, "pack_cols", n, taps * kt, groups, {n, kt, taps});
}

}  // namespace

KernelList pack() {
  static constexpr Kernel kernels[] = {{"pack_rows", bind_rows, "B"}, {"pack_cols", bind_cols}};
  return {kernels, {}};
}

}  // namespace situ::opencl::kernels
