#include "backend/cpu/chain_layout.h"

#include <algorithm>

namespace situ::cpu {
namespace {

constexpr int64_t kRingFloats = 6656;          // the ring, beside weights and what is read, in an L1 cache of 32 KiB
constexpr int64_t kRestingFloats = 96 * 1024;  // depthwise results, in an L2 cache
constexpr int64_t kNearFloats = 4096;          // the same where nothing is expanded: they need not wait
constexpr int64_t kEnoughPixels = 40;          // to be expanded at a time: a few register tiles
constexpr int64_t kTasksPerThread = 4;         // for an even split
constexpr int64_t kTaskPixels = 72;            // fewest results of a task: whole register tiles

Form form_of(const device::Target& target, int64_t terms, int64_t columns) {
  const Form form = best_form(target);
  return pays_to_pack(form, terms, columns) ? form : Form::plain;
}

// The most rows of x that a stripe of a task reads.
int64_t most_inputs(const ChainLayout& l) {
  int64_t most = 0;
  for (int64_t task = 0; task < l.tasks; ++task) {
    const int64_t end = l.first_row(task + 1);
    for (int64_t o0 = l.first_row(task); o0 < end; o0 += l.stripe)
      most = std::max(most, rows_read(l, std::min(o0 + l.stripe, end) - 1).last + 1 - rows_read(l, o0).first);
  }
  return most;
}

// How many rows are expanded at a time: enough pixels for whole tiles; of images that are smaller, whole ones.
int64_t batch_of(const ChainLayout& l) {
  const int64_t in_h = l.window.y.in, in_w = l.window.x.in, unit = in_h * in_w < kEnoughPixels ? in_h : 1;
  int64_t batch = round_up(ceil_div(kEnoughPixels, in_w), unit);
  while (l.expand_form != Form::plain && batch * in_w % panel_rows(l.expand_form) != 0)
    batch += unit;  // packed rows are whole panels
  return batch;
}

}  // namespace

ChainRows rows_read(const ChainLayout& l, int64_t o) {
  const ops::WindowAxis& w = l.window.y;
  const int64_t image = o / w.out * w.in, top = w.position(o % w.out, 0);
  return {image + std::clamp<int64_t>(top, 0, w.in - 1), image + std::clamp<int64_t>(top + 2, 0, w.in - 1)};
}

ChainLayout chain_layout_of(const Shape& x, const ops::ChainStages& stages, const ir::Ints& kernel, int64_t channels,
                            int64_t results, const device::Target& target) {
  ChainLayout l;
  l.first = ops::window_of(stages.expand.attrs, {x[1], x[2]}, kernel);
  l.window = ops::window_of(stages.depthwise.attrs, {l.first.y.out, l.first.x.out}, {3, 3});
  l.images = x[0];
  l.channels = channels;
  l.results = results;
  l.expands = stages.expand.there;
  l.projects = stages.project.there;
  l.few_channels = l.expands && !ops::is_pointwise(l.first);
  l.image_channels = x[3];
  l.expand_terms = kernel[0] * kernel[1] * x[3];
  if (l.expands && !l.few_channels) l.expand_form = form_of(target, x[3], channels);
  if (FastTerms(l.expand_form, x[3]).blocks > 1) l.expand_form = Form::plain;
  if (l.projects) l.project_form = form_of(target, channels, results);
  l.rows = l.images * l.window.y.out;
  l.threads = target.compute_units;
  const bool large = l.window.y.in * l.window.x.in >= kEnoughPixels;  // small images are better off as wholes
  if (target.tuning.get("chain.pairs", 0) && l.expands && large && l.window.y.stride == 1 && l.window.y.out % 2 == 0)
    l.unit = 2;
  l.tasks = std::min(
      {l.rows / l.unit, kTasksPerThread * l.threads, std::max(l.threads, l.rows * l.window.x.out / kTaskPixels)});
  const int64_t most_rows = ceil_div(l.rows / l.unit, l.tasks) * l.unit, row = l.window.x.out * channels;
  l.stripe =
      l.projects ? std::clamp<int64_t>((l.expands ? kRestingFloats : kNearFloats) / row, 1, most_rows) : most_rows;
  l.stripe = round_up(l.stripe, l.unit);
  if (!l.expands) return l;
  l.width =
      l.expand_form == Form::plain ? 2 * target.tuning.get("simd.lanes", 8) : fast_width(l.expand_form, target.tuning);
  l.batch = batch_of(l);
  const int64_t pixels = l.images * l.window.y.in * l.window.x.in;
  l.by_channels = !l.projects && !l.few_channels && pixels <= target.tuning.get("chain.together", 0);
  if (l.by_channels) {
    l.tasks = std::min(l.threads, l.panels());
    l.stripe = l.rows;
  }
  const bool cut_between = l.by_channels || (l.images % l.tasks == 0 && l.stripe % l.window.y.out == 0);
  l.whole_images = cut_between && l.batch % l.window.y.in == 0;
  l.ring = l.whole_images ? l.batch : round_up(l.batch + 1 + l.unit, l.batch);
  l.block = std::clamp<int64_t>(kRingFloats / (l.ring * l.window.x.in) / l.width, 1, 2) * l.width;
  if (l.streams()) {
    l.ring = round_up(l.batch + 1 + l.unit, l.batch);
    if (l.projects) l.stripe = round_up(std::clamp<int64_t>(kNearFloats / row, 1, most_rows), l.unit);
  }
  l.stripe_inputs = l.by_channels ? l.images * l.window.y.in : most_inputs(l);
  return l;
}

}  // namespace situ::cpu
