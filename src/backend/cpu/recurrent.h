// recurrent.h -- what the recurrent kernels share: a task is a number of sequences and walks through time with them.
// The weight comes as panels, plain (pack_b) or of a fast product, and every panel meets all sequences of the task
// while the L1 cache holds it. What a sequence gives depends on nothing but itself, so tasks may be as many as there
// are threads.
//
//   sums = (row of the step before in `from`) weight + epilogue;  at the first step walked, a row of `start`
#pragma once
#include "backend/cpu/block_product.h"
#include "backend/cpu/fast_product.h"
#include "ops/sequence.h"

namespace situ::cpu {

struct Recurrent {
  ops::Sequence seq;   // the steps of the layer
  ops::Sequence walk;  // the same, or turned round: the steps of this kernel
  PanelSet panels;
  TileEpilogue epilogue;  // adds one operand
  int64_t depth = 0;      // rows of weight
  int64_t group = 0;      // sequences of a task
  const float* weight = nullptr;
  Form form = Form::plain;
  FastProduct fast;  // in place of panels, epilogue and weight, if the form is not plain
  Matrix from, sums, start;
};
inline constexpr int64_t kFastSequences = 64;  // whose rows a task packs at a time

// The product of each step; `start` and the epilogue hold the same operand, which has one row for all if it is a bias.
inline void set_product(Recurrent& r, Form form, const Call& call, const Operand& from, const Operand& weight,
                        int64_t columns, const Operand& sums, const Operand& start) {
  const bool bias = start.shape().rank() == 1;
  SITU_ASSERT(weight.shape().rank() == 3 && weight.pitch == weight.cols(), "the weight comes as panels");
  r.depth = from.cols();
  r.form = form;
  if (form != Form::plain) {
    r.fast = fast_product(weight, FastTerms(form, r.depth), columns, sums, call.tuning());
  } else {
    r.panels = make_panels(columns, true, r.seq.batch, call.tuning());
    SITU_ASSERT(weight.shape()[0] == r.panels.panels && weight.cols() == r.panels.tn);
  }
  const int64_t rows = form == Form::plain ? r.panels.mr : panel_rows(form), tiles = ceil_div(r.seq.batch, rows);
  r.group = rows * ceil_div(tiles, std::min<int64_t>(tiles, call.target.compute_units));
  r.from = Matrix(from);
  r.weight = weight.f32();
  r.sums = Matrix(sums);
  r.start = {start.f32(), bias ? 0 : start.pitch};
  r.epilogue.count = 1;
  r.epilogue.words[0] = {bias ? ops::Epilogue::bias : ops::Epilogue::residual, r.start.data, r.start.pitch};
  r.fast.epilogue = r.epilogue;
}

template <typename Layer, typename Run>
Work recurrent_work(const Layer& l, Run run) {
  return {ceil_div(l.seq.batch, l.group), [l, run](int64_t task) { run(l, task); }};
}

// Packs operand `weight` and launches `kernel` with the panels in its place; a gradient takes it transposed.
inline void expand_recurrent(device::Expansion& e, std::string_view kernel, int weight, bool transposed, Form form) {
  const Shape& w = e.type(e.in(weight)).shape;
  const int64_t k = w[transposed ? 1 : 0], n = w[transposed ? 0 : 1];
  const bool plain = form == Form::plain;
  const int64_t tn = plain ? panel_width(e.target().tuning) : fast_width(form, e.target().tuning);
  ir::Values inputs = e.inputs();
  inputs[static_cast<size_t>(weight)] =
      e.launch(pack_kernel(form), {e.in(weight)}, f32({ceil_div(n, tn), plain ? k : FastTerms(form, k).rows(), tn}),
               {{"tb", int64_t{transposed}}});
  e.launch_op(kernel, inputs);
}
// Fast products, where they are offered, come first.
template <int WEIGHT, Form FORM>
bool accepts_fast(const ops::OpView& view, const device::Target& target) {
  const Shape& w = view.in(WEIGHT).shape;
  return has_form(target, FORM) && std::min(w[0], w[1]) >= fewest_terms(FORM, false);
}
inline double rank_fast(const ops::OpView&, const device::Target&) { return 0; }
inline double rank_packed(const ops::OpView&, const device::Target&) { return 1; }

}  // namespace situ::cpu
