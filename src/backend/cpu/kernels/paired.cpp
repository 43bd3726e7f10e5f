// paired.cpp -- matrix products of paired terms (backend/cpu/paired.h), of 1x1 convolutions and their gradients, too.
//
//   pack_paired            b[K,N] (or [N,K] with tb) as panels [N/width][rows of all blocks][width]
//   matmul_paired          y[M,N] = epilogue(a' b), scratch; b as panels
//   matmul_paired_columns  y[M,N] = epilogue(a b'), scratch; a as panels
// Of the first a task has some units, each a block of rows by some panels, and packs its rows of a, plain or transposed
// (ta), block of terms by block of terms. Of the second it packs some columns of b, plain or transposed (tb): where b
// is the larger of the two and changes in every step, its panels are never written to far memory.
#include "backend/cpu/paired.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "ops/window.h"

namespace situ::cpu {
namespace {

// The product that a node stands for.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  bool ta = false, tb = false;
  double flops() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
};

Product product_of(const ops::OpView& v) {
  const Shape &a = v.in(0).shape, &b = v.in(1).shape, &y = v.out(0).shape;
  if (v.op == "conv2d") return {y.rows(), y.cols(), a.cols()};
  if (v.op == "conv2d_dx") return {y.rows(), y.cols(), a.cols(), false, true};
  if (v.op == "conv2d_dw") return {a.cols(), b.cols(), a.rows(), true, false};
  const bool ta = v.attrs.flag("ta");
  return {y[0], y[1], a[ta ? 0 : 1], ta, v.attrs.flag("tb")};
}

bool is_product(const ops::OpView& v) {
  if (v.op == "matmul") return true;
  const Shape& x = v.op == "conv2d_dx" ? v.out(0).shape : v.in(0).shape;
  const Shape& w = v.op == "conv2d_dw" ? v.out(0).shape : v.in(1).shape;
  return v.attrs.integer("groups", 1) == 1 && ops::is_pointwise(ops::window_of(v.attrs, {x[1], x[2]}, {w[0], w[1]}));
}

// How the work is cut into units of rows by panels. A result is the same however it is, so threads have a say.
struct Cut {
  int64_t rows = 0, row_blocks = 1;
  int64_t panels = 0, panel_blocks = 1;
  int64_t tasks = 1;  // each has some units, and scratch for one
  int64_t units() const { return row_blocks * panel_blocks; }
};
constexpr int64_t kMostRows = 128, kMostTasks = 16;
constexpr double kLargeProduct = 1e8;  // flops that are worth twice as many units, for an even split

// What a unit takes per term, in multiply-adds: packing a row, which another core may have written, is dear; so are
// panels that are read again, but less.
constexpr int64_t kPackedRow = 50, kReadColumn = 8;

Cut cut_of(int64_t m, int64_t n, int64_t k, const device::Target& target) {
  const int64_t width = paired_width(target.tuning), panels = ceil_div(n, width), threads = target.compute_units;
  const bool large = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) > kLargeProduct;
  const int64_t most = ceil_div(m, kPairedRows) * panels, fewest_rows = ceil_div(m, kMostRows);
  Cut best;
  int64_t least = 0;
  for (int64_t each = large ? 4 : 1; each <= (large ? 4 : 2); ++each) {  // units a thread
    const int64_t wanted = std::min(threads * each, most);
    for (int64_t row_blocks = fewest_rows; row_blocks <= std::max(wanted, fewest_rows + threads); ++row_blocks) {
      Cut cut;
      cut.rows = round_up(ceil_div(m, row_blocks), kPairedRows);
      cut.row_blocks = ceil_div(m, cut.rows);
      cut.panels = ceil_div(panels, std::min(panels, ceil_div(wanted, cut.row_blocks)));
      cut.panel_blocks = ceil_div(panels, cut.panels);
      cut.tasks = std::min(cut.units(), std::max(kMostTasks, wanted));
      const int64_t columns = cut.panels * width;
      const int64_t cost =
          ceil_div(cut.units(), threads) * (cut.rows * columns + kPackedRow * cut.rows + kReadColumn * columns);
      if (least && cost >= least) continue;
      least = cost;
      best = cut;
    }
  }
  return best;
}

Work bind_pack(const Call& call) {
  const Operand &b = call.in[0], &panels = call.out[0];
  const bool tb = call.attrs.flag("tb");
  const int64_t k = tb ? b.cols() : b.rows(), n = tb ? b.rows() : b.cols(), width = panels.cols();
  const PairedTerms terms(k);
  SITU_ASSERT(panels.rows() == ceil_div(n, width) * terms.rows() && panels.pitch == width);
  const PackPaired pack = pack_paired_function();
  const PairedPanel all{.from = b.f32(),
                        .term_step = tb ? 1 : b.pitch,
                        .lane_step = tb ? b.pitch : 1,
                        .width = width,
                        .to = panels.f32()};
  return {ceil_div(n, width) * terms.blocks, [=](int64_t task) {
            const int64_t panel = task / terms.blocks, block = task % terms.blocks;
            PairedPanel p = all;
            p.from += block * terms.block * p.term_step + panel * width * p.lane_step;
            p.terms = terms.length(block);
            p.lanes = std::min(width, n - panel * width);
            p.to += (panel * terms.rows() + terms.first_row(block)) * width;
            pack(p);
          }};
}

Work bind_product(const Call& call) {
  const Operand &a = call.in[0], &y = call.out[0], &scratch = call.out[1];
  const bool ta = call.attrs.flag("ta");
  const int64_t n = y.cols(), m = ta ? a.cols() : a.rows(), k = ta ? a.rows() : a.cols();
  auto p = std::make_shared<PairedProduct>(paired_product(call.in[1], k, n, y, call.tuning()));
  p->epilogue = bind_epilogue(call, 2);
  const Cut cut = cut_of(m, n, k, call.target);
  SITU_ASSERT(y.rows() == m && scratch.rows() == cut.tasks);
  SITU_ASSERT(scratch.cols() == PairedProduct::scratch_floats(cut.rows, p->terms));
  const PairedRows all{.a = a.f32(), .a_row = ta ? 1 : a.pitch, .a_step = ta ? a.pitch : 1, .scratch = scratch.f32()};
  const int64_t scratch_pitch = scratch.pitch;
  return {cut.tasks, [=](int64_t task) {
            PairedRows r = all;
            r.scratch += task * scratch_pitch;
            for (int64_t unit = cut.units() * task / cut.tasks; unit < cut.units() * (task + 1) / cut.tasks; ++unit) {
              r.first_row = unit / cut.panel_blocks * cut.rows;
              r.m = std::min(cut.rows, m - r.first_row);
              r.a = all.a + r.first_row * r.a_row;
              r.panel0 = unit % cut.panel_blocks * cut.panels;
              r.panel1 = std::min(r.panel0 + cut.panels, p->panels());
              multiply_paired(*p, r);
            }
          }};
}

Work bind_columns(const Call& call) {
  const Operand &a = call.in[0], &b = call.in[1], &y = call.out[0], &scratch = call.out[1];
  const bool tb = call.attrs.flag("tb");
  const int64_t n = y.cols(), m = y.rows(), k = tb ? b.cols() : b.rows();
  auto p = std::make_shared<PairedProduct>(paired_product(k, n, y, call.tuning()));
  p->epilogue = bind_epilogue(call, 2);
  SITU_ASSERT(a.rows() == ceil_div(m, kPairedRows) * p->terms.rows() && a.pitch == kPairedRows);
  SITU_ASSERT(scratch.cols() == (p->terms.block + 2) * p->width);
  const int64_t tasks = scratch.rows(), scratch_pitch = scratch.pitch;
  const PairedColumns all{.m = m,
                          .a = a.f32(),
                          .b = b.f32(),
                          .b_step = tb ? 1 : b.pitch,
                          .b_column = tb ? b.pitch : 1,
                          .scratch = scratch.f32()};
  return {tasks, [=](int64_t task) {
            PairedColumns c = all;
            c.scratch += task * scratch_pitch;
            c.panel0 = p->panels() * task / tasks;
            c.panel1 = p->panels() * (task + 1) / tasks;
            multiply_paired(*p, c);
          }};
}

// --- candidates -----------------------------------------------------------------------------------------------------
bool accepts(const ops::OpView& v, const device::Target& target) {
  if (!pairs_terms(target) || !is_product(v)) return false;
  const Product p = product_of(v);
  return p.k >= (p.ta ? kFewestPairedSamples : kFewestPaired);
}

// On the scale of the estimates in gemm.cpp.
double seconds(const ops::OpView& v, const device::Target& target) {
  const Product p = product_of(v);
  const Cut cut = cut_of(p.m, p.n, p.k, target);
  return p.flops() / 54e9 + static_cast<double>(p.k * p.n) / 2e9 +
         static_cast<double>(p.m * p.k * cut.panel_blocks) / 3e9 + 4e-6;
}

// Before the direct ways of a convolution where there are columns enough to make up for packing, and rows of a weight
// gradient, whose b is packed too.
double rank(const ops::OpView& v, const device::Target&) {
  const Product p = product_of(v);
  return pays_to_pair(p.k, p.n) && (!p.ta || p.m >= 64) ? -1 : 2;
}

constexpr int64_t kMostPanelRows = 384;  // of a, which all panels of b meet: a block of them stays in the L2 cache

void expand(device::Expansion& e) {
  const Product p = product_of(e.view());
  const PairedTerms terms(p.k);
  const int64_t width = paired_width(e.target().tuning), panels = ceil_div(p.n, width);
  const int64_t enough = 4 * e.target().compute_units;  // tasks for an even split
  const bool by_columns = !e.steady(1) && p.m < p.n && p.m <= kMostPanelRows && panels >= enough;
  const std::string epilogue = e.attrs().text("epilogue", "");
  const auto pack = [&](int i, int64_t count, int64_t lanes, bool turned) {
    return e.launch("pack_paired", {e.in(i)}, f32({count, terms.rows(), lanes}), {{"tb", int64_t{turned}}});
  };
  ir::Values inputs = e.inputs();
  if (by_columns) {
    inputs[0] = pack(0, ceil_div(p.m, kPairedRows), kPairedRows, !p.ta);
    const Type scratch = f32({std::min(panels, std::max<int64_t>(kMostTasks, enough)), (terms.block + 2) * width});
    const ir::Attrs attrs{{"tb", int64_t{p.tb}}, {"epilogue", epilogue}};
    return e.result(0, e.launch_all("matmul_paired_columns", inputs, {e.out_type(0), scratch}, attrs)[0]);
  }
  inputs[1] = pack(1, panels, width, p.tb);
  const Cut cut = cut_of(p.m, p.n, p.k, e.target());
  const Type scratch = f32({cut.tasks, PairedProduct::scratch_floats(cut.rows, terms)});
  const ir::Attrs attrs{{"ta", int64_t{p.ta}}, {"epilogue", epilogue}};
  e.result(0, e.launch_all("matmul_paired", inputs, {e.out_type(0), scratch}, attrs)[0]);
}

}  // namespace

namespace kernels {
KernelList paired() {
  static constexpr Kernel kernels[] = {
      {"pack_paired", bind_pack}, {"matmul_paired", bind_product}, {"matmul_paired_columns", bind_columns}};
  static constexpr device::Candidate candidates[] = {{"matmul", "paired", accepts, seconds, expand},
                                                     {"conv2d", "paired", accepts, rank, expand},
                                                     {"conv2d_dx", "paired", accepts, rank, expand},
                                                     {"conv2d_dw", "paired", accepts, rank, expand}};
  return {kernels, candidates};
}
}  // namespace kernels
}  // namespace situ::cpu
