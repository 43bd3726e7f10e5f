// conv_twins.cpp -- convolutions and their data gradients as products of twins (backend/cpu/twins.h), for processors
// that multiply matrices of bfloat16:
//
//   pack_twins       w[R,S,C,O] as panels [O/16][R*S][C/16][3 tiles]; with `turned` its columns are c, its terms o
//   conv2d_twins     y[pixel,o]  = epilogue( sum over taps, c:  x[pixel at tap, c] * w[tap, c, o] ), scratch
//   conv2d_dx_twins  dx[pixel,c] = epilogue( sum over taps, o:  dy[pixel at tap, o] * w[tap, c, o] ), scratch
//
// A task is a unit of packed lines (twin_lines.h). Results at the zeros around them are dropped.
#include <algorithm>
#include <memory>
#include <vector>

#include "backend/cpu/fast_product.h"
#include "backend/cpu/twin_lines.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "ops/window.h"

namespace situ::cpu {
namespace {

constexpr int64_t kBlockPixels = 192;  // multiplied at a time, while the L1 cache holds them: some tiles
constexpr int64_t kMostTerms = 640;    // of a sum: it is one piece, so a long one would be rounded too often

// The results of one pair of phases.
struct Part {
  const Phase *y, *x;
  std::vector<TwinTap> taps;
};

struct Conv {
  Conv(const TwinLayout& layout, const Operand& x) : images(layout, x) {}
  TwinImages images;
  std::vector<Part> parts = {};
  int64_t out_h = 0, out_w = 0;
  TileEpilogue epilogue;
  TwinProduct product;
  float* scratch = nullptr;
  int64_t scratch_pitch = 0;
};

void run_task(const Conv& conv, int64_t task) {
  const TwinLayout& l = conv.images.layout;
  const PieceUnits units;
  TwinLines lines(conv.images, task, conv.scratch + ThreadPool::this_thread() * conv.scratch_pitch);
  const int64_t line = l.x.line(), step = ceil_div(kBlockPixels, line);
  for (int64_t v = lines.v0(); v < lines.v1(); v += step) {
    lines.need(v + step);
    for (const Part& part : conv.parts) {
      const int64_t runs = std::min({v + step, lines.v1(), part.y->count}) - v;
      if (runs <= 0) continue;
      TwinProduct product = conv.product;
      product.taps = part.taps.data();
      product.tap_count = static_cast<int64_t>(part.taps.size());
      const int64_t y = lines.image() * conv.out_h + part.y->first + v * part.y->step;
      multiply_twins(product, {.a = lines.at(v),
                               .a_row = twin_row(l.terms),
                               .runs = runs,
                               .run = part.x->count,
                               .gap = line - part.x->count,
                               .y_row = y * conv.out_w + part.x->first,
                               .y_step = part.x->step,
                               .y_run = part.y->step * conv.out_w});
    }
  }
}

Work bind(const Call& call, bool backward) {
  const Operand &x = call.in[0], &w = call.in[1], &y = call.out[0], &scratch = call.out[1];
  const Shape &from = x.shape(), &to = y.shape(), &image = backward ? to : from;
  const ir::Ints kernel = call.attrs.ints("kernel");
  const ops::Window window = ops::window_of(call.attrs, {image[1], image[2]}, kernel);
  auto conv = std::make_shared<Conv>(TwinLayout(backward, window, from[0], from[3], to[3]), x);
  const TwinLayout& l = conv->images.layout;
  const int64_t taps = kernel[0] * kernel[1], of_tap = twin_panel(l.terms);
  for (const Phase& py : l.y.phases)
    for (const Phase& px : l.x.phases) {
      Part& part = conv->parts.emplace_back(Part{&py, &px, {}});
      for (const Tap& ty : py.taps)
        for (const Tap& tx : px.taps) {
          const int64_t tap = ty.index * kernel[1] + tx.index;  // phases of a data gradient count from the far end
          part.taps.push_back({l.distance(ty, tx), (backward ? taps - 1 - tap : tap) * of_tap});
        }
    }
  conv->out_h = to[1];
  conv->out_w = to[2];
  conv->epilogue = bind_epilogue(call, 2);
  conv->product = TwinProduct(w, l.terms, taps, l.results, y);
  conv->product.epilogue = conv->epilogue.count ? &conv->epilogue : nullptr;
  conv->scratch = scratch.f32();
  conv->scratch_pitch = scratch.pitch;
  SITU_ASSERT(scratch.rows() == call.target.compute_units && scratch.cols() == l.packed_words());
  return {l.units(), [conv](int64_t task) { run_task(*conv, task); }};
}
Work bind_forward(const Call& call) { return bind(call, false); }
Work bind_backward(const Call& call) { return bind(call, true); }

// A task is one tap of one panel.
Work bind_pack(const Call& call) {
  const Operand &w = call.in[0], &panels = call.out[0];
  const bool turned = call.attrs.flag("turned");
  const int64_t taps = w.rows() / w.shape()[w.shape().rank() - 2], channels = w.rows() / taps;
  const int64_t terms = turned ? w.cols() : channels, lanes = turned ? channels : w.cols(), of_tap = twin_panel(terms);
  SITU_ASSERT(panels.pitch == panels.cols() && panels.type.count() == ceil_div(lanes, kPieceLanes) * taps * of_tap);
  const PackTwinPanel pack = pack_twin_panel_function();
  const float* from = w.f32();
  float* to = panels.f32();
  const int64_t pitch = w.pitch;
  return {ceil_div(lanes, kPieceLanes) * taps, [=](int64_t task) {
            const int64_t lane = task / taps * kPieceLanes, tap = task % taps;
            pack({.from = from + tap * channels * pitch + lane * (turned ? pitch : 1),
                  .term_step = turned ? 1 : pitch,
                  .lane_step = turned ? pitch : 1,
                  .terms = terms,
                  .lanes = std::min(kPieceLanes, lanes - lane),
                  .to = to + task * of_tap});
          }};
}

// --- candidates -----------------------------------------------------------------------------------------------------
struct Problem {
  ops::Window window;
  int64_t images, terms, results, groups;
};
Problem problem_of(const ops::OpView& v, bool backward) {
  const Shape &x = backward ? v.out(0).shape : v.in(0).shape, &w = v.in(1).shape;
  return {ops::window_of(v.attrs, {x[1], x[2]}, {w[0], w[1]}), x[0], w[backward ? 3 : 2], w[backward ? 2 : 3],
          v.attrs.integer("groups", 1)};
}

template <bool BACKWARD>
bool accepts(const ops::OpView& v, const device::Target& target) {
  const Problem p = problem_of(v, BACKWARD);
  return has_form(target, Form::pieces) && p.groups == 1 &&
         p.window.y.kernel * p.window.x.kernel * p.terms <= kMostTerms;
}

// First where little is thrown away and a packed pixel meets several taps, unless Winograd's tiles of many channels do
// with less. Plain products of 1x1 windows read pixels as they lie; phases of their strided data gradients do not.
template <bool BACKWARD>
double rank(const ops::OpView& v, const device::Target&) {
  const Problem p = problem_of(v, BACKWARD);
  const bool strided = p.window.y.stride * p.window.x.stride > 1, one_tap = p.window.y.kernel * p.window.x.kernel == 1;
  const bool pays = one_tap ? BACKWARD && strided : strided || p.terms < 48;
  const double used = TwinLayout(BACKWARD, p.window, p.images, p.terms, p.results).used();
  return pays && used >= 0.7 && p.terms >= kTwinTerms ? -0.9 : 2;
}

template <bool BACKWARD>
void expand(device::Expansion& e) {
  const Problem p = problem_of(e.view(), BACKWARD);
  const TwinLayout l(BACKWARD, p.window, p.images, p.terms, p.results);
  const Shape w = e.view().in(1).shape;
  ir::Values inputs = e.inputs();
  inputs[1] =
      e.launch("pack_twins", {e.in(1)}, f32({ceil_div(p.results, kPieceLanes), w[0] * w[1], twin_panel(p.terms)}),
               {{"turned", int64_t{BACKWARD}}});
  ir::Attrs attrs = e.attrs();
  attrs.set("kernel", ir::Ints{w[0], w[1]});
  e.result(0, e.launch_all(BACKWARD ? "conv2d_dx_twins" : "conv2d_twins", inputs,
                           {e.out_type(0), f32({e.target().compute_units, l.packed_words()})}, attrs)[0]);
}

}  // namespace

namespace kernels {
KernelList conv_twins() {
  static constexpr Kernel kernels[] = {
      {"pack_twins", bind_pack}, {"conv2d_twins", bind_forward}, {"conv2d_dx_twins", bind_backward}};
  static constexpr device::Candidate candidates[] = {{"conv2d", "twins", accepts<false>, rank<false>, expand<false>},
                                                     {"conv2d_dx", "twins", accepts<true>, rank<true>, expand<true>}};
  return {kernels, candidates};
}
}  // namespace kernels
}  // namespace situ::cpu
