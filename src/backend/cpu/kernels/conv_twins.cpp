// conv_twins.cpp -- convolutions and their data gradients as products of twins (backend/cpu/twins.h), for processors
// that multiply matrices of bfloat16:
//
//   pack_twins       w[R,S,C,O] as panels [O/16][R*S][C/16][3 tiles]; with `turned` its columns are c, its terms o
//   conv2d_twins     y[pixel,o]  = epilogue( sum over taps, c:  x[pixel at tap, c] * w[tap, c, o] ), scratch
//   conv2d_dx_twins  dx[pixel,c] = epilogue( sum over taps, o:  dy[pixel at tap, o] * w[tap, c, o] ), scratch
//
// A task packs some rows of an image, with the zeros around them, as one run of pixels: the zeros behind a line are
// those before the next. Then every tap is a distance, and any sixteen pixels that follow each other are a tile;
// results at the zeros are dropped. With a stride, pixels that the same taps meet lie together, as images of their own;
// a data gradient has its results in phases (conv_phases.h) instead.
#include <algorithm>
#include <memory>
#include <vector>

#include "backend/cpu/conv_phases.h"
#include "backend/cpu/fast_product.h"
#include "backend/cpu/twins.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "ops/window.h"

namespace situ::cpu {
namespace {

constexpr int64_t kPackedWords = 64 * 1024;  // of a task: in the L2 cache, beside the weights
constexpr int64_t kBlockPixels = 192;        // multiplied at a time, while the L1 cache holds them: some tiles
constexpr int64_t kEnoughTasks = 8;
constexpr int64_t kMostTerms = 640;  // of a sum: it is one piece, so a long one would be rounded too often

int64_t floor_div(int64_t a, int64_t b) { return a >= 0 ? a / b : -ceil_div(-a, b); }

// One axis of packed images: result u of a phase meets position u + shift of image `part`, where part is the remainder
// of what an offset leaves by the stride.
struct Axis {
  std::vector<Phase> phases;
  int64_t scale = 1, in = 0, count = 0;  // stride of reading; pixels; results of the longest phase
  int64_t before = 0, after = 0;         // positions that taps reach beyond 0 and count - 1
  explicit Axis(std::vector<Phase> list, int64_t input) : phases(std::move(list)), in(input) {
    for (const Phase& phase : phases) {
      scale = phase.scale;
      count = std::max(count, phase.count);
      for (const Tap& tap : phase.taps) {
        before = std::max(before, -shift(tap));
        after = std::max(after, shift(tap));
      }
    }
  }
  int64_t shift(const Tap& tap) const { return floor_div(tap.offset, scale); }
  int64_t part(const Tap& tap) const { return tap.offset - shift(tap) * scale; }
  int64_t there(int64_t part) const { return part < in ? ceil_div(in - part, scale) : 0; }  // positions of image `part`
  // From line to line so that what is read before one or behind it is zeros.
  int64_t line() const { return std::max(count + after, std::min(there(0), count + after) + before); }
};

struct Layout {
  Axis y, x;
  int64_t images = 0, terms = 0, results = 0;  // channels read and made
  int64_t rows = 1, blocks = 1;                // of a task: lines of results; tasks of an image

  Layout(Axis ys, Axis xs, int64_t image_count, int64_t channels, int64_t made)
      : y(std::move(ys)), x(std::move(xs)), images(image_count), terms(channels), results(made) {
    const int64_t halo = y.before + y.after, fits = kPackedWords / (parts() * x.line() * twin_row(terms));
    rows = std::clamp<int64_t>(fits - halo, std::min(y.count, 2 * halo + 1), y.count);
    blocks = std::max(ceil_div(y.count, rows), std::min(y.count, ceil_div(kEnoughTasks, images)));
    rows = ceil_div(y.count, blocks);
    blocks = ceil_div(y.count, rows);
  }
  int64_t parts() const { return y.scale * x.scale; }
  int64_t tasks() const { return images * blocks; }
  // Of one part of the image: lines of a task, with a few pixels before and, for the last tile, behind them.
  int64_t part_pixels() const { return x.before + (rows + y.before + y.after) * x.line() + x.after + kTwinSumRows; }
  int64_t scratch_words() const { return parts() * part_pixels() * twin_row(terms); }
  // The part of the work that is not thrown away.
  double used() const {
    const auto share = [](int64_t n) { return static_cast<double>(n) / static_cast<double>(round_up(n, kPieceLanes)); };
    return share(terms) * share(results) * static_cast<double>(x.count) / static_cast<double>(x.line());
  }
};

Layout layout_of(bool backward, const ops::Window& window, int64_t images, int64_t terms, int64_t results) {
  if (backward)
    return {Axis(backward_phases(window.y), window.y.out), Axis(backward_phases(window.x), window.x.out), images, terms,
            results};
  return {Axis(forward_phases(window.y), window.y.in), Axis(forward_phases(window.x), window.x.in), images, terms,
          results};
}

// The results of one pair of phases.
struct Part {
  const Phase *y, *x;
  std::vector<TwinTap> taps;
};

struct Conv {
  explicit Conv(Layout its_layout) : layout(std::move(its_layout)) {}
  Layout layout;
  std::vector<Part> parts = {};
  std::vector<bool> met = {};  // parts of the image that taps read
  const float* x = nullptr;
  int64_t x_pitch = 0, out_h = 0, out_w = 0;
  TileEpilogue epilogue;
  TwinProduct product;
  PackTwinRows pack = nullptr;
  float* scratch = nullptr;
  int64_t scratch_pitch = 0;
};

// The packed lines of a task: results [v0, v1) of an image.
class Lines {
 public:
  Lines(const Conv& conv, int64_t image, int64_t v0, int64_t v1)
      : conv_(conv),
        image_(image),
        v0_(v0),
        line_(conv.layout.x.line()),
        row_(twin_row(conv.layout.terms)),
        next_(v0 - conv.layout.y.before),
        end_(v1 + conv.layout.y.after),
        packed_(conv.scratch + ThreadPool::this_thread() * conv.scratch_pitch) {
    for (int64_t part = 0; part < conv.layout.parts(); ++part)
      std::fill_n(packed_ + part * conv.layout.part_pixels() * row_, conv.layout.x.before * row_, 0.0f);
  }
  // Where pixel 0 of line v0 lies in the first part.
  const float* origin() const { return packed_ + (conv_.layout.x.before + conv_.layout.y.before * line_) * row_; }
  // Lines before `v` are packed.
  void need(int64_t v) {
    for (; next_ < std::min(v, end_); ++next_)
      for (int64_t py = 0; py < conv_.layout.y.scale; ++py)
        for (int64_t px = 0; px < conv_.layout.x.scale; ++px)
          if (conv_.met[static_cast<size_t>(py * conv_.layout.x.scale + px)]) pack(py, px);
  }

 private:
  void pack(int64_t py, int64_t px) {
    const Layout& l = conv_.layout;
    const int64_t part = py * l.x.scale + px, row = next_ * l.y.scale + py;
    const int64_t index = part * l.part_pixels() + l.x.before + (next_ - v0_ + l.y.before) * line_;
    float* const to = packed_ + index * row_;
    const bool inside = next_ >= 0 && row < l.y.in;
    const int64_t pixels = inside ? std::min(l.x.there(px), l.x.count + l.x.after) : 0;
    if (pixels > 0)
      conv_.pack({.from = conv_.x + ((image_ * l.y.in + row) * l.x.in + px) * conv_.x_pitch,
                  .row_step = l.x.scale * conv_.x_pitch,
                  .rows = pixels,
                  .terms = l.terms,
                  .to = to});
    std::fill_n(to + pixels * row_, (line_ - pixels) * row_, 0.0f);
  }

  const Conv& conv_;
  const int64_t image_, v0_, line_, row_;
  int64_t next_;
  const int64_t end_;
  float* const packed_;
};

void run_task(const Conv& conv, int64_t task) {
  const Layout& l = conv.layout;
  const PieceUnits units;
  const int64_t image = task / l.blocks, v0 = task % l.blocks * l.rows, v1 = std::min(v0 + l.rows, l.y.count);
  const int64_t line = l.x.line(), row = twin_row(l.terms), step = ceil_div(kBlockPixels, line);
  Lines lines(conv, image, v0, v1);
  for (int64_t v = v0; v < v1; v += step) {
    lines.need(v + step + l.y.after);
    for (const Part& part : conv.parts) {
      const int64_t runs = std::min({v + step, v1, part.y->count}) - v;
      if (runs <= 0) continue;
      TwinProduct product = conv.product;
      product.taps = part.taps.data();
      product.tap_count = static_cast<int64_t>(part.taps.size());
      multiply_twins(product,
                     {.a = lines.origin() + (v - v0) * line * row,
                      .a_row = row,
                      .runs = runs,
                      .run = part.x->count,
                      .gap = line - part.x->count,
                      .y_row = (image * conv.out_h + part.y->first + v * part.y->step) * conv.out_w + part.x->first,
                      .y_step = part.x->step,
                      .y_run = part.y->step * conv.out_w,
                      .panel1 = product.panels()});
    }
  }
}

Work bind(const Call& call, bool backward) {
  const Operand &x = call.in[0], &w = call.in[1], &y = call.out[0], &scratch = call.out[1];
  const Shape &from = x.shape(), &to = y.shape(), &image = backward ? to : from;
  const ir::Ints kernel = call.attrs.ints("kernel");
  const ops::Window window = ops::window_of(call.attrs, {image[1], image[2]}, kernel);
  auto conv = std::make_shared<Conv>(layout_of(backward, window, from[0], from[3], to[3]));
  const Layout& l = conv->layout;
  const int64_t taps = kernel[0] * kernel[1], row = twin_row(l.terms), of_tap = twin_panel(l.terms);
  conv->met.resize(static_cast<size_t>(l.parts()));
  for (const Phase& py : l.y.phases)
    for (const Phase& px : l.x.phases) {
      Part& part = conv->parts.emplace_back(Part{&py, &px, {}});
      for (const Tap& ty : py.taps)
        for (const Tap& tx : px.taps) {
          const int64_t image_part = l.y.part(ty) * l.x.scale + l.x.part(tx);
          conv->met[static_cast<size_t>(image_part)] = true;
          const int64_t distance = image_part * l.part_pixels() + l.y.shift(ty) * l.x.line() + l.x.shift(tx);
          const int64_t tap = ty.index * kernel[1] + tx.index;  // phases of a data gradient count from the far end
          part.taps.push_back({distance * row, (backward ? taps - 1 - tap : tap) * of_tap});
        }
    }
  conv->x = x.f32();
  conv->x_pitch = x.pitch;
  conv->out_h = to[1];
  conv->out_w = to[2];
  conv->epilogue = bind_epilogue(call, 2);
  conv->product = TwinProduct(w, l.terms, taps, l.results, y);
  conv->product.epilogue = conv->epilogue.count ? &conv->epilogue : nullptr;
  conv->pack = pack_twin_rows_function();
  conv->scratch = scratch.f32();
  conv->scratch_pitch = scratch.pitch;
  SITU_ASSERT(scratch.rows() == call.target.compute_units && scratch.cols() == l.scratch_words());
  return {l.tasks(), [conv](int64_t task) { run_task(*conv, task); }};
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

// First where little is thrown away, unless Winograd's tiles of many channels do with less.
template <bool BACKWARD>
double rank(const ops::OpView& v, const device::Target&) {
  const Problem p = problem_of(v, BACKWARD);
  const double used = layout_of(BACKWARD, p.window, p.images, p.terms, p.results).used();
  const int64_t taps = p.window.y.kernel * p.window.x.kernel;
  const bool strided = p.window.y.stride * p.window.x.stride > 1;
  return used >= 0.7 && p.terms >= 16 && (strided || p.terms < 48) && taps * p.terms * p.results >= 512 ? -0.9 : 2;
}

template <bool BACKWARD>
void expand(device::Expansion& e) {
  const Problem p = problem_of(e.view(), BACKWARD);
  const Layout l = layout_of(BACKWARD, p.window, p.images, p.terms, p.results);
  const Shape w = e.view().in(1).shape;
  ir::Values inputs = e.inputs();
  inputs[1] =
      e.launch("pack_twins", {e.in(1)}, f32({ceil_div(p.results, kPieceLanes), w[0] * w[1], twin_panel(p.terms)}),
               {{"turned", int64_t{BACKWARD}}});
  ir::Attrs attrs = e.attrs();
  attrs.set("kernel", ir::Ints{w[0], w[1]});
  e.result(0, e.launch_all(BACKWARD ? "conv2d_dx_twins" : "conv2d_twins", inputs,
                           {e.out_type(0), f32({e.target().compute_units, l.scratch_words()})}, attrs)[0]);
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
