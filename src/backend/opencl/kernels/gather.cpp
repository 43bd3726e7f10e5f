// gather.cpp -- rows of a table by id, its gradient, one-hot rows.
#include "backend/opencl/kernels/call.h"

namespace situ::opencl::kernels {
namespace {

Call gather_call(const LaunchSpec& launch, const TensorArg& ids, int64_t vw) {
  Call call = make_call("gather.cl", launch.node.op);
  call.define("VW", vw);
  add_tensors(call, launch.in);
  add_tensors(call, launch.out);
  add_ints(call, {ids.count(), ids.cols()});
  return call;
}

Call bind_gather(const LaunchSpec& launch, const Target& target) {
  const TensorArg &table = launch.in[0], &ids = launch.in[1];
  const int64_t vw = vector_width(target, table.cols()), vectors = ceil_div(table.cols(), vw);
  const Units units = units_for(target, vw, vectors);
  Call call = gather_call(launch, ids, vw);
  add_ints(call, {table.rows(), table.cols(), units.chunk, units.whole});
  return set_grid(call, ceil_div(int_of(ids.count() * vectors), units.chunk), 1, 1, tuned(target, "vector.WX"));
}

Call bind_gradient(const LaunchSpec& launch, const Target& target) {
  const TensorArg &ids = launch.in[0], &table = launch.out[0];
  const int64_t vw = tuned(target, "vector.VW"), block = tuned(target, "gather.BLOCK");
  Call call = gather_call(launch, ids, vw);
  add_ints(call, {table.rows(), table.cols(), block});
  return set_grid(call, ceil_div(table.cols(), vw), ceil_div(table.rows(), block), 1, tuned(target, "gemm.WX"));
}

Call bind_one_hot(const LaunchSpec& launch, const Target& target) {
  Call call = gather_call(launch, launch.in[0], tuned(target, "vector.VW"));
  add_ints(call, {launch.out[0].cols()});
  return set_grid(call, launch.in[0].count(), 1, 1, tuned(target, "vector.WX"));
}

}  // namespace

KernelList gather() {
  static constexpr Kernel kernels[] = {
      {"gather", bind_gather, "- - -> Y"}, {"gather_grad", bind_gradient, "- D"}, {"one_hot", bind_one_hot}};
  return {kernels, {}};
}

}  // namespace situ::opencl::kernels
