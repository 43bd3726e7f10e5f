// gemm.cpp -- matrix product  y[M,N] = epilogue(a' b')  on the register tile (tile.h).
//
//   matmul         b in place (tb = 0); a in place, plain or transposed (ta)
//   matmul_packed  b as panels [N/TN][K][TN] made by a pack_b launch, which also undoes tb
//   matmul_splits  parts[S,M,N]: part s sums its own range of K; a sum_splits launch adds them in order
//
// A task is a block of MC rows by a few panels. K is walked in blocks that keep a panel near the L1 cache; the sum of
// each is added to y, which also keeps a long sum exact (tile.cpp).
#include <algorithm>
#include <memory>

#include "backend/cpu/tile.h"
#include "base/error.h"

namespace situ::cpu {
namespace {

struct Gemm {
  int64_t m = 0, n = 0, k = 0, splits = 1;
  const float* a = nullptr;
  int64_t a_row = 0, a_step = 0;  // elements from row to row and from k to k
  const float* b = nullptr;
  int64_t b_step = 0, panel_stride = 0;
  float* y = nullptr;
  int64_t y_pitch = 0;
  int64_t tn = 0, panels = 0;
  int64_t mc = 0, row_blocks = 0, panels_per_task = 1, panel_blocks = 0, kc = 0;
  TileShape shape, last_shape;
  TileFunction tile = nullptr, last_tile = nullptr;
  TileEpilogue epilogue;
};

constexpr int64_t kRowUnit = 24;      // a multiple of every tile height
constexpr int64_t kEnoughTasks = 32;  // for a fair split over a handful of threads

void choose_blocks(Gemm& g, const device::Tuning& tuning) {
  g.mc = round_up(std::max<int64_t>(tuning.get("gemm.MC", 96), 1), kRowUnit);
  while (g.mc > kRowUnit && ceil_div(g.m, g.mc) * g.panels * g.splits < kEnoughTasks) g.mc -= kRowUnit;
  g.row_blocks = ceil_div(g.m, g.mc);
  g.panels_per_task = std::max<int64_t>(1, g.row_blocks * g.panels * g.splits / (2 * kEnoughTasks));
  g.panels_per_task = std::min(g.panels_per_task, g.panels);
  g.panel_blocks = ceil_div(g.panels, g.panels_per_task);
  const int64_t kc = std::max<int64_t>(tuning.get("gemm.KC", 512), 16);
  const int64_t length = ceil_div(g.k, g.splits);
  g.kc = ceil_div(length, std::max<int64_t>(1, (length + kc / 2) / kc));
}

// Rows [row0, row1) of one panel, over k in [k0, k1).
void run_panel(const Gemm& g, float* y, int64_t panel, int64_t row0, int64_t row1, int64_t k0, int64_t k1, bool first,
               bool last) {
  const bool full = (panel + 1) * g.tn <= g.n;
  const int64_t mr = full ? g.shape.mr : g.last_shape.mr;
  const TileFunction tile = full ? g.tile : g.last_tile;
  const float* pointers[kMaxTileRows];
  int64_t rows[kMaxTileRows];
  const TileSegment segment{k0 * g.b_step, k1 - k0};
  Tile t{.a = pointers,
         .segments = &segment,
         .count = 1,
         .b = g.b + panel * g.panel_stride,
         .a_step = g.a_step,
         .b_step = g.b_step,
         .y = y,
         .y_pitch = g.y_pitch,
         .rows = rows,
         .col = panel * g.tn,
         .m = mr,
         .n = std::min(g.tn, g.n - panel * g.tn),
         .accumulate = !first,
         .epilogue = last && g.epilogue.count ? &g.epilogue : nullptr};
  const float* a = g.a + k0 * g.a_step;
  for (int64_t row = row0; row < row1; row += mr) {
    t.m = std::min(mr, row1 - row);
    for (int64_t i = 0; i < mr; ++i) {
      rows[i] = row + std::min(i, t.m - 1);
      pointers[i] = a + rows[i] * g.a_row;
    }
    tile(t);
  }
}

void run_task(const Gemm& g, int64_t task) {
  const int64_t panel_block = task % g.panel_blocks, row_block = task / g.panel_blocks % g.row_blocks;
  const int64_t split = task / g.panel_blocks / g.row_blocks, length = ceil_div(g.k, g.splits);
  const int64_t k_begin = std::min(split * length, g.k), k_end = std::min(k_begin + length, g.k);
  const int64_t row0 = row_block * g.mc, row1 = std::min(row0 + g.mc, g.m);
  const int64_t panel0 = panel_block * g.panels_per_task, panel1 = std::min(panel0 + g.panels_per_task, g.panels);
  float* y = g.y + split * g.m * g.y_pitch;
  for (int64_t k = k_begin; k == k_begin || k < k_end; k += g.kc)
    for (int64_t panel = panel0; panel < panel1; ++panel)
      run_panel(g, y, panel, row0, row1, k, std::min(k + g.kc, k_end), k == k_begin, k + g.kc >= k_end);
}

Work bind_gemm(const Call& call, bool packed, bool splits) {
  const Operand &a = call.in[0], &b = call.in[1], &y = call.out[0];
  const bool ta = call.attrs.flag("ta");
  SITU_ASSERT(packed || !call.attrs.flag("tb"), "a transposed right side needs panels");
  auto g = std::make_shared<Gemm>();
  g->splits = splits ? y.shape()[0] : 1;
  g->m = y.rows() / g->splits;
  g->n = y.cols();
  g->k = ta ? a.rows() : a.cols();
  g->a = a.f32();
  g->a_row = ta ? 1 : a.pitch;
  g->a_step = ta ? a.pitch : 1;
  g->tn = packed ? b.cols() : panel_width(call.tuning());
  g->panels = ceil_div(g->n, g->tn);
  g->b = b.f32();
  g->b_step = packed ? g->tn : b.pitch;
  g->panel_stride = packed ? g->k * g->tn : g->tn;
  g->y = y.f32();
  g->y_pitch = y.pitch;
  const int64_t lanes = call.tuning().get("simd.lanes", 8), last = g->n - (g->panels - 1) * g->tn;
  g->shape = tile_shape(g->tn, call.tuning());
  g->last_shape = tile_shape(last, call.tuning());
  g->tile = tile_function(g->shape.mr, g->shape.nv, false);
  g->last_tile = tile_function(g->last_shape.mr, g->last_shape.nv, !packed && last % lanes != 0);
  if (!splits) g->epilogue = bind_epilogue(call, 2);
  choose_blocks(*g, call.tuning());
  return {g->splits * g->row_blocks * g->panel_blocks, [g](int64_t task) { run_task(*g, task); }};
}

Work bind_matmul(const Call& call) { return bind_gemm(call, false, call.out[0].shape().rank() == 3); }
Work bind_packed(const Call& call) { return bind_gemm(call, true, call.out[0].shape().rank() == 3); }

// --- ways to run a matmul
// ----------------------------------------------------------------------------------------------
struct Sizes {
  int64_t m, n, k;
};
Sizes sizes_of(const ops::OpView& view) {
  const Shape& a = view.in(0).shape;
  return {view.out(0).shape[0], view.out(0).shape[1], view.attrs.flag("ta") ? a[0] : a[1]};
}

// Splits of K: only where the result alone gives too few tasks. By shape and tuning alone: sums must not change with
// the number of threads.
int64_t splits_of(const ops::OpView& view, const device::Target& target) {
  const Sizes s = sizes_of(view);
  const int64_t tasks = ceil_div(s.m, kRowUnit) * ceil_div(s.n, panel_width(target.tuning));
  const int64_t shortest = std::max<int64_t>(target.tuning.get("gemm.split_k", 256), 16);
  return std::clamp<int64_t>(std::min(s.k / shortest, kEnoughTasks / 2 / tasks), 1, 64);
}

// Rates that only rank candidates against each other; the number of threads has no say.
constexpr double kFlops = 40e9, kPackedPerSecond = 2e9, kTurnedPerSecond = 1e9, kLaunch = 2e-6;
// Where a tile walks down columns of a, it uses few elements of each line at a time.
double rate_of(const ops::OpView& view, const device::Target& target) {
  return view.attrs.flag("ta") ? 0.01 * static_cast<double>(target.tuning.get("gemm.across", 65)) * kFlops : kFlops;
}
double flops_of(const Sizes& s) {
  return 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
}

bool accepts_in_place(const ops::OpView& view, const device::Target&) { return !view.attrs.flag("tb"); }
double seconds_in_place(const ops::OpView& view, const device::Target& target) {
  return flops_of(sizes_of(view)) / (0.85 * rate_of(view, target)) + kLaunch;
}
double seconds_packed(const ops::OpView& view, const device::Target& target) {
  const Sizes s = sizes_of(view);
  return flops_of(s) / rate_of(view, target) + static_cast<double>(s.k * s.n) / kPackedPerSecond + 2 * kLaunch;
}
bool accepts_turned(const ops::OpView& view, const device::Target&) { return view.attrs.flag("ta"); }
double seconds_turned(const ops::OpView& view, const device::Target&) {
  const Sizes s = sizes_of(view);
  return flops_of(s) / kFlops + static_cast<double>(s.k * s.n) / kPackedPerSecond +
         static_cast<double>(s.m * s.k) / kTurnedPerSecond + 3 * kLaunch;
}

// The product with b in place or packed; the parts of K, if any, are added by a second launch with the epilogue.
void expand_product(device::Expansion& e, std::string_view kernel, ir::Value a, ir::Value b, bool ta) {
  const int64_t splits = splits_of(e.view(), e.target());
  const ir::Attrs product{{"ta", int64_t{ta}}};
  ir::Attrs with_epilogue = product;
  if (e.attrs().has("epilogue")) with_epilogue.set("epilogue", e.attrs().text("epilogue"));
  ir::Values extra(e.inputs().begin() + 2, e.inputs().end());
  if (splits == 1) {
    ir::Values inputs{a, b};
    inputs.insert(inputs.end(), extra.begin(), extra.end());
    return e.result(0, e.launch(kernel, inputs, e.out_type(0), with_epilogue));
  }
  const Sizes s = sizes_of(e.view());
  ir::Values inputs{e.launch(kernel, {a, b}, f32({splits, s.m, s.n}), product)};
  inputs.insert(inputs.end(), extra.begin(), extra.end());
  with_epilogue.erase("ta");
  e.result(0, e.launch("sum_splits", inputs, e.out_type(0), with_epilogue));
}
void expand_in_place(device::Expansion& e) { expand_product(e, "matmul", e.in(0), e.in(1), e.attrs().flag("ta")); }
ir::Value packed(device::Expansion& e) {
  const Sizes s = sizes_of(e.view());
  const int64_t tn = panel_width(e.target().tuning);
  return e.launch("pack_b", {e.in(1)}, f32({ceil_div(s.n, tn), s.k, tn}), {{"tb", e.attrs().integer("tb", 0)}});
}
void expand_packed(device::Expansion& e) {
  expand_product(e, "matmul_packed", e.in(0), packed(e), e.attrs().flag("ta"));
}
void expand_turned(device::Expansion& e) {
  const Sizes s = sizes_of(e.view());
  const ir::Value a = e.launch("transpose", {e.in(0)}, f32({s.m, s.k}), {{"perm", ir::Ints{1, 0}}});
  expand_product(e, "matmul_packed", a, packed(e), false);
}

}  // namespace

namespace kernels {
KernelList gemm() {
  static constexpr Kernel kernels[] = {{"matmul", bind_matmul}, {"matmul_packed", bind_packed}};
  static constexpr device::Candidate candidates[] = {
      {.op = "matmul",
       .name = "in_place",
       .accepts = accepts_in_place,
       .seconds = seconds_in_place,
       .expand = expand_in_place},
      {.op = "matmul", .name = "packed", .seconds = seconds_packed, .expand = expand_packed},
      {.op = "matmul",
       .name = "turned",
       .accepts = accepts_turned,
       .seconds = seconds_turned,
       .expand = expand_turned}};
  return {kernels, candidates};
}
}  // namespace kernels
}  // namespace situ::cpu
