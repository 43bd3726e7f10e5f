// recurrent-inl.h -- the steps of a recurrent layer or of its gradient, around a cell that knows its gates.
#if defined(SITU_BACKEND_CPU_RECURRENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SITU_BACKEND_CPU_RECURRENT_INL_H_
#undef SITU_BACKEND_CPU_RECURRENT_INL_H_
#else
#define SITU_BACKEND_CPU_RECURRENT_INL_H_
#endif

#include <algorithm>

#include "backend/cpu/recurrent.h"
#include "backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {

inline void multiply_all(const Recurrent& l, int64_t n0, int64_t n1, int64_t step) {
  HWY_ALIGN float scratch[kFastSequences * kMostBlockRows];
  for (int64_t n = n0; n < n1; n += kFastSequences) {
    const int64_t row = l.walk.row(n, step);
    multiply_fast(l.fast, FastRows{.m = std::min(kFastSequences, n1 - n),
                                   .a = l.from.row(row + l.walk.back()),
                                   .a_row = l.walk.time * l.from.pitch,
                                   .first_row = row,
                                   .row_step = l.walk.time,
                                   .panel1 = l.fast.panels(),
                                   .scratch = scratch,
                                   .near = true});
  }
}

// CELL(layer, a row of sums, its number, how many steps came before): what one sequence does in one step.
template <auto CELL, typename Layer>
HWY_INLINE void walk_steps(const Layer& l, int64_t task) {
  const ops::Sequence& s = l.walk;
  const int64_t n0 = task * l.group, n1 = std::min(s.batch, n0 + l.group);
  for (int64_t step = 0; step < s.time; ++step) {
    const int64_t row = s.row(n0, step);
    if (step && l.form != Form::plain)
      multiply_all(l, n0, n1, step);
    else if (step)
      multiply(l.panels, {.m = n1 - n0,
                          .k = l.depth,
                          .a = l.from.row(row + s.back()),
                          .a_row = s.time * l.from.pitch,
                          .b = l.weight,
                          .b_step = l.panels.tn,
                          .b_panel = l.depth * l.panels.tn,
                          .y = l.sums.data,
                          .y_pitch = l.sums.pitch,
                          .first_row = row,
                          .row_step = s.time,
                          .epilogue = &l.epilogue});
    for (int64_t n = n0; n < n1; ++n) {
      const int64_t r = s.row(n, step);
      CELL(l, step ? l.sums.row(r) : l.start.row(r), r, step);
    }
  }
}

}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SITU_BACKEND_CPU_RECURRENT_INL_H_
