// fast_product.cpp -- matrix products in less time than their multiply-adds (backend/cpu/fast_product.h), of 1x1
// convolutions and their gradients, too. Each in two forms, paired and pieces:
//
//   pack_FORM            b[K,N] (or [N,K] with tb) as panels [N/width][rows of all blocks][width]; rows of a, if of_a
//   matmul_FORM          y[M,N] = epilogue(a' b), scratch; b as panels
//   matmul_FORM_columns  y[M,N] = epilogue(a b'), scratch; a as panels
// Of the second a task is a block of rows by some panels, or a strip of tiles, and packs its rows of a, plain or
// transposed (ta), block of terms by block of terms. Of the third it packs some columns of b, plain or transposed (tb):
// where b is the larger of the two and changes in every step, its panels are never written to far memory.
#include "backend/cpu/fast_product.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/thread_pool.h"
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

// How the work is cut into units. A result is the same however it is, so threads have a say.
//
//     0 0 1 1     a grid of rows by panels; where that would be uneven, strips: tiles in the       0 0 0
//     2 2 3 3     order in which they lie, as many for each unit                                   0 1 1
//     2 2 3 3                                                                                      1 1 1
struct Cut {
  int64_t rows = 0, row_blocks = 1;  // rows: the most of a unit, whole panels of them
  int64_t panels = 0, panel_blocks = 1;
  int64_t strips = 0;  // in place of a grid, if not 0
  int64_t units() const { return strips ? strips : row_blocks * panel_blocks; }
};
constexpr int64_t kMostRows[kForms] = {0, 128, 256};
constexpr double kLargeProduct = 1e8;  // flops that are worth twice as many units, for an even split

// What a unit takes per term, in multiply-adds: packing a row, which another core may have written, is dear; so are
// panels that are read again, but less.
constexpr int64_t kPackedRow = 50, kReadColumn = 8;

Cut cut_of(Form form, int64_t m, int64_t n, int64_t k, const device::Target& target) {
  const int64_t width = fast_width(form, target.tuning), unit = panel_rows(form), panels = ceil_div(n, width),
                threads = target.compute_units;
  const bool large = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) > kLargeProduct;
  const int64_t tiles = ceil_div(m, unit) * panels, most_rows = kMostRows[static_cast<int>(form)],
                fewest_rows = ceil_div(m, most_rows);
  Cut best;
  int64_t least = 0;
  const auto consider = [&](const Cut& cut, int64_t area, int64_t columns) {
    const int64_t cost = ceil_div(cut.units(), threads) * (area + kPackedRow * cut.rows + kReadColumn * columns);
    if (least && cost >= least) return;
    least = cost;
    best = cut;
  };
  for (int64_t each = large ? 4 : 1; each <= (large ? 4 : 2); ++each) {  // units a thread
    const int64_t wanted = std::min(threads * each, tiles);
    for (int64_t row_blocks = fewest_rows; row_blocks <= std::max(wanted, fewest_rows + threads); ++row_blocks) {
      Cut cut;
      cut.rows = round_up(ceil_div(m, row_blocks), unit);
      cut.row_blocks = ceil_div(m, cut.rows);
      cut.panels = ceil_div(panels, std::min(panels, ceil_div(wanted, cut.row_blocks)));
      cut.panel_blocks = ceil_div(panels, cut.panels);
      consider(cut, cut.rows * cut.panels * width, cut.panels * width);
    }
    Cut strips{.strips = wanted};
    for (int64_t i = 0; i < wanted; ++i)
      strips.rows =
          std::max(strips.rows, (ceil_div(tiles * (i + 1) / wanted, panels) - tiles * i / wanted / panels) * unit);
    if (strips.rows <= most_rows) consider(strips, ceil_div(tiles, wanted) * unit * width, n);
  }
  return best;
}

// The rows and panels of a unit.
FastRows rows_of(const Cut& cut, const FastProduct& p, int64_t m, int64_t unit) {
  FastRows r;
  if (!cut.strips) {
    r.first_row = unit / cut.panel_blocks * cut.rows;
    r.m = std::min(cut.rows, m - r.first_row);
    r.panel0 = unit % cut.panel_blocks * cut.panels;
    r.panel1 = std::min(r.panel0 + cut.panels, p.panels());
    return r;
  }
  const int64_t rows = panel_rows(p.terms.form), tiles = ceil_div(m, rows) * p.panels(),
                begin = tiles * unit / cut.strips, end = tiles * (unit + 1) / cut.strips;
  r.first_row = begin / p.panels() * rows;
  r.m = std::min(ceil_div(end, p.panels()) * rows, m) - r.first_row;
  r.panel1 = p.panels();
  r.first_from = begin % p.panels();
  r.last_until = end - (ceil_div(end, p.panels()) - 1) * p.panels();
  return r;
}

template <Form FORM>
Work bind_pack(const Call& call) {
  const Operand &b = call.in[0], &panels = call.out[0];
  const bool tb = call.attrs.flag("tb"), of_a = call.attrs.flag("of_a");
  const int64_t k = tb ? b.cols() : b.rows(), n = tb ? b.rows() : b.cols(), width = panels.cols();
  const FastProduct p = fast_product(FastTerms(FORM, k), n, panels, call.tuning());
  const int64_t rows = p.terms.rows(), blocks = p.terms.blocks;
  SITU_ASSERT(panels.rows() == ceil_div(n, width) * rows && panels.pitch == width);
  const FastPanel all{.from = b.f32(),
                      .term_step = tb ? 1 : b.pitch,
                      .lane_step = tb ? b.pitch : 1,
                      .width = width,
                      .of_a = of_a,
                      .to = panels.f32()};
  return {ceil_div(n, width) * blocks, [=](int64_t task) {
            const int64_t panel = task / blocks, block = task % blocks;
            FastPanel one = all;
            one.from += panel * width * one.lane_step;
            one.lanes = std::min(width, n - panel * width);
            one.to += (panel * rows + p.terms.first_row(block)) * width;
            pack_block(p, one, block);
          }};
}

template <Form FORM>
Work bind_product(const Call& call) {
  const Operand &a = call.in[0], &y = call.out[0], &scratch = call.out[1];
  const bool ta = call.attrs.flag("ta");
  const int64_t n = y.cols(), m = ta ? a.cols() : a.rows(), k = ta ? a.rows() : a.cols();
  auto p = std::make_shared<FastProduct>(fast_product(call.in[1], FastTerms(FORM, k), n, y, call.tuning()));
  p->epilogue = bind_epilogue(call, 2);
  const Cut cut = cut_of(FORM, m, n, k, call.target);
  SITU_ASSERT(y.rows() == m && scratch.rows() == call.target.compute_units);
  SITU_ASSERT(scratch.cols() == FastProduct::scratch_floats(cut.rows, p->terms));
  const float* const first = a.f32();
  const int64_t a_row = ta ? 1 : a.pitch, a_step = ta ? a.pitch : 1, scratch_pitch = scratch.pitch;
  float* const scratch0 = scratch.f32();
  return {cut.units(), [=](int64_t unit) {
            FastRows r = rows_of(cut, *p, m, unit);
            r.a = first + r.first_row * a_row;
            r.a_row = a_row;
            r.a_step = a_step;
            r.scratch = scratch0 + ThreadPool::this_thread() * scratch_pitch;
            multiply_fast(*p, r);
          }};
}

// Tasks for an even split of columns.
int64_t enough_tasks(const device::Target& target) { return 4 * target.compute_units; }
int64_t column_tasks(int64_t panels, const device::Target& target) {
  return std::min(panels, std::max<int64_t>(16, enough_tasks(target)));
}

template <Form FORM>
Work bind_columns(const Call& call) {
  const Operand &a = call.in[0], &b = call.in[1], &y = call.out[0], &scratch = call.out[1];
  const bool tb = call.attrs.flag("tb");
  const int64_t n = y.cols(), m = y.rows(), k = tb ? b.cols() : b.rows();
  auto p = std::make_shared<FastProduct>(fast_product(FastTerms(FORM, k), n, y, call.tuning()));
  p->epilogue = bind_epilogue(call, 2);
  SITU_ASSERT(a.rows() == ceil_div(m, panel_rows(FORM)) * p->terms.rows() && a.pitch == panel_rows(FORM));
  SITU_ASSERT(scratch.rows() == call.target.compute_units);
  SITU_ASSERT(scratch.cols() == p->terms.rows_of(p->terms.block) * p->width);
  const int64_t tasks = column_tasks(p->panels(), call.target), scratch_pitch = scratch.pitch;
  const FastColumns all{.m = m,
                        .a = a.f32(),
                        .b = b.f32(),
                        .b_step = tb ? 1 : b.pitch,
                        .b_column = tb ? b.pitch : 1,
                        .scratch = scratch.f32()};
  return {tasks, [=](int64_t task) {
            FastColumns c = all;
            c.scratch += ThreadPool::this_thread() * scratch_pitch;
            c.panel0 = p->panels() * task / tasks;
            c.panel1 = p->panels() * (task + 1) / tasks;
            multiply_fast(*p, c);
          }};
}

// --- candidates -----------------------------------------------------------------------------------------------------
template <Form FORM>
bool accepts(const ops::OpView& v, const device::Target& target) {
  if (!has_form(target, FORM) || !is_product(v)) return false;
  const Product p = product_of(v);
  return p.k >= fewest_terms(FORM, p.ta);
}

// On the scale of the estimates in gemm.cpp.
template <Form FORM>
double seconds(const ops::OpView& v, const device::Target& target) {
  const Product p = product_of(v);
  const Cut cut = cut_of(FORM, p.m, p.n, p.k, target);
  const double rate = FORM == Form::paired ? 54e9 : 80e9;
  return p.flops() / rate + static_cast<double>(p.k * p.n) / 2e9 +
         static_cast<double>(p.m * p.k * cut.panel_blocks) / 3e9 + 4e-6;
}

// Before the direct ways of a convolution where there are columns enough to make up for packing, and rows of a weight
// gradient, whose b is packed too.
template <Form FORM>
double rank(const ops::OpView& v, const device::Target&) {
  const Product p = product_of(v);
  return pays_to_pack(FORM, p.k, p.n) && (!p.ta || p.m >= 64) ? -1 : 2;
}

constexpr int64_t kMostPanelRows = 384;  // of a, which all panels of b meet: a block of them stays in the L2 cache

constexpr std::string_view kProduct[kForms] = {"", "matmul_paired", "matmul_pieces"};
constexpr std::string_view kByColumns[kForms] = {"", "matmul_paired_columns", "matmul_pieces_columns"};

template <Form FORM>
void expand(device::Expansion& e) {
  const Product p = product_of(e.view());
  const FastTerms terms(FORM, p.k);
  const int64_t width = fast_width(FORM, e.target().tuning), panels = ceil_div(p.n, width);
  const bool by_columns = !e.steady(1) && p.m < p.n && p.m <= kMostPanelRows && panels >= enough_tasks(e.target());
  const std::string epilogue = e.attrs().text("epilogue", "");
  const auto pack = [&](int i, int64_t lanes, int64_t width_of, bool turned) {
    const ir::Attrs attrs{{"tb", int64_t{turned}}, {"of_a", int64_t{i == 0}}};
    return e.launch(pack_kernel(FORM), {e.in(i)}, f32({ceil_div(lanes, width_of), terms.rows(), width_of}), attrs);
  };
  ir::Values inputs = e.inputs();
  if (by_columns) {
    inputs[0] = pack(0, p.m, panel_rows(FORM), !p.ta);
    const Type scratch = f32({e.target().compute_units, terms.rows_of(terms.block) * width});
    const ir::Attrs attrs{{"tb", int64_t{p.tb}}, {"epilogue", epilogue}};
    return e.result(0, e.launch_all(kByColumns[static_cast<int>(FORM)], inputs, {e.out_type(0), scratch}, attrs)[0]);
  }
  inputs[1] = pack(1, p.n, width, p.tb);
  const Cut cut = cut_of(FORM, p.m, p.n, p.k, e.target());
  const Type scratch = f32({e.target().compute_units, FastProduct::scratch_floats(cut.rows, terms)});
  const ir::Attrs attrs{{"ta", int64_t{p.ta}}, {"epilogue", epilogue}};
  e.result(0, e.launch_all(kProduct[static_cast<int>(FORM)], inputs, {e.out_type(0), scratch}, attrs)[0]);
}

}  // namespace

namespace kernels {
KernelList fast_product() {
  constexpr Form paired = Form::paired, pieces = Form::pieces;
  static constexpr Kernel kernels[] = {{"pack_paired", bind_pack<paired>},
                                       {"matmul_paired", bind_product<paired>},
                                       {"matmul_paired_columns", bind_columns<paired>},
                                       {"pack_pieces", bind_pack<pieces>},
                                       {"matmul_pieces", bind_product<pieces>},
                                       {"matmul_pieces_columns", bind_columns<pieces>}};
  static constexpr device::Candidate candidates[] = {
      {"matmul", "paired", accepts<paired>, seconds<paired>, expand<paired>},
      {"conv2d", "paired", accepts<paired>, rank<paired>, expand<paired>},
      {"conv2d_dx", "paired", accepts<paired>, rank<paired>, expand<paired>},
      {"conv2d_dw", "paired", accepts<paired>, rank<paired>, expand<paired>},
      {"matmul", "pieces", accepts<pieces>, seconds<pieces>, expand<pieces>},
      {"conv2d", "pieces", accepts<pieces>, rank<pieces>, expand<pieces>},
      {"conv2d_dx", "pieces", accepts<pieces>, rank<pieces>, expand<pieces>},
      {"conv2d_dw", "pieces", accepts<pieces>, rank<pieces>, expand<pieces>}};
  return {kernels, candidates};
}
}  // namespace kernels
}  // namespace situ::cpu
