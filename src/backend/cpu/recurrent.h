// recurrent.h -- what the recurrent kernels share: a task is a register tile's height of sequences and walks through
// time with them, so that the weight is read once per step and tile.
//
//   sums = (row of the step before in `from`) weight + epilogue;  at the first step walked, a row of `start`
#pragma once
#include "backend/cpu/block_product.h"
#include "ops/sequence.h"

namespace situ::cpu {

struct Recurrent {
  ops::Sequence seq;   // the steps of the layer
  ops::Sequence walk;  // the same, or turned round: the steps of this kernel
  PanelSet panels;
  TileEpilogue epilogue;  // adds one operand
  int64_t depth = 0;      // rows of weight
  Matrix from, weight, sums, start;
};

// The product of each step; `start` and the epilogue hold the same operand, which has one row for all if it is a bias.
inline void set_product(Recurrent& r, const Call& call, const Operand& from, const Operand& weight, const Operand& sums,
                        const Operand& start) {
  const bool bias = start.shape().rank() == 1;
  r.panels = make_panels(weight.cols(), false, r.seq.batch, call.tuning());
  r.depth = weight.rows();
  r.from = matrix(from);
  r.weight = matrix(weight);
  r.sums = matrix(sums);
  r.start = {start.f32(), bias ? 0 : start.pitch};
  r.epilogue.count = 1;
  r.epilogue.words[0] = {bias ? ops::Epilogue::bias : ops::Epilogue::residual, r.start.data, r.start.pitch};
}

template <typename Layer, typename Run>
Work recurrent_work(const Layer& l, Run run) {
  return {ceil_div(l.seq.batch, l.panels.mr), [l, run](int64_t task) { run(l, task); }};
}

}  // namespace situ::cpu
