// depthwise.cpp -- the three convolutions with one filter per channel (depthwise.cl).
#include "backend/opencl/kernels/tile.h"

namespace situ::opencl::kernels {
namespace {

constexpr int64_t kMostTaps = 10;     // that one work-item of the weight gradient sums side by side, if it can
constexpr int64_t kMostColumns = 20;  // of x that a work-item keeps for all taps of a row

// The taps of a work-item of the weight gradient.
struct Taps {
  int64_t rows, cols, groups;
};
Taps taps_of(int64_t r, int64_t s) {
  const int64_t cols = std::min(s, kMostTaps), rows = std::clamp<int64_t>(kMostTaps / cols, 1, r);
  return {rows, cols, ceil_div(r, rows) * ceil_div(s, cols)};
}

// Pixels of a tile: depthwise.TM, or somewhat fewer that lines divide into. The lines of one model are mostly halves of
// each other and have their odd factor in common, so that one number serves them all and they share programs.
int64_t pixels_of_tile(const Target& target, int64_t line) {
  const int64_t most = tuned(target, "depthwise.TM"), odd = line / (line & -line);
  for (int64_t tm = most; tm >= ceil_div(3 * most, 4); --tm)
    if (tm % odd == 0) return tm;
  return most;
}

// Macros stand at their defaults where they can, and at the same values where they do not matter: the three kernels
// then share programs.
Call depthwise_call(const LaunchSpec& launch, const Target& target, std::string_view kernel, int64_t rows, int64_t cols,
                    int64_t stride) {
  Call call = make_call("depthwise.cl", kernel);
  call.define("VW", vector_width(target, launch.node.attrs.ints("window")[kC]))
      .define("TM", pixels_of_tile(target, launch.node.attrs.ints("window")[kOw]))
      .define("KS", cols)
      .define("MAC_FORM", tuned(target, "gemm.MAC"));
  if (rows != 3) call.define("KR", rows);
  if (stride != 1) call.define("KSW", stride);
  define_epilogue(call, launch, 2);
  add_tensor(call, launch.in[0]);
  add_tensor(call, launch.in[1]);
  add_tensor(call, launch.out[0]);
  for (size_t i = 2; i < launch.in.size(); ++i) add_tensor(call, launch.in[i]);
  add_ints(call, launch.node.attrs.ints("window"));
  return call;
}

int64_t vectors_of(const LaunchSpec& launch, const Target& target) {
  const int64_t c = launch.node.attrs.ints("window")[kC];
  return ceil_div(c, vector_width(target, c));
}

Call bind_forward(const LaunchSpec& launch, const Target& target) {
  const ir::Ints& w = launch.node.attrs.ints("window");
  const int64_t tm = pixels_of_tile(target, w[kOw]), lines = launch.out[0].shape()[0] * w[kOh];
  const bool columns = w[kDw] == 1 && (tm - 1) * w[kSw] + w[kS] <= kMostColumns;
  Call call = depthwise_call(launch, target, "depthwise", 3, columns ? w[kS] : 0, columns ? w[kSw] : 1);
  const int64_t chunk = tuned(target, "depthwise.CHUNK"), chunks = ceil_div(vectors_of(launch, target), chunk);
  const int64_t along = ceil_div(w[kOw], tm), work = tm * w[kR] * w[kS] * std::min(w[kC], chunk * 16);
  const int64_t tiles = tiles_per_item(target, along, lines * chunks, work);
  add_ints(call, {lines, launch.node.attrs.integer("flip"), chunk, tiles});
  return set_grid(call, chunks, lines, ceil_div(along, tiles), tuned(target, "gemm.WX"), tuned(target, "gemm.WY"));
}

Call bind_dx(const LaunchSpec& launch, const Target& target) {
  const ir::Ints& w = launch.node.attrs.ints("window");
  const int64_t tm = pixels_of_tile(target, w[kOw]);
  const int64_t pixels = launch.out[0].shape()[0] * ceil_div(w[kOh], w[kSh]) * ceil_div(w[kOw], w[kSw]);
  Call call = depthwise_call(launch, target, "depthwise_dx", 3, std::min(w[kS], kMostTaps), 1);
  const int64_t chunk = tuned(target, "depthwise.CHUNK");
  add_ints(call, {pixels, chunk});
  return set_grid(call, ceil_div(vectors_of(launch, target), chunk), ceil_div(pixels, tm) * w[kSh] * w[kSw], 1,
                  tuned(target, "gemm.WX"), tuned(target, "gemm.WY"));
}

Call bind_dw(const LaunchSpec& launch, const Target& target) {
  const ir::Ints& w = launch.node.attrs.ints("window");
  const int64_t lines = launch.in[1].shape()[0] * w[kOh], splits = launch.node.attrs.integer("splits");
  const Taps taps = taps_of(w[kR], w[kS]);
  Call call = depthwise_call(launch, target, "depthwise_dw", taps.rows, taps.cols, w[kDw] == 1 ? w[kSw] : 0);
  add_ints(call, {lines, ceil_div(lines, splits)});
  return set_grid(call, vectors_of(launch, target), taps.groups, splits, tuned(target, "gemm.WX"),
                  tuned(target, "gemm.WY"));
}

// --- candidates -----------------------------------------------------------------------------------------------------
bool is_depthwise(const ir::Attrs& attrs, int64_t c, int64_t o) {
  const int64_t groups = attrs.integer("groups", 1);
  return groups > 1 && c == groups && o == groups;
}
bool forward_accepts(const ops::OpView& v, const Target&) {
  return is_depthwise(v.attrs, v.in(0).shape[3], v.in(1).shape[3]);
}
bool dx_accepts(const ops::OpView& v, const Target&) {
  return v.in(1).shape[2] == 1 && is_depthwise(v.attrs, v.attrs.integer("groups", 1), v.in(0).shape[3]);
}
bool dw_accepts(const ops::OpView& v, const Target&) {
  return is_depthwise(v.attrs, v.in(0).shape[3], v.in(1).shape[3]);
}
double seconds(const ops::OpView& v, const Target&) {
  return ops::cost_of(v).flops / kNominalFlops * 5 + kNominalLaunch;
}

ir::Attrs launch_attrs(const Expansion& e, const ir::Ints& window) {
  return {{"window", window}, {"epilogue", e.attrs().text("epilogue", "")}};
}

void expand_forward(Expansion& e) {
  const Shape &x = e.type(e.in(0)).shape, &w = e.type(e.in(1)).shape;
  const ops::Window window = ops::window_of(e.attrs(), {x[1], x[2]}, {w[0], w[1]});
  const ir::Ints ints = window_ints(window, x[3], x[3]);
  e.result(0, e.launch("depthwise", e.inputs(), e.out_type(0), launch_attrs(e, ints).set("flip", int64_t{0})));
}

void expand_dx(Expansion& e) {
  const Shape& w = e.type(e.in(1)).shape;
  const ops::Window window = ops::window_of(e.attrs(), e.attrs().ints("size"), {w[0], w[1]});
  const ops::WindowAxis &y = window.y, &x = window.x;
  ir::Ints ints = reversed_window_ints(window, w[3], w[3]);
  const bool strided = y.stride != 1 || x.stride != 1;
  if (!strided) {
    ints[kPt] = (y.kernel - 1) * y.dilation - y.before;
    ints[kPl] = (x.kernel - 1) * x.dilation - x.before;
  }
  ir::Attrs attrs = launch_attrs(e, ints).set("flip", int64_t{1});
  e.result(0, e.launch(strided ? "depthwise_dx" : "depthwise", e.inputs(), e.out_type(0), attrs));
}

void expand_dw(Expansion& e) {
  const Shape &x = e.type(e.in(0)).shape, &dw = e.out_type(0).shape;
  const ops::Window window = ops::window_of(e.attrs(), {x[1], x[2]}, e.attrs().ints("kernel"));
  const int64_t lines = x[0] * window.y.out;
  const int64_t items = taps_of(dw[0], dw[1]).groups * ceil_div(x[3], vector_width(e.target(), x[3]));
  // Work-items of a split read neighbouring channels of the same lines one after the other: they should stay cached.
  const int64_t busy = ceil_div(tuned(e.target(), "gemm.ITEMS"), items);
  const int64_t cached = 4 * (x.count() + e.type(e.in(1)).shape.count()) / 1024 / tuned(e.target(), "dw.SLAB");
  const int64_t splits = std::clamp<int64_t>(std::max(busy, cached), 1, lines);
  const Type part = splits > 1 ? f32({splits, dw[0], dw[1], dw[2], dw[3]}) : e.out_type(0);
  const ir::Value sums =
      e.launch("depthwise_dw", e.inputs(), part, {{"window", window_ints(window, x[3], x[3])}, {"splits", splits}});
  e.result(0, splits > 1 ? e.launch("sum_splits", {sums}, e.out_type(0)) : sums);
}

}  // namespace

KernelList depthwise() {
  static constexpr Kernel kernels[] = {{"depthwise", bind_forward, "A - * -> Y"},
                                       {"depthwise_dx", bind_dx, "A - * -> Y"},
                                       {"depthwise_dw", bind_dw, "A B"}};
  static constexpr device::Candidate candidates[] = {{"conv2d", "depthwise", forward_accepts, seconds, expand_forward},
                                                     {"conv2d_dx", "depthwise", dx_accepts, seconds, expand_dx},
                                                     {"conv2d_dw", "depthwise", dw_accepts, seconds, expand_dw}};
  return {kernels, candidates};
}

}  // namespace situ::opencl::kernels
