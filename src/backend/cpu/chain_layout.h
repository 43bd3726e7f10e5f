// chain_layout.h -- how a chain of convolutions in one launch (kernels/conv_chain.cpp) is cut: tasks, stripes of
// results, blocks of channels, and the ring that expanded rows pass through. By shapes, tuning and threads alone.
#pragma once
#include "backend/cpu/conv_rows.h"
#include "backend/cpu/fast_product.h"
#include "base/types.h"
#include "ops/conv_chain.h"
#include "ops/window.h"

namespace situ::cpu {

inline constexpr int64_t kProjectRows = 96;  // to be projected at a time

// What shapes and threads decide, for the graph and the kernel alike.
struct ChainLayout {
  ops::Window first;   // of the convolution that expands; 1x1 unless `few_channels`
  ops::Window window;  // of the depthwise one
  int64_t images = 0, channels = 0;
  int64_t threads = 1;
  int64_t rows = 0, tasks = 1;  // of results; task t makes rows [first_row(t), first_row(t + 1))
  int64_t unit = 1;             // of rows, which are made together
  int64_t stripe = 1;           // rows of results that rest at a time
  int64_t width = 0;            // of the expanding panels
  int64_t block = 0;            // channels that are expanded at a time, whole panels
  int64_t batch = 1, ring = 1;  // rows that are expanded at a time, and that are kept
  int64_t stripe_inputs = 0;    // most rows of x a stripe reads
  bool expands = false, few_channels = false, projects = false;
  bool by_channels = false;   // task t makes channels of panels [panels * t / tasks, panels * (t + 1) / tasks)
  bool whole_images = false;  // the ring holds images as wholes
  Form expand_form = Form::plain, project_form = Form::plain;
  int64_t image_channels = 0, expand_terms = 0, results = 0;

  int64_t ring_floats() const { return expands ? ring * window.x.in * block : 0; }
  int64_t resting_floats() const { return projects ? stripe * window.x.out * channels : 0; }
  // Whether all channels are expanded at a time, rows of x being read where they lie: then the ring goes on from stripe
  // to stripe, and depthwise results need not rest.
  bool streams() const { return expands && !by_channels && block >= channels && expand_form == Form::plain; }
  int64_t first_row(int64_t task) const { return rows / unit * task / tasks * unit; }
  int64_t panels() const { return ceil_div(channels, width); }
  int64_t packed_floats() const {
    if (few_channels) return ConvRows{.window = first, .channels = image_channels}.copies();
    if (expand_form == Form::plain) return 0;
    return FastProduct::scratch_floats(stripe_inputs * window.x.in, FastTerms(expand_form, expand_terms));
  }
  int64_t project_floats() const {
    if (project_form == Form::plain) return 0;
    return FastProduct::scratch_floats(kProjectRows, FastTerms(project_form, channels));
  }
  // Each begins at a line of the cache.
  static int64_t aligned(int64_t floats) { return round_up(floats, 16); }
  int64_t scratch_floats() const {
    return aligned(ring_floats()) + aligned(resting_floats()) + aligned(packed_floats()) + aligned(project_floats());
  }
};

// `kernel`: of the convolution that expands.
ChainLayout chain_layout_of(const Shape& x, const ops::ChainStages& stages, const ir::Ints& kernel, int64_t channels,
                            int64_t results, const device::Target& target);

// Rows of x, counted over all images, that result row o reads: the first and the last of those inside the image.
struct ChainRows {
  int64_t first, last;
};
ChainRows rows_read(const ChainLayout& l, int64_t o);

}  // namespace situ::cpu
