// gru.cpp -- a GRU layer and its gradient, all time steps in one launch.
//
//   gru       u = h_{t-1} w + b;  r, z = sigmoid(zx + u);  n = tanh(zx_n + r u_n);  h = (1 - z) n + z h
//   gru_grad  dh = dh_t + carry + dzh_{t+1} w^T;  dzx and dzh from the gates;  carry = dh z
// A task is a register tile's height of sequences and walks through time with them, so w is read once per step and
// tile. What lasts from step to step rests in the results: u in the first three quarters of gates; and in dzx, whose
// row of the next step holds its dh (first third) and carry (second third) until they are used up.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels/gru.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <algorithm>

#include "backend/cpu/block_product.h"
#include "backend/cpu/math-inl.h"
#include "backend/cpu/simd-inl.h"
#include "ops/sequence.h"

#ifndef SITU_BACKEND_CPU_GRU_ONCE_
#define SITU_BACKEND_CPU_GRU_ONCE_
namespace situ::cpu {
namespace {
struct Gru {
  ops::Sequence seq;
  PanelSet panels;
  TileEpilogue epilogue;  // adds b, or dh
  Matrix zx, w, b, h, gates;
  Matrix w_t, dh, dgates, dzx, dzh;  // of the gradient; dgates may be missing
};
}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

// One row of u, which may lie in the gates' own place, becomes gates and output.
HWY_INLINE void forward_row(const Gru& l, const float* u, int64_t row, bool first) {
  const int64_t width = l.seq.width;
  const float *x = l.zx.row(row), *before = first ? nullptr : l.h.row(row + l.seq.back());
  float *gate = l.gates.row(row), *h = l.h.row(row);
  for (int64_t j = 0; j < width; j += lanes()) {
    const int64_t n = width - j;
    const Floats r = sigmoid_of(hn::Add(load_up_to(x + j, n), load_up_to(u + j, n)));
    const Floats z = sigmoid_of(hn::Add(load_up_to(x + width + j, n), load_up_to(u + width + j, n)));
    const Floats inner = load_up_to(u + 2 * width + j, n);
    const Floats m = tanh_of(hn::MulAdd(r, inner, load_up_to(x + 2 * width + j, n)));
    const Floats kept = first ? zeros() : hn::Mul(z, load_up_to(before + j, n));
    store_up_to(r, gate + j, n);
    store_up_to(z, gate + width + j, n);
    store_up_to(m, gate + 2 * width + j, n);
    store_up_to(inner, gate + 3 * width + j, n);
    store_up_to(hn::MulAdd(hn::Sub(fill(1.0f), z), m, kept), h + j, n);
  }
}

void gru_task(const Gru& l, int64_t task) {
  const ops::Sequence& s = l.seq;
  const int64_t n0 = task * l.panels.mr, n1 = std::min(s.batch, n0 + l.panels.mr);
  for (int64_t step = 0; step < s.time; ++step) {
    const int64_t row = s.row(n0, step);
    if (step)
      multiply(l.panels, {.m = n1 - n0,
                          .k = s.width,
                          .a = l.h.row(row + s.back()),
                          .a_row = s.time * l.h.pitch,
                          .b = l.w.data,
                          .b_step = l.w.pitch,
                          .y = l.gates.data,
                          .y_pitch = l.gates.pitch,
                          .first_row = row,
                          .row_step = s.time,
                          .epilogue = &l.epilogue});
    for (int64_t n = n0; n < n1; ++n) {
      const int64_t r = s.row(n, step);
      forward_row(l, step ? l.gates.row(r) : l.b.data, r, step == 0);
    }
  }
}

// dzx and dzh of one row from dh, whose sum with the next step's product lies at `dh_row` (perhaps dzx's own place).
HWY_INLINE void backward_row(const Gru& l, const float* dh_row, int64_t row, bool first, bool last) {
  const int64_t width = l.seq.width;
  const float *gate = l.gates.row(row), *h_before = first ? nullptr : l.h.row(row + l.seq.back());
  float *dzx = l.dzx.row(row), *dzh = l.dzh.row(row);
  float* carry_on = first ? nullptr : l.dzx.row(row + l.seq.back()) + width;
  const Floats one = fill(1.0f);
  for (int64_t j = 0; j < width; j += lanes()) {
    const int64_t n = width - j;
    const auto arrived = [&](int64_t col)
                             HWY_ATTR { return l.dgates ? load_up_to(l.dgates.row(row) + col + j, n) : zeros(); };
    const Floats r = load_up_to(gate + j, n), z = load_up_to(gate + width + j, n);
    const Floats m = load_up_to(gate + 2 * width + j, n), inner = load_up_to(gate + 3 * width + j, n);
    const Floats before = first ? zeros() : load_up_to(h_before + j, n);
    const Floats carry = last ? zeros() : load_up_to(dzx + width + j, n);
    const Floats dh = hn::Add(load_up_to(dh_row + j, n), carry);
    const Floats dm = hn::Mul(hn::MulAdd(dh, hn::Sub(one, z), arrived(2 * width)), slope_of_tanh(m));
    const Floats dz = hn::Mul(hn::MulAdd(dh, hn::Sub(before, m), arrived(width)), slope_of_sigmoid(z));
    const Floats dr = hn::Mul(hn::MulAdd(dm, inner, arrived(0)), slope_of_sigmoid(r));
    store_up_to(dr, dzx + j, n);
    store_up_to(dz, dzx + width + j, n);
    store_up_to(dm, dzx + 2 * width + j, n);
    store_up_to(dr, dzh + j, n);
    store_up_to(dz, dzh + width + j, n);
    store_up_to(hn::MulAdd(dm, r, arrived(3 * width)), dzh + 2 * width + j, n);
    if (!first) store_up_to(hn::Mul(dh, z), carry_on + j, n);
  }
}

void grad_task(const Gru& l, int64_t task) {
  const ops::Sequence& s = l.seq;
  const int64_t n0 = task * l.panels.mr, n1 = std::min(s.batch, n0 + l.panels.mr);
  for (int64_t step = s.time - 1; step >= 0; --step) {
    const int64_t row = s.row(n0, step);
    const bool last = step == s.time - 1;
    if (!last)
      multiply(l.panels, {.m = n1 - n0,
                          .k = 3 * s.width,
                          .a = l.dzh.row(row - s.back()),
                          .a_row = s.time * l.dzh.pitch,
                          .b = l.w_t.data,
                          .b_step = l.w_t.pitch,
                          .y = l.dzx.data,
                          .y_pitch = l.dzx.pitch,
                          .first_row = row,
                          .row_step = s.time,
                          .epilogue = &l.epilogue});
    for (int64_t n = n0; n < n1; ++n) {
      const int64_t r = s.row(n, step);
      backward_row(l, last ? l.dh.row(r) : l.dzx.row(r), r, step == 0, last);
    }
  }
}

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(gru_task);
HWY_EXPORT(grad_task);

ops::Sequence sequence(const Call& call, const Operand& state) {
  return {state.shape()[0], state.shape()[1], state.cols(), call.attrs.flag("reverse")};
}
template <typename Run>
Work work(const Gru& l, Run run) {
  return {ceil_div(l.seq.batch, l.panels.mr), [l, run](int64_t task) { run(l, task); }};
}

Work bind_gru(const Call& call) {
  Gru l;
  l.seq = sequence(call, call.out[0]);
  l.panels = make_panels(3 * l.seq.width, false, l.seq.batch, call.tuning());
  l.zx = matrix(call.in[0]);
  l.w = matrix(call.in[1]);
  l.b = matrix(call.in[2]);
  l.h = matrix(call.out[0]);
  l.gates = matrix(call.out[1]);
  l.epilogue.count = 1;
  l.epilogue.words[0] = {ops::Epilogue::bias, l.b.data, 0};
  return work(l, &HWY_DYNAMIC_DISPATCH(gru_task));
}

Work bind_grad(const Call& call) {
  Gru l;
  l.seq = sequence(call, call.in[0]);
  l.panels = make_panels(l.seq.width, false, l.seq.batch, call.tuning());
  l.h = matrix(call.in[0]);
  l.gates = matrix(call.in[1]);
  l.w_t = matrix(call.in[2]);
  l.dh = matrix(call.in[3]);
  if (call.in.size() > 4) l.dgates = matrix(call.in[4]);
  l.dzx = matrix(call.out[0]);
  l.dzh = matrix(call.out[1]);
  l.epilogue.count = 1;
  l.epilogue.words[0] = {ops::Epilogue::residual, l.dh.data, l.dh.pitch};
  return work(l, &HWY_DYNAMIC_DISPATCH(grad_task));
}

}  // namespace

namespace kernels {
KernelList gru() {
  static constexpr Kernel kernels[] = {{"gru", bind_gru}, {"gru_grad", bind_grad}};
  return {kernels, {}};
}
}  // namespace kernels
}  // namespace situ::cpu
#endif
