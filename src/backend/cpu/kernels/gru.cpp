// gru.cpp -- a GRU layer and its gradient, all time steps in one launch.
//
//   gru       u = h_{t-1} w + b;  r, z = sigmoid(zx + u);  n = tanh(zx_n + r u_n);  h = (1 - z) n + z h
//   gru_grad  dh = dh_t + carry + dzh_{t+1} w^T;  dzx and dzh from the gates;  carry = dh z
// What lasts from step to step rests in the results: u in the first three quarters of gates; and in dzx, whose row of
// the next step holds its dh (first third) and carry (second third) until they are used up.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels/gru.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include "backend/cpu/math-inl.h"
#include "backend/cpu/recurrent-inl.h"
#include "backend/cpu/simd-inl.h"

#ifndef SITU_BACKEND_CPU_GRU_ONCE_
#define SITU_BACKEND_CPU_GRU_ONCE_
namespace situ::cpu {
namespace {
struct Gru : Recurrent {
  Matrix zx, h, gates;
  Matrix dgates, dzx, dzh;  // of the gradient; dgates may be missing
};
}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

// One row of u, which may lie in the gates' own place, becomes gates and output.
HWY_INLINE void forward_row(const Gru& l, const float* u, int64_t row, int64_t step) {
  const bool first = step == 0;
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

void gru_task(const Gru& l, int64_t task) { walk_steps<forward_row>(l, task); }

// dzx and dzh of one row from dh, whose sum with the next step's product lies at `dh_row` (perhaps dzx's own place).
HWY_INLINE void backward_row(const Gru& l, const float* dh_row, int64_t row, int64_t step) {
  const bool last = step == 0, first = step == l.seq.time - 1;  // the walk begins at the end
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

void grad_task(const Gru& l, int64_t task) { walk_steps<backward_row>(l, task); }

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(gru_task);
HWY_EXPORT(grad_task);

template <Form FORM>
Work bind_gru(const Call& call) {
  Gru l;
  l.seq = l.walk = ops::sequence_of(call.attrs, call.out[0].shape());
  set_product(l, FORM, call, call.out[0], call.in[1], 3 * l.seq.width, call.out[1], call.in[2]);
  l.zx = Matrix(call.in[0]);
  l.h = Matrix(call.out[0]);
  l.gates = Matrix(call.out[1]);
  return recurrent_work(l, &HWY_DYNAMIC_DISPATCH(gru_task));
}

template <Form FORM>
Work bind_grad(const Call& call) {
  Gru l;
  l.seq = ops::sequence_of(call.attrs, call.in[0].shape());
  l.walk = l.seq.turned();
  set_product(l, FORM, call, call.out[1], call.in[2], l.seq.width, call.out[0], call.in[3]);
  l.h = Matrix(call.in[0]);
  l.gates = Matrix(call.in[1]);
  if (call.in.size() > 4) l.dgates = Matrix(call.in[4]);
  l.dzx = Matrix(call.out[0]);
  l.dzh = Matrix(call.out[1]);
  return recurrent_work(l, &HWY_DYNAMIC_DISPATCH(grad_task));
}

constexpr std::string_view kForward[kForms] = {"gru_packed", "gru_paired", "gru_pieces"};
constexpr std::string_view kGradient[kForms] = {"gru_grad_packed", "gru_grad_paired", "gru_grad_pieces"};
template <Form FORM>
void expand_gru(device::Expansion& e) {
  expand_recurrent(e, kForward[static_cast<int>(FORM)], 1, false, FORM);
}
template <Form FORM>
void expand_grad(device::Expansion& e) {
  expand_recurrent(e, kGradient[static_cast<int>(FORM)], 2, true, FORM);
}

}  // namespace

namespace kernels {
KernelList gru() {
  using enum Form;
  static constexpr Kernel kernels[] = {{kForward[0], bind_gru<plain>},    {kForward[1], bind_gru<paired>},
                                       {kForward[2], bind_gru<pieces>},   {kGradient[0], bind_grad<plain>},
                                       {kGradient[1], bind_grad<paired>}, {kGradient[2], bind_grad<pieces>}};
  static constexpr device::Candidate candidates[] = {
      {"gru", "packed", nullptr, rank_packed, expand_gru<plain>},
      {"gru", "paired", accepts_fast<1, paired>, rank_fast, expand_gru<paired>},
      {"gru", "pieces", accepts_fast<1, pieces>, rank_fast, expand_gru<pieces>},
      {"gru_grad", "packed", nullptr, rank_packed, expand_grad<plain>},
      {"gru_grad", "paired", accepts_fast<2, paired>, rank_fast, expand_grad<paired>},
      {"gru_grad", "pieces", accepts_fast<2, pieces>, rank_fast, expand_grad<pieces>}};
  return {kernels, candidates};
}
}  // namespace kernels
}  // namespace situ::cpu
#endif
