// update.cpp -- the optimizers, one launch for all parameters of a group, in place.
//
//   sgd   g += decay * w;  m = momentum * m + g;  w -= lr * (nesterov ? g + momentum * m : m)
//   adam  m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g * g;  t = step + 1
//         w -= lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps);  decay: g += decay * w, or w *= 1 - lr *
//         decay
// Every member is cut into pieces of kPiece elements; a task is one piece. lr and step are device scalars.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels/update.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <algorithm>
#include <cmath>
#include <memory>

#include "backend/cpu/kernel.h"
#include "backend/cpu/simd-inl.h"
#include "base/error.h"

#ifndef SITU_BACKEND_CPU_UPDATE_ONCE_
#define SITU_BACKEND_CPU_UPDATE_ONCE_
namespace situ::cpu {
namespace {
// One row of pieces of a member's operands; sgd has no v, without momentum no m.
struct Piece {
  const float *w = nullptr, *g = nullptr, *m = nullptr, *v = nullptr;
  float *new_w = nullptr, *new_m = nullptr, *new_v = nullptr;
  int64_t count = 0;
};
struct Update {
  std::vector<Piece> pieces;
  const float *lr = nullptr, *step = nullptr;
  double momentum = 0, decay = 0, beta1 = 0, beta2 = 0, eps = 0;
  bool nesterov = false, decoupled = false;
};
}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

HWY_INLINE Floats constant(double value) { return fill(static_cast<float>(value)); }

void sgd_piece(const Update& u, int64_t task) {
  const Piece& p = u.pieces[static_cast<size_t>(task)];
  const Floats lr = fill(*u.lr), momentum = constant(u.momentum), decay = constant(u.decay);
  for (int64_t i = 0; i < p.count; i += lanes()) {
    const int64_t n = p.count - i;
    const Floats w = load_up_to(p.w + i, n), g = hn::MulAdd(decay, w, load_up_to(p.g + i, n));
    Floats step = g;
    if (p.m) {
      const Floats m = hn::MulAdd(momentum, load_up_to(p.m + i, n), g);
      store_up_to(m, p.new_m + i, n);
      step = u.nesterov ? hn::MulAdd(momentum, m, g) : m;
    }
    store_up_to(hn::NegMulAdd(lr, step, w), p.new_w + i, n);
  }
}

void adam_piece(const Update& u, int64_t task) {
  const Piece& p = u.pieces[static_cast<size_t>(task)];
  const double lr = static_cast<double>(*u.lr), t = static_cast<double>(*u.step) + 1;
  // 1 - beta^t without the cancellation at small t; in double, as PyTorch has it.
  const double correction1 = -std::expm1(t * std::log(u.beta1)), correction2 = -std::expm1(t * std::log(u.beta2));
  const Floats rate = constant(lr / correction1), root = constant(1 / std::sqrt(correction2)), eps = constant(u.eps);
  const Floats beta1 = constant(u.beta1), beta2 = constant(u.beta2);
  const Floats rest1 = constant(1 - u.beta1), rest2 = constant(1 - u.beta2);
  const Floats decay = constant(u.decoupled ? 0 : u.decay), shrink = constant(u.decoupled ? 1 - lr * u.decay : 1);
  for (int64_t i = 0; i < p.count; i += lanes()) {
    const int64_t n = p.count - i;
    const Floats w = load_up_to(p.w + i, n), g = hn::MulAdd(decay, w, load_up_to(p.g + i, n));
    const Floats m = hn::MulAdd(rest1, g, hn::Mul(beta1, load_up_to(p.m + i, n)));
    const Floats v = hn::MulAdd(hn::Mul(rest2, g), g, hn::Mul(beta2, load_up_to(p.v + i, n)));
    const Floats below = hn::MulAdd(hn::Sqrt(v), root, eps);
    store_up_to(hn::Sub(hn::Mul(w, shrink), hn::Div(hn::Mul(rate, m), below)), p.new_w + i, n);
    store_up_to(m, p.new_m + i, n);
    store_up_to(v, p.new_v + i, n);
  }
}

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(sgd_piece);
HWY_EXPORT(adam_piece);

constexpr int64_t kPiece = 16384;

// A member's operands by name; each is dense, or cut into its rows.
struct Member {
  const Operand *w, *g, *m, *v, *new_w, *new_m, *new_v;
};
bool dense(const Operand* o) { return !o || o->pitch == o->cols(); }
float* at(const Operand* o, int64_t row, int64_t col) { return o ? o->f32() + row * o->pitch + col : nullptr; }

void add_member(Update& u, const Member& x) {
  bool flat = true;
  for (const Operand* o : {x.w, x.g, x.m, x.v, x.new_w, x.new_m, x.new_v}) flat = flat && dense(o);
  const int64_t rows = flat ? 1 : x.w->rows(), cols = flat ? x.w->type.count() : x.w->cols();
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; c += kPiece)
      u.pieces.push_back({at(x.w, r, c), at(x.g, r, c), at(x.m, r, c), at(x.v, r, c), at(x.new_w, r, c),
                          at(x.new_m, r, c), at(x.new_v, r, c), std::min(kPiece, cols - c)});
}

template <typename Run>
Work work(std::shared_ptr<Update> u, Run run) {
  return {static_cast<int64_t>(u->pieces.size()), [u, run](int64_t task) { run(*u, task); }};
}

Work bind_sgd(const Call& call) {
  auto u = std::make_shared<Update>();
  u->lr = call.in[0].f32();
  u->momentum = call.attrs.number("momentum", 0);
  u->decay = call.attrs.number("decay", 0);
  u->nesterov = call.attrs.flag("nesterov");
  const size_t each = u->momentum != 0 ? 3 : 2;
  for (size_t i = 1, o = 0; i < call.in.size(); i += each, o += each - 1) {
    const Operand *m = each == 3 ? &call.in[i + 2] : nullptr, *new_m = each == 3 ? &call.out[o + 1] : nullptr;
    add_member(*u, {&call.in[i], &call.in[i + 1], m, nullptr, &call.out[o], new_m, nullptr});
  }
  return work(u, &HWY_DYNAMIC_DISPATCH(sgd_piece));
}

Work bind_adam(const Call& call) {
  auto u = std::make_shared<Update>();
  u->lr = call.in[0].f32();
  u->step = call.in[1].f32();
  u->beta1 = call.attrs.number("beta1");
  u->beta2 = call.attrs.number("beta2");
  u->eps = call.attrs.number("eps");
  u->decay = call.attrs.number("decay", 0);
  u->decoupled = call.attrs.flag("decoupled");
  for (size_t i = 2, o = 0; i < call.in.size(); i += 4, o += 3)
    add_member(*u, {&call.in[i], &call.in[i + 1], &call.in[i + 2], &call.in[i + 3], &call.out[o], &call.out[o + 1],
                    &call.out[o + 2]});
  return work(u, &HWY_DYNAMIC_DISPATCH(adam_piece));
}

}  // namespace

namespace kernels {
KernelList update() {
  static constexpr Kernel kernels[] = {{"sgd", bind_sgd}, {"adam", bind_adam}};
  return {kernels, {}};
}
}  // namespace kernels
}  // namespace situ::cpu
#endif
