// lstm.cpp -- an LSTM layer and its gradient, all time steps in one launch.
//
//   lstm       a = z_t + h_{t-1} w;  i, f, o = sigmoid(a), g = tanh(a);  c = f c + i g;  h = o tanh(c)
//   lstm_grad  dh = dh_t + dz_{t+1} w^T;  dc = dc_t + carry + dh o (1 - tanh(c)^2);  dz from the gates;  carry = dc f
// What lasts from step to step rests in the results: h and c; and in dz, whose row of the next step holds its dh (first
// quarter) and carry (second quarter) until they are used up.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels/lstm.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include "backend/cpu/math-inl.h"
#include "backend/cpu/recurrent-inl.h"
#include "backend/cpu/simd-inl.h"

#ifndef SITU_BACKEND_CPU_LSTM_ONCE_
#define SITU_BACKEND_CPU_LSTM_ONCE_
namespace situ::cpu {
namespace {
struct Lstm : Recurrent {
  Matrix h, c, gates;
  Matrix dc, dgates, dz;  // of the gradient; dc and dgates may be missing
};
}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

// One row of the gates' sums becomes gates, state and output.
HWY_INLINE void forward_row(const Lstm& l, const float* sums, int64_t row, int64_t step) {
  const bool first = step == 0;
  const int64_t width = l.seq.width;
  float *gate = l.gates.row(row), *c = l.c.row(row), *h = l.h.row(row);
  const float* c_before = first ? nullptr : l.c.row(row + l.seq.back());
  for (int64_t j = 0; j < width; j += lanes()) {
    const int64_t n = width - j;
    const Floats i = sigmoid_of(load_up_to(sums + j, n)), f = sigmoid_of(load_up_to(sums + width + j, n));
    const Floats g = tanh_of(load_up_to(sums + 2 * width + j, n)), o = sigmoid_of(load_up_to(sums + 3 * width + j, n));
    const Floats kept = first ? zeros() : hn::Mul(f, load_up_to(c_before + j, n));
    const Floats state = hn::MulAdd(i, g, kept);
    store_up_to(i, gate + j, n);
    store_up_to(f, gate + width + j, n);
    store_up_to(g, gate + 2 * width + j, n);
    store_up_to(o, gate + 3 * width + j, n);
    store_up_to(state, c + j, n);
    store_up_to(hn::Mul(o, tanh_of(state)), h + j, n);
  }
}

void lstm_task(const Lstm& l, int64_t task) { walk_steps<forward_row>(l, task); }

// dz of one row from dh, whose sum with the next step's part lies at `dh` (perhaps dz's own first quarter).
HWY_INLINE void backward_row(const Lstm& l, const float* dh_row, int64_t row, int64_t step) {
  const bool last = step == 0, first = step == l.seq.time - 1;  // the walk begins at the end
  const int64_t width = l.seq.width;
  const float *gate = l.gates.row(row), *c = l.c.row(row);
  const float* c_before = first ? nullptr : l.c.row(row + l.seq.back());
  float *dz = l.dz.row(row), *carry_on = first ? nullptr : l.dz.row(row + l.seq.back()) + width;
  for (int64_t j = 0; j < width; j += lanes()) {
    const int64_t n = width - j;
    const auto arrived = [&](const Matrix& m, int64_t col)
                             HWY_ATTR { return m ? load_up_to(m.row(row) + col + j, n) : zeros(); };
    const Floats i = load_up_to(gate + j, n), f = load_up_to(gate + width + j, n);
    const Floats g = load_up_to(gate + 2 * width + j, n), o = load_up_to(gate + 3 * width + j, n);
    const Floats tanh_c = tanh_of(load_up_to(c + j, n)), dh = load_up_to(dh_row + j, n);
    const Floats carry = last ? zeros() : load_up_to(dz + width + j, n);
    const Floats dc = hn::MulAdd(hn::Mul(dh, o), slope_of_tanh(tanh_c), hn::Add(arrived(l.dc, 0), carry));
    const Floats before = first ? zeros() : load_up_to(c_before + j, n);
    const Floats di = hn::MulAdd(dc, g, arrived(l.dgates, 0)), df = hn::MulAdd(dc, before, arrived(l.dgates, width));
    const Floats dg = hn::MulAdd(dc, i, arrived(l.dgates, 2 * width));
    const Floats d_o = hn::MulAdd(dh, tanh_c, arrived(l.dgates, 3 * width));
    store_up_to(hn::Mul(di, slope_of_sigmoid(i)), dz + j, n);
    store_up_to(hn::Mul(df, slope_of_sigmoid(f)), dz + width + j, n);
    store_up_to(hn::Mul(dg, slope_of_tanh(g)), dz + 2 * width + j, n);
    store_up_to(hn::Mul(d_o, slope_of_sigmoid(o)), dz + 3 * width + j, n);
    if (!first) store_up_to(hn::Mul(dc, f), carry_on + j, n);
  }
}

void grad_task(const Lstm& l, int64_t task) { walk_steps<backward_row>(l, task); }

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(lstm_task);
HWY_EXPORT(grad_task);

template <Form FORM>
Work bind_lstm(const Call& call) {
  Lstm l;
  l.seq = l.walk = ops::sequence_of(call.attrs, call.out[0].shape());
  set_product(l, FORM, call, call.out[0], call.in[1], 4 * l.seq.width, call.out[2], call.in[0]);
  l.h = Matrix(call.out[0]);
  l.c = Matrix(call.out[1]);
  l.gates = Matrix(call.out[2]);
  return recurrent_work(l, &HWY_DYNAMIC_DISPATCH(lstm_task));
}

template <Form FORM>
Work bind_grad(const Call& call) {
  Lstm l;
  l.seq = ops::sequence_of(call.attrs, call.in[0].shape());
  l.walk = l.seq.turned();
  set_product(l, FORM, call, call.out[0], call.in[2], l.seq.width, call.out[0], call.in[3]);
  l.c = Matrix(call.in[0]);
  l.gates = Matrix(call.in[1]);
  if (call.in.size() > 4) l.dc = Matrix(call.in[4]);
  if (call.in.size() > 5) l.dgates = Matrix(call.in[5]);
  l.dz = Matrix(call.out[0]);
  return recurrent_work(l, &HWY_DYNAMIC_DISPATCH(grad_task));
}

constexpr std::string_view kForward[kForms] = {"lstm_packed", "lstm_paired", "lstm_pieces"};
constexpr std::string_view kGradient[kForms] = {"lstm_grad_packed", "lstm_grad_paired", "lstm_grad_pieces"};
template <Form FORM>
void expand_lstm(device::Expansion& e) {
  expand_recurrent(e, kForward[static_cast<int>(FORM)], 1, false, FORM);
}
template <Form FORM>
void expand_grad(device::Expansion& e) {
  expand_recurrent(e, kGradient[static_cast<int>(FORM)], 2, true, FORM);
}

}  // namespace

namespace kernels {
KernelList lstm() {
  using enum Form;
  static constexpr Kernel kernels[] = {{kForward[0], bind_lstm<plain>},   {kForward[1], bind_lstm<paired>},
                                       {kForward[2], bind_lstm<pieces>},  {kGradient[0], bind_grad<plain>},
                                       {kGradient[1], bind_grad<paired>}, {kGradient[2], bind_grad<pieces>}};
  static constexpr device::Candidate candidates[] = {
      {"lstm", "packed", nullptr, rank_packed, expand_lstm<plain>},
      {"lstm", "paired", accepts_fast<1, paired>, rank_fast, expand_lstm<paired>},
      {"lstm", "pieces", accepts_fast<1, pieces>, rank_fast, expand_lstm<pieces>},
      {"lstm_grad", "packed", nullptr, rank_packed, expand_grad<plain>},
      {"lstm_grad", "paired", accepts_fast<2, paired>, rank_fast, expand_grad<paired>},
      {"lstm_grad", "pieces", accepts_fast<2, pieces>, rank_fast, expand_grad<pieces>}};
  return {kernels, candidates};
}
}  // namespace kernels
}  // namespace situ::cpu
#endif
