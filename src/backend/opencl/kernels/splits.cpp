// splits.cpp -- the ordered sum of split-K's partial results; launched by the candidates that split.
#include "backend/opencl/kernels/tile.h"

namespace situ::opencl::kernels {
namespace {

Call bind_sum_splits(const LaunchSpec& launch, const Target& target) {
  const TensorArg &part = launch.in[0], &y = launch.out[0];
  SITU_ASSERT(part.dense(), "partial sums are dense");
  const bool one_row = y.dense() && launch.in.size() == 1;  // no operand that is addressed by rows
  const int64_t rows = one_row ? 1 : y.rows(), cols = one_row ? y.count() : y.cols();
  Call call = make_call("splits.cl", "sum_splits");
  const int64_t vw = tuned(target, "vector.VW"), wx = tuned(target, "vector.WX");
  const int64_t chunk = std::max<int64_t>(1, tuned(target, "vector.CHUNK") / vw / part.shape()[0]);
  call.define("VW", vw);
  define_epilogue(call, launch, 1);
  add_tensor(call, part);
  add_tensor(call, y);
  for (size_t i = 1; i < launch.in.size(); ++i) add_tensor(call, launch.in[i]);
  add_ints(call, {part.shape()[0], rows, cols, chunk});
  return set_grid(call, ceil_div(ceil_div(cols, vw), chunk), rows, 1, wx);
}

}  // namespace

KernelList splits() {
  static constexpr Kernel kernels[] = {{"sum_splits", bind_sum_splits, "- * -> Y"}};
  return {kernels, {}};
}

}  // namespace situ::opencl::kernels
