// copy.cpp -- copy between any pitches, images with a border of zeros (for convolutions), and transpose.
#include "backend/opencl/kernels/axes.h"

namespace situ::opencl::kernels {
namespace {

// 16-bit words where both sides are stored as half; a conversion where one is.
void define_words(Call& call, const TensorArg& x, const TensorArg& y) {
  const bool from_half = x.type.dtype == DType::f16, to_half = y.type.dtype == DType::f16;
  if (!from_half && !to_half) return;
  const bool both = from_half && to_half;
  call.options += fmt::format(" -DX_T={} -DY_T={}", both ? "short" : type_name(x), both ? "short" : type_name(y));
  call.define("TURNS", 0);
}

Call bind_copy(const LaunchSpec& launch, const Target& target) {
  const TensorArg &x = launch.in[0], &y = launch.out[0];
  const bool one_row = x.dense() && y.dense();
  const int64_t rows = one_row ? 1 : x.rows(), cols = one_row ? x.count() : x.cols();
  const int64_t vw = tuned(target, "vector.VW"), chunk = std::max<int64_t>(1, tuned(target, "vector.CHUNK") / vw);
  Call call = make_call("copy.cl", "copy");
  call.define("VW", vw);
  define_words(call, x, y);
  add_tensors(call, {x, y});
  add_ints(call, {rows, cols, chunk});
  return set_grid(call, ceil_div(ceil_div(cols, vw), chunk), rows, 1, one_row ? tuned(target, "vector.WX") : 1);
}

Call bind_pad(const LaunchSpec& launch, const Target& target) {
  const TensorArg &x = launch.in[0], &y = launch.out[0];
  const ir::Ints& before = launch.node.attrs.ints("before");
  SITU_ASSERT(y.dense(), "padded images are dense");
  const int64_t lines = y.shape()[0] * y.shape()[1];
  Call call = make_call("copy.cl", "pad");
  call.define("VW", tuned(target, "vector.VW"));
  define_words(call, x, y);
  add_tensors(call, {x, y});
  add_ints(call, {lines, x.shape()[1], x.shape()[2], x.cols(), y.shape()[1], y.shape()[2], before[0], before[1]});
  return set_grid(call, lines, 1, 1, std::min<int64_t>(tuned(target, "vector.WX"), 16));
}

// Axes of y with the strides of y and x, innermost last.
std::vector<Axis> transposed_axes(const LaunchSpec& launch) {
  const TensorArg &x = launch.in[0], &y = launch.out[0];
  const ir::Ints& perm = launch.node.attrs.ints("perm");
  std::vector<Axis> axes;
  for (int i = 0; i < y.shape().rank(); ++i) {
    const int from = static_cast<int>(perm[static_cast<size_t>(i)]);
    axes.push_back({y.shape()[i], {stride_of(y, i, y.shape().rank()), stride_of(x, from, x.shape().rank())}});
  }
  return axes;
}

// Blocks over y's last axis and x's last axis; if that is the same one, or of extent 1, rows of one element are left.
Call bind_transpose(const LaunchSpec& launch, const Target& target) {
  std::vector<Axis> axes = merged(transposed_axes(launch), 2);
  Axis cols{1, {1, 0}}, others{1, {0, 1}};
  const auto take = [&](size_t operand, Axis& into) {
    for (size_t i = axes.size(); i-- > 0;)
      if (axes[i].strides[operand] == 1) {
        into = axes[i];
        axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(i));
        return;
      }
  };
  take(0, cols);
  take(1, others);
  int64_t planes = 1;
  for (const Axis& a : axes) planes *= a.extent;
  const int64_t side = tuned(target, "copy.SIDE");
  const int64_t chunk = std::max<int64_t>(1, tuned(target, "vector.CHUNK") / (cols.extent * others.extent));
  const int64_t c_blocks = chunk > 1 ? 1 : ceil_div(cols.extent, side);
  const int64_t o_blocks = chunk > 1 ? 1 : ceil_div(others.extent, side);
  Call call = make_call("copy.cl", "transpose");
  call.define("VW", tuned(target, "vector.VW")).define("SIDE", side);
  define_words(call, launch.in[0], launch.out[0]);
  add_tensors(call, {launch.in[0], launch.out[0]});
  call.arg(table_of(axes, 2));
  add_ints(call, {static_cast<int64_t>(axes.size()), planes, chunk, cols.extent, cols.strides[1], others.extent,
                  others.strides[0]});
  return set_grid(call, c_blocks, o_blocks, ceil_div(planes, chunk), tuned(target, "gemm.WX"));
}

}  // namespace

KernelList copy() {
  static constexpr Kernel kernels[] = {
      {"copy", bind_copy, "* -> *"}, {"pad", bind_pad, "* -> *"}, {"transpose", bind_transpose, "* -> *"}};
  return {kernels, {}};
}

}  // namespace situ::opencl::kernels
