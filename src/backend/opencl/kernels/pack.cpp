// pack.cpp -- panels of a right operand; launched by the candidates of products and convolutions (tile.h).
#include "backend/opencl/kernels/places.h"
#include "backend/opencl/kernels/tile.h"

namespace situ::opencl::kernels {
namespace {

// gemm.VW lanes, nv vectors; each work-item fills a number of rows of one panel.
Call bind_rows(const LaunchSpec& launch, const Target& target) {
  const TensorArg& b = launch.in[0];
  const int64_t groups = launch.node.attrs.integer("groups"), n = b.cols() / groups, k = b.rows();
  const int64_t vw = tuned(target, "gemm.VW"), tn = vw * launch.node.attrs.integer("nv");
  const int64_t panels = ceil_div(n, tn), chunk = std::max<int64_t>(1, tuned(target, "pack.CHUNK") / tn);
  Call call = make_call("pack.cl", "pack_rows");
  call.define("VW", vw);
  add_tensors(call, {b, launch.out[0]});
  add_ints(call, {n, k, tn, panels, chunk});
  return set_grid(call, ceil_div(k, chunk), groups * panels, 1, tuned(target, "gemm.WX"));
}

// The pieces of one matrix, as rows of the table; their number.
int64_t add_pieces(Places& table, const TensorArg& w, const TensorArg& p, int64_t taps, int64_t groups, int64_t tn,
                   int64_t rows) {
  SITU_ASSERT(p.dense(), "panels are dense");
  int_of(w.rows() * w.pitch);
  int_of(p.count());
  const int64_t n = w.rows() / taps, kt = w.cols() / groups, k = taps * kt, panels = ceil_div(n, tn);
  int64_t pieces = 0;
  for (int64_t panel = 0; panel < groups * panels; ++panel)
    for (int64_t tap = 0; tap < taps; ++tap)
      for (int64_t o = 0; o < kt; o += rows, ++pieces) {
        const int64_t c0 = panel % panels * tn, column = panel / panels * kt + o;
        table.add_place(w, ((taps - 1 - tap) * n + c0) * w.pitch + column);
        table.add_place(p, (panel * k + tap * kt + o) * tn);
        table.add_numbers({w.pitch, tn, std::min(rows, kt - o), n - c0});
      }
  return pieces;
}

// Attributes are lists, with a number for each matrix (pass/launch_groups.cpp).
Call bind_cols(const LaunchSpec& launch, const Target& target) {
  const ir::Attrs& attrs = launch.node.attrs;
  const int64_t items = tuned(target, "gemm.WX");
  Places table;
  int64_t pieces = 0;
  for (size_t i = 0; i < launch.in.size(); ++i) {
    const int64_t tn = tuned(target, "gemm.VW") * attrs.ints("nv")[i];
    const int64_t rows = std::max(4 * items, tuned(target, "pack.CHUNK") * items / tn);
    pieces += add_pieces(table, launch.in[i], launch.out[i], attrs.ints("taps")[i], attrs.ints("groups")[i], tn, rows);
  }
  Call call = make_call("pack.cl", "pack_cols");
  call.define("VW", tuned(target, "gemm.VW"));
  table.bind_slabs(call);
  call.arg(table.table());
  return set_grid(call, pieces * items, 1, 1, items);
}

}  // namespace

KernelList pack() {
  static constexpr Kernel kernels[] = {{"pack_rows", bind_rows, "B"}, {"pack_cols", bind_cols}};
  return {kernels, {}};
}

}  // namespace situ::opencl::kernels
