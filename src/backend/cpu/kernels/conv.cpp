// conv.cpp -- convolution and its data gradient as implicit matrix products over channels-last images.
//
//   conv2d            y[pixel,o]  = epilogue( sum over taps, c:  x[pixel at tap, c] * w[tap, c, o] )      w in place
//   conv2d_packed     the same with w as panels (pack_b)
//   conv2d_dx_packed  dx[pixel,c] = epilogue( sum over taps, o:  dy[pixel at tap, o] * w[tap, c, o] )     panels of
//   pack_dx
//
// Both read a window of pixels per result pixel and multiply it with a matrix, so they share everything but the list of
// taps. A data gradient of stride s has s phases along each axis; pixels of one phase are hit by the same taps and are
// tiled together, the others are never touched. A tile is MR pixels of the flattened result, a segment one row of the
// window (its taps lie side by side in memory) or one tap. Pixels outside the image point at zeros; windows that stick
// out sideways are copied if they are short, else taken tap by tap.
#include <algorithm>
#include <memory>
#include <vector>

#include "backend/cpu/conv_phases.h"
#include "backend/cpu/tile_table.h"
#include "base/error.h"
#include "ops/window.h"

namespace situ::cpu {
namespace {

constexpr int64_t kZeroFloats = device::kZeroRun / static_cast<int64_t>(sizeof(float));
constexpr int64_t kLongestCopy = 128;  // floats of a window row that is copied rather than split into taps
constexpr int64_t kPixelUnit = 24;     // a multiple of every tile height
constexpr int64_t kEnoughTasks = 32;

struct Conv {
  const float *x = nullptr, *zeros = nullptr;
  int64_t images = 0, in_h = 0, in_w = 0, x_pitch = 0, channels = 0;  // channels of one group
  int64_t out_h = 0, out_w = 0, taps_x = 0;
  int64_t groups = 1;
  bool dense = false;  // a row of the image is one run of floats
  std::vector<Phase> ys, xs;
  struct Part {  // a pair of phases and its tasks
    size_t y = 0, x = 0;
    int64_t pixels = 0, first_task = 0;
  };
  std::vector<Part> parts;
  int64_t pixels_per_task = 0, panel_blocks = 1, panels_per_task = 1;
  std::vector<PanelSet> panels;  // by group
  TileEpilogue epilogue;
};

// One tile under construction: MR result pixels, those beyond the last repeat it.
class Window {
 public:
  Window(const Conv& conv, const Phase& y, const Phase& x, int64_t group, int64_t mr)
      : conv_(conv), y_(y), x_(x), base_(conv.x + group * conv.channels), mr_(mr) {
    length_ = static_cast<int64_t>(x.taps.size()) * conv.channels;
    whole_rows_ = conv.dense && x.consecutive && length_ <= kZeroFloats;
    if (x.taps.empty()) return;
    first_inside_ = -x.taps.front().offset;
    end_inside_ = conv.in_w - x.taps.back().offset;
  }

  void seek(int64_t pixel) {
    u_ = pixel % x_.count;
    v_ = pixel / x_.count % y_.count;
    n_ = pixel / x_.count / y_.count;
    start_line();
  }
  // Takes the next m pixels.
  void next(int64_t m) {
    if (u_ == x_.count) next_line();
    top_ = bottom_ = v_ * y_.scale;
    inside_ = true;
    for (int64_t i = 0; i < m; ++i, ++u_) {
      if (u_ == x_.count) next_line();
      y_at_[i] = v_ * y_.scale;
      x_at_[i] = u_ * x_.scale;
      origin_[i] = line_ + x_at_[i] * conv_.x_pitch;
      rows_[i] = first_row_ + u_ * x_.step;
      inside_ = inside_ && row_inside(i);
    }
    for (int64_t i = m; i < mr_; ++i) {
      y_at_[i] = y_at_[i - 1];
      x_at_[i] = x_at_[i - 1];
      origin_[i] = origin_[i - 1];
      rows_[i] = rows_[i - 1];
    }
  }
  const int64_t* rows() const { return rows_; }

  void add_segments(TileTable& table) const {
    for (const Tap& ty : y_.taps) {
      if (bottom_ + ty.offset < 0 || top_ + ty.offset >= conv_.in_h) continue;
      if (whole_rows_ && inside_)
        add_row(table, ty);
      else if (whole_rows_ && length_ <= kLongestCopy)
        add_copied_row(table, ty);
      else
        for (const Tap& tx : x_.taps) add_tap(table, ty, tx);
    }
  }

 private:
  void start_line() {
    line_ = base_ + (n_ * conv_.in_h + v_ * y_.scale) * conv_.in_w * conv_.x_pitch;
    first_row_ = (n_ * conv_.out_h + y_.first + v_ * y_.step) * conv_.out_w + x_.first;
    top_ = std::min(top_, v_ * y_.scale);
    bottom_ = std::max(bottom_, v_ * y_.scale);
  }
  void next_line() {
    u_ = 0;
    if (++v_ == y_.count) {
      v_ = 0;
      ++n_;
    }
    start_line();
  }
  bool row_inside(int64_t i) const { return x_at_[i] >= first_inside_ && x_at_[i] < end_inside_; }
  bool y_inside(int64_t i, int64_t offset) const {
    return static_cast<uint64_t>(y_at_[i] + offset) < static_cast<uint64_t>(conv_.in_h);
  }
  bool x_inside(int64_t i, int64_t offset) const {
    return static_cast<uint64_t>(x_at_[i] + offset) < static_cast<uint64_t>(conv_.in_w);
  }
  int64_t distance(const Tap& ty, const Tap& tx) const {  // in elements, from a pixel's origin
    return (ty.offset * conv_.in_w + tx.offset) * conv_.x_pitch;
  }
  int64_t panel_row(const Tap& ty, const Tap& tx) const {
    return (ty.index * conv_.taps_x + tx.index) * conv_.channels;
  }

  void add_row(TileTable& table, const Tap& ty) const {
    const Tap& tx = x_.taps.front();
    const float** to = table.add(panel_row(ty, tx), length_);
    const int64_t step = distance(ty, tx);
    if (top_ + ty.offset >= 0 && bottom_ + ty.offset < conv_.in_h)
      for (int64_t i = 0; i < mr_; ++i) to[i] = origin_[i] + step;
    else
      for (int64_t i = 0; i < mr_; ++i) to[i] = y_inside(i, ty.offset) ? origin_[i] + step : conv_.zeros;
  }

  void add_copied_row(TileTable& table, const Tap& ty) const {
    float* scratch = table.scratch(length_ * mr_);  // before add(): making room ends the segments so far
    const float** to = table.add(panel_row(ty, x_.taps.front()), length_);
    for (int64_t i = 0; i < mr_; ++i, scratch += length_) {
      if (!y_inside(i, ty.offset)) {
        to[i] = conv_.zeros;
      } else if (row_inside(i)) {
        to[i] = origin_[i] + distance(ty, x_.taps.front());
      } else {
        copy_row(i, ty, scratch);
        to[i] = scratch;
      }
    }
  }
  void copy_row(int64_t i, const Tap& ty, float* to) const {
    for (const Tap& tx : x_.taps) {
      const float* from = x_inside(i, tx.offset) ? origin_[i] + distance(ty, tx) : conv_.zeros;
      for (int64_t c = 0; c < conv_.channels; ++c) *to++ = from[c];
    }
  }

  // One tap; its channels in pieces no longer than the run of zeros.
  void add_tap(TileTable& table, const Tap& ty, const Tap& tx) const {
    const int64_t step = distance(ty, tx);
    for (int64_t c = 0; c < conv_.channels; c += kZeroFloats) {
      const float** to = table.add(panel_row(ty, tx) + c, std::min(kZeroFloats, conv_.channels - c));
      for (int64_t i = 0; i < mr_; ++i)
        to[i] = y_inside(i, ty.offset) && x_inside(i, tx.offset) ? origin_[i] + step + c : conv_.zeros;
    }
  }

  const Conv& conv_;
  const Phase &y_, &x_;
  const float* base_;
  int64_t mr_, length_ = 0;
  int64_t first_inside_ = 0, end_inside_ = 0;  // x positions whose window row lies inside the image
  bool whole_rows_ = false, inside_ = false;
  int64_t u_ = 0, v_ = 0, n_ = 0;
  const float* line_ = nullptr;        // of the input, where u = 0 stands
  int64_t first_row_ = 0;              // of the result, where u = 0 stands
  int64_t top_ = 0, bottom_ = 0;       // least and greatest y of the tile
  const float* origin_[kMaxTileRows];  // of a tap with offset 0
  int64_t y_at_[kMaxTileRows], x_at_[kMaxTileRows], rows_[kMaxTileRows];
};

void run_task(const Conv& conv, int64_t task) {
  const int64_t block = task / (conv.panel_blocks * conv.groups);
  const int64_t group = task / conv.panel_blocks % conv.groups, panel_block = task % conv.panel_blocks;
  const PanelSet& panels = conv.panels[static_cast<size_t>(group)];
  size_t p = conv.parts.size() - 1;
  while (conv.parts[p].first_task > block) --p;
  const Conv::Part& part = conv.parts[p];
  const int64_t begin = (block - part.first_task) * conv.pixels_per_task;
  const int64_t end = std::min(begin + conv.pixels_per_task, part.pixels);
  const int64_t panel0 = panel_block * conv.panels_per_task;
  TileTable table(panels, panel0, std::min(panel0 + conv.panels_per_task, panels.panels));
  Window window(conv, conv.ys[part.y], conv.xs[part.x], group, panels.mr);
  window.seek(begin);
  for (int64_t pixel = begin; pixel < end; pixel += panels.mr) {
    const int64_t m = std::min(panels.mr, end - pixel);
    window.next(m);
    table.begin(window.rows(), m, true);
    window.add_segments(table);
    table.end(true);
  }
  table.flush();
}

// Tasks: blocks of pixels, and of panels where the pixels alone are too few.
int64_t choose_blocks(Conv& conv, const device::Tuning& tuning) {
  int64_t pixels = 0;
  for (size_t y = 0; y < conv.ys.size(); ++y)
    for (size_t x = 0; x < conv.xs.size(); ++x) {
      conv.parts.push_back({y, x, conv.images * conv.ys[y].count * conv.xs[x].count});
      pixels += conv.parts.back().pixels;
    }
  const int64_t most = std::max(tuning.get("conv.pixels", 192), kPixelUnit);
  conv.pixels_per_task = round_up(std::clamp(pixels / (4 * kEnoughTasks), kPixelUnit, most), kPixelUnit);
  int64_t blocks = 0;
  for (Conv::Part& part : conv.parts) {
    part.first_task = blocks;
    blocks += ceil_div(part.pixels, conv.pixels_per_task);
  }
  const int64_t panels = conv.panels[0].panels;
  conv.panels_per_task = std::clamp<int64_t>(panels * blocks * conv.groups / kEnoughTasks, 1, panels);
  conv.panel_blocks = ceil_div(panels, conv.panels_per_task);
  return blocks * conv.groups * conv.panel_blocks;
}

void set_images(Conv& conv, const Operand& x, const Operand& y, int64_t kernel_w) {
  conv.x = x.f32();
  conv.zeros = x.zeros;
  conv.images = x.shape()[0];
  conv.in_h = x.shape()[1];
  conv.in_w = x.shape()[2];
  conv.x_pitch = x.pitch;
  conv.channels = x.cols() / conv.groups;
  conv.dense = conv.groups == 1 && x.pitch == x.cols();
  conv.out_h = y.shape()[1];
  conv.out_w = y.shape()[2];
  conv.taps_x = kernel_w;
}

// b: the matrix [K, columns] in place, or its panels by group.
void set_panels(Conv& conv, const Call& call, bool packed, int64_t k) {
  const Operand &b = call.in[1], &y = call.out[0];
  const int64_t n = y.cols() / conv.groups;
  for (int64_t group = 0; group < conv.groups; ++group) {
    PanelSet set = make_panels(n, packed, y.rows(), call.tuning());
    SITU_ASSERT(!packed || b.cols() == set.tn, "panels of {} columns", b.cols());
    set.b = packed ? b.f32() + group * set.panels * k * set.tn : b.f32() + group * n;
    set.b_step = packed ? set.tn : b.pitch;
    set.panel_stride = packed ? k * set.tn : set.tn;
    set.y = y.f32();
    set.y_pitch = y.pitch;
    set.col = group * n;
    set.epilogue = conv.epilogue.count ? &conv.epilogue : nullptr;
    conv.panels.push_back(set);
  }
}

Work finish(std::shared_ptr<Conv> conv, const Call& call, bool packed, const ops::Window& window) {
  conv->epilogue = bind_epilogue(call, 2);
  set_panels(*conv, call, packed, window.y.kernel * window.x.kernel * conv->channels);
  const int64_t tasks = choose_blocks(*conv, call.tuning());
  return {tasks, [conv](int64_t task) { run_task(*conv, task); }};
}

Work bind_forward(const Call& call, bool packed) {
  const Operand &x = call.in[0], &y = call.out[0];
  const ir::Ints kernel = packed ? call.attrs.ints("kernel") : ir::Ints{call.in[1].shape()[0], call.in[1].shape()[1]};
  const ops::Window window = ops::window_of(call.attrs, {x.shape()[1], x.shape()[2]}, kernel);
  auto conv = std::make_shared<Conv>();
  conv->groups = call.attrs.integer("groups", 1);
  set_images(*conv, x, y, window.x.kernel);
  conv->ys = forward_phases(window.y);
  conv->xs = forward_phases(window.x);
  return finish(conv, call, packed, window);
}
Work bind_in_place(const Call& call) { return bind_forward(call, false); }
Work bind_packed(const Call& call) { return bind_forward(call, true); }

Work bind_dx(const Call& call) {
  const Operand &dy = call.in[0], &dx = call.out[0];
  const ops::Window window = ops::window_of(call.attrs, {dx.shape()[1], dx.shape()[2]}, call.attrs.ints("kernel"));
  auto conv = std::make_shared<Conv>();
  conv->groups = call.attrs.integer("groups", 1);
  set_images(*conv, dy, dx, window.x.kernel);
  conv->ys = backward_phases(window.y);
  conv->xs = backward_phases(window.x);
  return finish(conv, call, true, window);
}

// --- ways to run a convolution
// ----------------------------------------------------------------------------------------- The same products either
// way, in the same order: the choice never changes a result.
int64_t group_outputs(const ops::OpView& view) { return view.in(1).shape[3] / view.attrs.integer("groups", 1); }
bool accepts_in_place(const ops::OpView& view, const device::Target& target) {
  return group_outputs(view) <= panel_width(target.tuning);
}
double seconds_in_place(const ops::OpView&, const device::Target&) { return 0; }
double seconds_packed(const ops::OpView&, const device::Target&) { return 1; }

void launch_packed(device::Expansion& e, std::string_view pack, std::string_view kernel, int64_t k, int64_t n) {
  const int64_t groups = e.attrs().integer("groups", 1), tn = panel_width(e.target().tuning);
  const Shape w = e.view().in(1).shape;
  ir::Values inputs = e.inputs();
  inputs[1] = e.launch(pack, {e.in(1)}, f32({groups * ceil_div(n, tn), k, tn}), {{"groups", groups}});
  ir::Attrs attrs = e.attrs();
  e.result(0, e.launch(kernel, inputs, e.out_type(0), attrs.set("kernel", ir::Ints{w[0], w[1]})));
}
void expand_in_place(device::Expansion& e) { e.result(0, e.launch("conv2d", e.inputs(), e.out_type(0), e.attrs())); }
void expand_packed(device::Expansion& e) {
  const Shape w = e.view().in(1).shape;
  launch_packed(e, "pack_b", "conv2d_packed", w[0] * w[1] * w[2], group_outputs(e.view()));
}
void expand_dx(device::Expansion& e) {
  const Shape w = e.view().in(1).shape;
  launch_packed(e, "pack_dx", "conv2d_dx_packed", w[0] * w[1] * group_outputs(e.view()), w[2]);
}

}  // namespace

namespace kernels {
KernelList conv() {
  static constexpr Kernel kernels[] = {
      {"conv2d", bind_in_place}, {"conv2d_packed", bind_packed}, {"conv2d_dx_packed", bind_dx}};
  static constexpr device::Candidate candidates[] = {
      {.op = "conv2d",
       .name = "in_place",
       .accepts = accepts_in_place,
       .seconds = seconds_in_place,
       .expand = expand_in_place},
      {.op = "conv2d", .name = "packed", .seconds = seconds_packed, .expand = expand_packed},
      {.op = "conv2d_dx", .name = "packed", .seconds = seconds_packed, .expand = expand_dx}};
  return {kernels, candidates};
}
}  // namespace kernels
}  // namespace situ::cpu
