// conv_chain.cpp -- a chain of convolutions (ops/defs/conv_chain.cpp) in one launch: what lies between them, the widest
// tensors of a network, never leaves a core's caches.
//
//   conv_chain_rows  y, scratch = project( depthwise( expand(x) ) ); weights of the 1x1 convolutions as panels
// A task makes some rows of results, across images. For a block of channels it expands a few rows of x into a ring in
// the L1 cache, and goes over them with the depthwise convolution as they come; the results of all channels rest in the
// L2 cache until they are multiplied with the last weights. Where a task begins inside an image it expands up to two
// rows that its neighbour expands too. Where all images together have few pixels and nothing is projected, a task makes
// some channels of all results instead, so that each core reads its share of the weights, and register tiles are full.
// A result is the same however the work is cut, so threads have a say.
#include "ops/conv_chain.h"

#include <algorithm>
#include <memory>

#include "backend/cpu/chain_layout.h"
#include "backend/cpu/depthwise3.h"
#include "backend/cpu/fast_product.h"
#include "backend/cpu/tile_table.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "ops/window.h"

namespace situ::cpu {
namespace {

// A 1x1 convolution: a product with panels of either kind.
struct Pointwise {
  Form form = Form::plain;
  int64_t terms = 0;
  ConvColumns columns;
  FastProduct fast;
};

struct Chain {
  ChainLayout layout;
  const float *x = nullptr, *zeros = nullptr;
  int64_t x_pitch = 0;
  ConvRows first;  // of few channels
  Pointwise expand, project;
  const float* w = nullptr;
  int64_t w_pitch = 0;
  SumRange range;
  DepthwiseForward depthwise = nullptr;
  DepthwisePair depthwise_pair = nullptr;    // where rows are made in pairs
  DepthwiseWhole depthwise_image = nullptr;  // where images are whole and every pixel has a result
  float* y = nullptr;
  int64_t y_pitch = 0;
  float* scratch = nullptr;
  int64_t scratch_pitch = 0;
};

// The parts of a thread's scratch.
struct Parts {
  float *ring, *resting, *packed, *project;  // packed: rows of x, as panels or padded
  explicit Parts(const Chain& chain) {
    const ChainLayout& l = chain.layout;
    ring = chain.scratch + ThreadPool::this_thread() * chain.scratch_pitch;
    resting = ring + ChainLayout::aligned(l.ring_floats());
    packed = resting + ChainLayout::aligned(l.resting_floats());
    project = packed + ChainLayout::aligned(l.packed_floats());
  }
};

// y[first_row + i] = epilogue(a[i] b) for i < m and panels [panel0, panel1); y of the whole result.
void multiply(const Pointwise& p, const float* a, int64_t a_pitch, int64_t m, float* y, int64_t y_pitch,
              int64_t first_row, int64_t panel0, int64_t panel1) {
  const PanelSet& set = p.columns.panels;
  if (p.columns.short_sums.run)
    return multiply_short(p.columns.short_sums, set, panel0, panel1, {.line = {a}, .step = a_pitch, .m = m},
                          y + first_row * y_pitch, y_pitch);
  const TileEpilogue* const epilogue = p.columns.epilogue.count ? &p.columns.epilogue : nullptr;
  const TileSegment segment{0, p.terms};
  const float* pointers[kMaxTileRows];
  int64_t rows[kMaxTileRows];
  for (int64_t panel = panel0; panel < panel1; ++panel) {
    const bool full = (panel + 1) * set.tn <= set.n;
    Tile t{.a = pointers,
           .segments = &segment,
           .count = 1,
           .b = set.b + panel * set.panel_stride,
           .b_step = set.b_step,
           .y = y,
           .y_pitch = y_pitch,
           .rows = rows,
           .col = panel * set.tn,
           .n = std::min(set.tn, set.n - panel * set.tn),
           .epilogue = epilogue};
    const TileFunction tile = full ? set.tile : set.last_tile;
    for (int64_t i = 0; i < m; i += set.mr) {
      t.m = std::min(set.mr, m - i);
      for (int64_t r = 0; r < set.mr; ++r) {
        const int64_t row = i + std::min(r, t.m - 1);
        pointers[r] = a + row * a_pitch;
        rows[r] = first_row + row;
      }
      tile(t);
    }
  }
}

// Expands rows of x into the ring as they are needed, for one block of channels.
class Ring {
 public:
  // `all`: the rows that will be asked for; channels from `channel` on, before `end`.
  Ring(const Chain& chain, const Parts& parts, ChainRows all, int64_t channel, int64_t end)
      : chain_(chain),
        parts_(parts),
        all_(all),
        next_(all.first),
        channel_(channel),
        channels_(std::min(chain.layout.block, end - channel)),
        padded_(chain.first, parts.packed) {
    const ChainLayout& l = chain.layout;
    if (!l.expands) return;
    panel0_ = channel / l.width;
    panel1_ = panel0_ + ceil_div(channels_, l.width);
  }
  void need(int64_t row) {
    while (next_ <= row) expand(std::min(chain_.layout.batch, all_.last + 1 - next_));
  }
  const float* row(int64_t row) const { return slot(row); }
  int64_t channel() const { return channel_; }
  int64_t channels() const { return channels_; }

 private:
  float* slot(int64_t row) const {
    const ChainLayout& l = chain_.layout;
    return parts_.ring + (row - all_.first) % l.ring * l.window.x.in * l.block;
  }
  void expand(int64_t rows) {
    const ChainLayout& l = chain_.layout;
    const int64_t pixel = (next_ - all_.first) * l.window.x.in, m = rows * l.window.x.in;
    float* const y = slot(next_) - channel_;  // tiles add the number of their column
    if (l.few_channels) {
      for (int64_t r = 0; r < rows; ++r)
        conv_row(chain_.first, chain_.expand.columns, panel0_, panel1_, padded_.lines(next_ + r), y, l.block,
                 r * l.window.x.in);
    } else if (l.expand_form != Form::plain) {
      FastProduct product = chain_.expand.fast;
      product.y = y;
      const float* a = parts_.packed + pixel * product.terms.rows_of(product.terms.block);
      multiply_fast(product, PackedRows{.m = m, .a = a, .panel0 = panel0_, .panel1 = panel1_});
    } else {
      const float* a = chain_.x + next_ * l.window.x.in * chain_.x_pitch;
      multiply(chain_.expand, a, chain_.x_pitch, m, y, l.block, 0, panel0_, panel1_);
    }
    next_ += rows;
  }

  const Chain& chain_;
  const Parts& parts_;
  const ChainRows all_;
  int64_t next_;
  const int64_t channel_, channels_;
  int64_t panel0_ = 0, panel1_ = 0;
  PaddedRows padded_;
};

DepthwiseResult result_of(const Chain& chain, int64_t channel, int64_t count, float* y, int64_t y_pitch) {
  DepthwiseResult result{.channels = count, .y = y + channel, .y_pitch = y_pitch, .range = chain.range};
  if (result.range.bias) result.range.bias += channel;
  return result;
}
DepthwiseWeights weights_of(const Chain& chain, int64_t channel) {
  const float* first = chain.w + channel;
  return {.row = {first, first + 3 * chain.w_pitch, first + 6 * chain.w_pitch}, .along = chain.w_pitch};
}

// Depthwise results of row o, channels [channel, channel + count). row(i) is row i of the source, `step` from pixel to
// pixel.
template <typename Source>
void depthwise_row(const Chain& chain, int64_t o, int64_t channel, int64_t count, float* y, int64_t y_pitch,
                   const Source& row, int64_t step) {
  const ops::WindowAxis &wy = chain.layout.window.y, &wx = chain.layout.window.x;
  DepthwiseRow d;
  for (int64_t r = 0; r < 3; ++r) {
    const int64_t i = wy.position(o % wy.out, r);
    const bool inside = i >= 0 && i < wy.in;
    d.lines.first[r] = inside ? row(o / wy.out * wy.in + i) : chain.zeros;
    d.lines.step[r] = inside ? step : 0;
  }
  d.weights = weights_of(chain, channel);
  d.before = wx.before;
  d.columns = wx.in;
  d.results = wx.out;
  chain.depthwise(result_of(chain, channel, count, y, y_pitch), d);
}

// ChainRows [o0, o1) of depthwise results, whole images, the first at y, for the channels of a ring.
void slide_images(const Chain& chain, Ring& ring, int64_t o0, int64_t o1, float* y, int64_t y_pitch) {
  const ops::WindowAxis &wy = chain.layout.window.y, &wx = chain.layout.window.x;
  const int64_t step = chain.layout.block;
  DepthwiseImage image{.step = step,
                       .line = wx.in * step,
                       .in_h = wy.in,
                       .in_w = wx.in,
                       .out_h = wy.out,
                       .out_w = wx.out,
                       .above = wy.before,
                       .before = wx.before,
                       .weights = weights_of(chain, ring.channel()),
                       .zeros = chain.zeros};
  for (int64_t o = o0; o < o1; o += wy.out, y += wy.out * wx.out * y_pitch) {
    const int64_t first = o / wy.out * wy.in;
    ring.need(first + wy.in - 1);
    image.first = ring.row(first);
    chain.depthwise_image(result_of(chain, ring.channel(), ring.channels(), y, y_pitch), image);
  }
}

// The same for pairs of rows.
void slide_pairs(const Chain& chain, Ring& ring, int64_t o0, int64_t o1, float* y, int64_t y_pitch) {
  const ops::WindowAxis &wy = chain.layout.window.y, &wx = chain.layout.window.x;
  DepthwiseRows rows{
      .weights = weights_of(chain, ring.channel()), .before = wx.before, .columns = wx.in, .results = wx.out};
  for (int64_t o = o0; o < o1; o += 2, y += 2 * wx.out * y_pitch) {
    ring.need(rows_read(chain.layout, o + 1).last);
    const int64_t image = o / wy.out * wy.in, top = o % wy.out - wy.before;
    for (int64_t r = 0; r < 4; ++r) {
      const bool inside = top + r >= 0 && top + r < wy.in;
      rows.first[r] = inside ? ring.row(image + top + r) : chain.zeros;
      rows.step[r] = inside ? chain.layout.block : 0;
    }
    DepthwiseResult result = result_of(chain, ring.channel(), ring.channels(), y, y_pitch);
    result.below = wx.out;
    chain.depthwise_pair(result, rows);
  }
}

// ChainRows [o0, o1) of depthwise results, the first at y, for the channels of a ring.
void slide(const Chain& chain, Ring& ring, int64_t o0, int64_t o1, float* y, int64_t y_pitch) {
  const ChainLayout& l = chain.layout;
  if (chain.depthwise_pair) return slide_pairs(chain, ring, o0, o1, y, y_pitch);
  if (chain.depthwise_image) return slide_images(chain, ring, o0, o1, y, y_pitch);
  for (int64_t o = o0; o < o1; ++o) {
    ring.need(rows_read(l, o).last);
    depthwise_row(
        chain, o, ring.channel(), ring.channels(), y + (o - o0) * l.window.x.out * y_pitch, y_pitch,
        [&](int64_t i) { return ring.row(i); }, l.block);
  }
}

// ChainRows [o0, o1) of depthwise results, the first at y, channels [c0, c1), which are whole panels if any are
// expanded.
void depthwise_rows(const Chain& chain, const Parts& parts, int64_t o0, int64_t o1, int64_t c0, int64_t c1, float* y,
                    int64_t y_pitch) {
  const ChainLayout& l = chain.layout;
  const int64_t line = l.window.x.out * y_pitch;
  if (!l.expands) {
    constexpr int64_t kBlock = device::kZeroRun / static_cast<int64_t>(sizeof(float));
    for (int64_t o = o0; o < o1; ++o)
      for (int64_t c = c0; c < c1; c += kBlock)
        depthwise_row(
            chain, o, c, std::min(kBlock, c1 - c), y + (o - o0) * line, y_pitch,
            [&](int64_t i) { return chain.x + i * l.window.x.in * chain.x_pitch + c; }, chain.x_pitch);
    return;
  }
  const ChainRows all{rows_read(l, o0).first, rows_read(l, o1 - 1).last};
  if (l.expand_form != Form::plain)
    pack_rows(chain.expand.fast,
              {.m = (all.last + 1 - all.first) * l.window.x.in,
               .a = chain.x + all.first * l.window.x.in * chain.x_pitch,
               .a_row = chain.x_pitch,
               .scratch = parts.packed},
              0);
  for (int64_t c = c0; c < c1; c += l.block) {
    Ring ring(chain, parts, all, c, c1);
    slide(chain, ring, o0, o1, y, y_pitch);
  }
}

// The last product: rows of pixels [first, first + m) of y, whose depthwise results rest at a.
void project_rows(const Chain& chain, const Parts& parts, const float* a, int64_t first, int64_t m) {
  const int64_t k = chain.layout.channels;
  for (int64_t i = 0; i < m; i += kProjectRows) {
    const int64_t count = std::min(kProjectRows, m - i);
    if (chain.project.form != Form::plain)
      multiply_fast(chain.project.fast, FastRows{.m = count,
                                                 .a = a + i * k,
                                                 .a_row = k,
                                                 .first_row = first + i,
                                                 .panel1 = chain.project.fast.panels(),
                                                 .scratch = parts.project,
                                                 .near = true});
    else
      multiply(chain.project, a + i * k, k, count, chain.y, chain.y_pitch, first + i, 0,
               chain.project.columns.panels.panels);
  }
}

void run_task(const Chain& chain, int64_t task) {
  const ChainLayout& l = chain.layout;
  const Parts parts(chain);
  const ReadyForm ready(l.expand_form);
  if (l.by_channels) {
    const int64_t c0 = l.panels() * task / l.tasks * l.width, c1 = l.panels() * (task + 1) / l.tasks * l.width;
    return depthwise_rows(chain, parts, 0, l.rows, c0, std::min(c1, l.channels), chain.y, chain.y_pitch);
  }
  const int64_t out_w = l.window.x.out, begin = l.first_row(task), end = l.first_row(task + 1);
  Ring ring(chain, parts, {rows_read(l, begin).first, rows_read(l, end - 1).last}, 0, l.channels);
  for (int64_t o0 = begin; o0 < end; o0 += l.stripe) {
    const int64_t o1 = std::min(o0 + l.stripe, end);
    float* const to = l.projects ? parts.resting : chain.y + o0 * out_w * chain.y_pitch;
    const int64_t pitch = l.projects ? l.channels : chain.y_pitch;
    if (l.streams())
      slide(chain, ring, o0, o1, to, pitch);
    else
      depthwise_rows(chain, parts, o0, o1, 0, l.channels, to, pitch);
    if (l.projects) project_rows(chain, parts, to, o0 * out_w, (o1 - o0) * out_w);
  }
}

TileEpilogue bind_stage(const Call& call, const ops::ChainStage& stage) {
  return bind_epilogue({stage.attrs, call.in, call.out, call.target}, stage.operands());
}

// y: for its columns and pitch; the chain sets where they lie. Terms: in `lines` of as many.
Pointwise bind_pointwise(const Call& call, const ops::ChainStage& stage, Form form, int64_t lines, int64_t k, int64_t n,
                         int64_t rows, int64_t width) {
  const Operand& b = call.in[static_cast<size_t>(stage.w)];
  Pointwise p;
  p.form = form;
  p.terms = k;
  p.columns.epilogue = bind_stage(call, stage);
  if (form != Form::plain) {
    p.fast = fast_product(b, FastTerms(form, k), n, call.out[0], call.tuning());
    p.fast.epilogue = p.columns.epilogue;
    return p;
  }
  PanelSet& set = p.columns.panels = make_panels(n, true, rows, call.tuning(), width);
  SITU_ASSERT(b.cols() == set.tn && b.pitch == b.cols() && b.rows() == set.panels * k);
  set.b = b.f32();
  set.b_step = set.tn;
  set.panel_stride = k * set.tn;
  p.columns.short_sums = short_product(lines, k / lines, n, p.columns.epilogue, call.tuning());
  return p;
}

Work bind(const Call& call) {
  const Operand &x = call.in[0], &y = call.out[0], &scratch = call.out[1];
  const ops::ChainStages shape_of = ops::chain_stages(call.attrs, 1);
  const Operand& w = call.in[static_cast<size_t>(shape_of.depthwise.w)];
  const ops::ChainStages stages = ops::chain_stages(call.attrs, w.cols());
  auto chain = std::make_shared<Chain>();
  const ir::Ints kernel = call.attrs.ints("kernel");
  ChainLayout& l = chain->layout = chain_layout_of(x.shape(), stages, kernel, w.cols(), y.cols(), call.target);
  SITU_ASSERT(scratch.rows() == l.threads && scratch.cols() == std::max<int64_t>(1, l.scratch_floats()));
  chain->x = x.f32();
  chain->x_pitch = x.pitch;
  chain->zeros = x.zeros;
  chain->w = w.f32();
  chain->w_pitch = w.pitch;
  const bool range = is_range(bind_stage(call, stages.depthwise), &chain->range);
  SITU_ASSERT(range);
  chain->depthwise = depthwise3_near_function(l.window.x.stride);
  if (l.unit == 2) chain->depthwise_pair = depthwise3_near_pair_function();
  if (l.whole_images && l.window.x.stride == 1) chain->depthwise_image = depthwise3_near_image_function();
  chain->y = y.f32();
  chain->y_pitch = y.pitch;
  chain->scratch = scratch.f32();
  chain->scratch_pitch = scratch.pitch;
  if (l.expands) {
    chain->first = {l.first, x.f32(), x.pitch, x.cols()};
    chain->expand = bind_pointwise(call, stages.expand, l.expand_form, l.first.y.kernel, l.expand_terms, l.channels,
                                   (l.few_channels ? 1 : l.batch) * l.window.x.in, l.width);
    chain->expand.fast.y_pitch = l.block;
  }
  if (l.projects)
    chain->project = bind_pointwise(call, stages.project, l.project_form, 1, l.channels, l.results,
                                    std::min(kProjectRows, l.stripe * l.window.x.out), 0);
  return {l.tasks, [chain](int64_t task) { run_task(*chain, task); }};
}

// --- candidate ------------------------------------------------------------------------------------------------------
double seconds(const ops::OpView&, const device::Target&) { return 0; }  // the only one

void expand(device::Expansion& e) {
  const int64_t channels = ops::chain_channels(e.view());
  const ops::ChainStages stages = ops::chain_stages(e.attrs(), channels);
  ir::Ints kernel{1, 1};
  if (stages.expand.there) {
    const Shape& w = e.view().in(stages.expand.w).shape;
    kernel = {w[0], w[1]};
  }
  const ChainLayout l =
      chain_layout_of(e.view().in(0).shape, stages, kernel, channels, e.out_type(0).shape[3], e.target());
  ir::Values inputs = e.inputs();
  const auto pack = [&](const ops::ChainStage& stage, Form form, int64_t k, int64_t n, int64_t width) {
    ir::Value& w = inputs[static_cast<size_t>(stage.w)];
    const bool plain = form == Form::plain;
    const int64_t lanes = plain ? width : fast_width(form, e.target().tuning);
    const Type panels = f32({ceil_div(n, lanes), plain ? k : FastTerms(form, k).rows(), lanes});
    w = e.launch(pack_kernel(form), {w}, panels);
  };
  if (l.expands) pack(stages.expand, l.expand_form, l.expand_terms, channels, l.width);
  if (l.projects) pack(stages.project, l.project_form, channels, l.results, panel_width(e.target().tuning));
  const Type scratch = f32({l.threads, std::max<int64_t>(1, l.scratch_floats())});
  e.result(0, e.launch_all("conv_chain_rows", inputs, {e.out_type(0), scratch},
                           ir::Attrs(e.attrs()).set("kernel", kernel))[0]);
}

}  // namespace

namespace kernels {
KernelList conv_chain() {
  static constexpr Kernel kernels[] = {{"conv_chain_rows", bind}};
  static constexpr device::Candidate candidates[] = {
      {.op = "conv_chain", .name = "rows", .seconds = seconds, .expand = expand}};
  return {kernels, candidates};
}
}  // namespace kernels
}  // namespace situ::cpu
