// gemm.cpp -- matmul by the register-tiled product of gemm.cl.
//
// B in panels or in place, K whole or split over the grid. In place needs rows of B at least a vector long and not
// transposed; a split pays where the result is small and K long, as in weight gradients. A transposed A is read as it
// lies, or turned by a launch of its own, which pays where a cache line holds more of a column's neighbours than a tile
// uses.
#include "backend/opencl/kernels/tile.h"

namespace situ::opencl::kernels {
namespace {

Call bind_gemm(const LaunchSpec& launch, const Target& target) {
  const ir::Attrs& attrs = launch.node.attrs;
  const TensorArg &a = launch.in[0], &b = launch.in[1], &y = launch.out[0];
  const bool ta = attrs.flag("ta"), packed = attrs.flag("packed");
  const int64_t batch = attrs.integer("batch", 1), splits = attrs.integer("splits", 1), parts = batch * splits;
  const int64_t a_rows = a.rows() / batch, m = ta ? a.cols() : a_rows, n = y.cols(), k = ta ? a_rows : a.cols();
  const Tile tile = gemm_tile(target, attrs.integer("nv"));
  SITU_ASSERT(batch == 1 || splits == 1, "a batch of products is not split");
  SITU_ASSERT(splits == 1 || y.dense(), "partial sums are dense");
  int_of(parts * m * n);

  Call call = make_call("gemm.cl", "gemm");
  define_tile(call, target, tile);
  call.define("TA", ta);
  define_epilogue(call, attrs);
  for (const TensorArg* t : {&a, &b, &y}) add_tensor(call, *t);
  for (size_t i = 2; i < launch.in.size(); ++i) add_tensor(call, launch.in[i]);
  const int64_t k_split = ceil_div(k, splits), rows = ceil_div(m, tile.tm), panels = ceil_div(n, tile.tn());
  const int64_t tiles = tiles_per_item(target, rows, panels * parts, tile.tm * tile.tn() * k_split);
  const int64_t last = packed ? std::numeric_limits<int32_t>::max() : n - tile.vw;
  add_ints(call, {m, n, k, packed ? tile.tn() : b.pitch, packed ? k * tile.tn() : tile.tn(), last, k_split});
  const int64_t b_batch = packed ? panels * k * tile.tn() : k * b.pitch;
  add_ints(call, {splits > 1 ? k_split : 0, batch > 1 ? a_rows * a.pitch : 0, batch > 1 ? b_batch : 0, tiles});
  return set_grid(call, ceil_div(rows, tiles), panels, parts, tuned(target, "gemm.WX"), tuned(target, "gemm.WY"));
}

Product product_of(const ops::OpView& v) {
  return kernels::product_of(v.in(0), v.in(1), v.attrs.flag("ta"), v.attrs.flag("tb"));
}
template <bool packed, bool split, bool turned>
bool accepts(const ops::OpView& v, const Target& target) {
  return product_accepts(target, product_of(v), {packed, split, turned});
}
template <bool packed, bool split, bool turned>
double seconds(const ops::OpView& v, const Target& target) {
  const Product p = product_of(v);
  const double seconds = product_seconds(target, p, {packed, split, turned});
  if (turned) return seconds + 8 * static_cast<double>(p.m * p.k) / kNominalBytes + kNominalLaunch;
  return p.ta ? seconds * static_cast<double>(tuned(target, "gemm.TA")) / 100 : seconds;
}
template <bool packed, bool split, bool turned>
void expand(Expansion& e) {
  const Product p = product_of(e.view());
  e.result(0, expand_product(e, e.in(0), e.in(1), operands_from(e, 2), p, {packed, split, turned}, e.out_type(0)));
}
template <bool packed, bool split, bool turned = false>
constexpr device::Candidate candidate(std::string_view name) {
  return {"matmul", name, accepts<packed, split, turned>, seconds<packed, split, turned>,
          expand<packed, split, turned>};
}

}  // namespace

KernelList gemm() {
  static constexpr Kernel kernels[] = {{"gemm", bind_gemm}};
  static constexpr device::Candidate candidates[] = {
      candidate<true, false>("packed"),       candidate<false, false>("in_place"),
      candidate<true, true>("packed_split"),  candidate<false, true>("in_place_split"),
      candidate<true, false, true>("turned"), candidate<true, true, true>("turned_split")};
  return {kernels, candidates};
}

}  // namespace situ::opencl::kernels
