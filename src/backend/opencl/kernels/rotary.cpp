// rotary.cpp -- rotary positions: a work-item turns a vector of pairs.
#include "ops/rotary.h"

#include <bit>

#include "backend/opencl/kernels/call.h"

namespace situ::opencl::kernels {
namespace {

Call bind_rotary(const LaunchSpec& launch, const Target& target) {
  const TensorArg& x = launch.in[0];
  const ops::Rotary r = ops::rotary_of(launch.node.attrs, x.shape());
  const int64_t vw = vector_width(target, r.half), units = int_of(x.rows() * r.heads * ceil_div(r.half, vw));
  const int64_t chunk = std::max<int64_t>(1, tuned(target, "vector.CHUNK") / (2 * vw));
  TableArg table;
  for (float value : r.table()) table.words.push_back(std::bit_cast<int32_t>(value));
  Call call = make_call("rotary.cl", "rotary");
  call.define("VW", vw);
  add_tensor(call, x);
  add_tensor(call, launch.out[0]);
  call.arg(std::move(table));
  add_ints(call, {x.rows(), r.time, r.heads, r.half, chunk});
  return set_grid(call, ceil_div(units, chunk), 1, 1, tuned(target, "vector.WX"));
}

}  // namespace

KernelList rotary() {
  static constexpr Kernel kernels[] = {{"rotary", bind_rotary, "X -> Y"}};
  return {kernels, {}};
}

}  // namespace situ::opencl::kernels
