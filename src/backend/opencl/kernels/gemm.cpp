// gemm.cpp -- matmul by the register-tiled product of gemm.cl.
//
// B in panels or in place, K whole or split over the grid. In place needs a B that is not transposed; rows shorter than
// a vector are read from before their start (tile.clh). A split pays where the result is small and K long, as in weight
// gradients. A transposed A is read as it lies, or turned by a launch of its own, which pays where a cache line holds
// more of a column's neighbours than a tile uses.
#include "backend/opencl/kernels/operand.h"

namespace situ::opencl::kernels {
namespace {

// What the parts of a launch (splits of K, or the products of a batch) do.
struct Parts {
  int64_t m, n, k;
  int64_t count = 1, k_split = 0, k_step = 0;
  int64_t a = 0, b = 0, y = 0;  // elements from part to part
};

// A batch of products: operands are [batch, plane], a plane a dense matrix (b: its panels) and what separates it from
// the next one. The launch then sees them as plain matrices.
Parts batch_parts(const ir::Attrs& attrs, TensorArg& a, TensorArg& b, TensorArg& y) {
  Parts p{.m = attrs.integer("m"), .n = attrs.integer("n"), .k = attrs.integer("k")};
  p.k_split = p.k;
  p.count = attrs.integer("batch");
  p.a = a.pitch, p.b = b.pitch, p.y = y.pitch;
  for (const TensorArg* t : {&a, &b, &y}) int_of(p.count * t->pitch);
  const bool ta = attrs.flag("ta");
  a.pitch = ta ? p.m : p.k, a.type.shape = Shape{ta ? p.k : p.m, a.pitch};
  b.pitch = p.n, b.type.shape = Shape{p.k, p.n};
  y.pitch = p.n, y.type.shape = Shape{p.m, p.n};
  return p;
}
Parts split_parts(const ir::Attrs& attrs, const TensorArg& a, const TensorArg& y) {
  const bool ta = attrs.flag("ta");
  Parts p{.m = ta ? a.cols() : a.rows(), .n = y.cols(), .k = ta ? a.rows() : a.cols()};
  p.count = attrs.integer("splits");
  p.k_split = p.k_step = ceil_div(p.k, p.count);
  p.y = p.m * y.pitch;
  SITU_ASSERT(p.count == 1 || y.dense(), "partial sums are dense");
  return p;
}

// All elements of a batch as one row, with the pitch of its matrices.
TensorArg flat(const TensorArg& t, int64_t pitch) {
  return {t.slab, t.offset, pitch, {t.type.dtype, Shape{1, (t.rows() - 1) * t.pitch + t.cols()}}};
}

Call bind_gemm(const LaunchSpec& launch, const Target& target) {
  const ir::Attrs& attrs = launch.node.attrs;
  TensorArg a = launch.in[0], b = launch.in[1], y = launch.out[0];
  const bool packed = attrs.flag("packed");
  const Tile tile = gemm_tile(target, attrs.integer("nv"), attrs.flag("tall"));
  const Parts p = attrs.has("batch") ? batch_parts(attrs, a, b, y) : split_parts(attrs, a, y);

  Call call = make_call("gemm.cl", "gemm");
  define_tile(call, target, tile);
  call.define("TA", attrs.flag("ta"));
  // Winograd's products: their rounding is multiplied by the transform behind them, so their sums are short.
  if (attrs.has("batch")) call.define("K_BLOCK", 32);
  define_epilogue(call, launch, 2);
  const bool batch = attrs.has("batch"), ta = attrs.flag("ta");
  const bool floats = a.type.dtype == DType::f32 && b.type.dtype == DType::f32;
  const bool sub = floats && tuned(target, "gemm.SUB") != 0 && has_sub_groups(target);
  const int64_t b_step = packed ? tile.tn() : b.pitch, b_panel = packed ? p.k * tile.tn() : tile.tn();
  const bool narrow = !packed && p.n < tile.vw;  // vectors then start before the row, where an image may not
  const int64_t b_image =
      narrow ? kFromSlab
             : right_image(target, tile, launch.in[1], !packed && !batch, {b_step, b_panel, p.b, packed ? 0 : p.n});
  const TensorArg all_of_a = flat(launch.in[0], a.pitch);
  const int64_t a_image = ta || sub ? kFromSlab : left_image(target, all_of_a, {p.k, p.k_split, a.pitch, p.a});
  add_operand(call, a_image == kFromSlab ? a : all_of_a, "A_IMAGE", a_image);
  add_operand(call, b_image == kFromSlab ? b : launch.in[1], "B_IMAGE", b_image);
  add_tensor(call, y);
  for (size_t i = 2; i < launch.in.size(); ++i) add_tensor(call, launch.in[i]);
  const int64_t rows = ceil_div(p.m, tile.tm), panels = ceil_div(p.n, tile.tn());
  const int64_t tiles = tiles_per_item(target, rows, panels * p.count, tile.tm * tile.tn() * p.k_split);
  const int64_t last = packed ? std::numeric_limits<int32_t>::max() : p.n - tile.vw;
  add_ints(call, {p.m, p.n, p.k, row_step(b_image, b_step), b_panel, last});
  add_ints(call, {p.k_split, p.k_step, p.a, p.b, p.y, tiles});
  const int64_t wx = tuned(target, "gemm.WX"), wy = tuned(target, "gemm.WY");
  if (!sub) return set_grid(call, ceil_div(rows, tiles), panels, p.count, wx, wy);
  call.define("SUB", 1).sub_groups = true;
  return set_grid(call, panels, ceil_div(rows, tiles), p.count, wx * wy);
}

Product product_of(const ops::OpView& v) {
  return kernels::product_of(v.in(0), v.in(1), v.attrs.flag("ta"), v.attrs.flag("tb"));
}
template <bool packed, bool split, bool turned, bool tall>
bool accepts(const ops::OpView& v, const Target& target) {
  return product_accepts(target, product_of(v), {packed, split, turned, tall});
}
template <bool packed, bool split, bool turned, bool tall>
double seconds(const ops::OpView& v, const Target& target) {
  const Product p = product_of(v);
  const double seconds = product_seconds(target, p, {packed, split, turned, tall});
  if (turned) return seconds + 8 * static_cast<double>(p.m * p.k) / kNominalBytes + kNominalLaunch;
  return p.ta ? seconds * static_cast<double>(tuned(target, "gemm.TA")) / 100 : seconds;
}
template <bool packed, bool split, bool turned, bool tall>
void expand(Expansion& e) {
  const Product p = product_of(e.view());
  e.result(0,
           expand_product(e, e.in(0), e.in(1), operands_from(e, 2), p, {packed, split, turned, tall}, e.out_type(0)));
}
template <bool packed, bool split, bool turned = false, bool tall = false>
constexpr device::Candidate candidate(std::string_view name) {
  return {"matmul", name, accepts<packed, split, turned, tall>, seconds<packed, split, turned, tall>,
          expand<packed, split, turned, tall>};
}

}  // namespace

KernelList gemm() {
  static constexpr Kernel kernels[] = {{"gemm", bind_gemm, "A B * -> Y"}};
  static constexpr device::Candidate candidates[] = {candidate<true, false>("packed"),
                                                     candidate<false, false>("in_place"),
                                                     candidate<true, true>("packed_split"),
                                                     candidate<false, true>("in_place_split"),
                                                     candidate<true, false, true>("turned"),
                                                     candidate<true, true, true>("turned_split"),
                                                     candidate<true, false, false, true>("packed_tall"),
                                                     candidate<true, false, true, true>("turned_tall")};
  return {kernels, candidates};
}

}  // namespace situ::opencl::kernels
