// update.cpp -- the optimizers, one launch for all parameters of a group, in place. Rules: ops/defs/update.cpp.
//
// Every member is cut into pieces of kPiece elements; a task is one piece. A gradient that comes as factors is
// multiplied out for some rows at a time, which stay in the L1 cache. lr, step and the clipping factor are device
// scalars. square_sum_parts, which the factor comes from, walks groups of tensors in the same way.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels/update.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <hwy/cache_control.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "backend/cpu/kernel.h"
#include "backend/cpu/simd-inl.h"
#include "base/error.h"
#include "ops/update.h"

#ifndef SITU_BACKEND_CPU_UPDATE_ONCE_
#define SITU_BACKEND_CPU_UPDATE_ONCE_
namespace situ::cpu {
namespace {
constexpr size_t kMostSlots = ops::kMostSlots;
constexpr int64_t kPiece = 2048;          // elements
constexpr int64_t kRows = 4;              // of a product that are made together
constexpr int64_t kMostColumns = kPiece;  // of a row of a product, else it is cut

// Factors of a gradient: rows f[b] of `width` elements, a[b][r] and dy[b][n] in them.
struct Factors {
  const float *a = nullptr, *dy = nullptr;
  int64_t terms = 0, width = 0;
  int64_t rows = 0, columns = 0;  // of this piece
};

// The same stretch of all operands of a member.
struct Piece {
  double place = 0;  // of its middle, in its tensor: 0 to 1
  const float *w = nullptr, *g = nullptr, *slot[kMostSlots] = {};
  float *new_w = nullptr, *new_slot[kMostSlots] = {};
  int64_t count = 0;
  int64_t parts = 1, stride = 0;  // of the gradient: so many, elements from one to the next
  Factors factors;                // instead of g
};
struct Update {
  explicit Update(const ir::Attrs& attrs) : settings(attrs) {}
  ops::UpdateSettings settings;
  const float *lr = nullptr, *step = nullptr, *factor = nullptr;
  std::vector<Piece> pieces;
};
struct Squares {
  std::vector<std::pair<const float*, int64_t>> pieces;
  float* parts = nullptr;
};
}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

HWY_INLINE Floats constant(double value) { return fill(static_cast<float>(value)); }

// The gradient of some elements: its parts added up in order, scaled and clamped; a NaN stays one.
struct Gradient {
  const float* g;
  int64_t parts, stride;
  float factor, low, high;  // not vectors: those of SVE are no members
  bool clamps;
  HWY_INLINE Gradient(const Update& u, const Piece& p)
      : g(p.g),
        parts(p.parts),
        stride(p.stride),
        factor(u.factor ? *u.factor : 1.0f),
        low(static_cast<float>(-u.settings.clip_value)),
        high(static_cast<float>(u.settings.clip_value)),
        clamps(u.settings.clip_value > 0) {}
  HWY_INLINE Floats operator()(int64_t i, int64_t n) const {
    Floats sum = load_up_to(g + i, n);
    for (int64_t part = 1; part < parts; ++part) sum = hn::Add(sum, load_up_to(g + part * stride + i, n));
    return finish(sum);
  }
  HWY_INLINE Floats finish(Floats sum) const {
    const Floats scaled = hn::Mul(sum, fill(factor));
    return clamps ? at_most(fill(high), at_least(fill(low), scaled)) : scaled;
  }
};

// A pair of vectors of four rows of a product of few terms.
HWY_INLINE void product_of_four(const Factors& f, int64_t n, int64_t left, float* to, int64_t pitch) {
  const float *a = f.a, *dy = f.dy + n;
  const int64_t width = lanes(), second = left > width ? width : 0, rest = left - second;
  Floats s00 = zeros(), s01 = s00, s10 = s00, s11 = s00, s20 = s00, s21 = s00, s30 = s00, s31 = s00;
  for (int64_t b = 0; b < f.terms; ++b, a += f.width, dy += f.width) {
    const Floats x = load_up_to(dy, left), y = load_up_to(dy + second, rest);
    s00 = hn::MulAdd(fill(a[0]), x, s00), s01 = hn::MulAdd(fill(a[0]), y, s01);
    s10 = hn::MulAdd(fill(a[1]), x, s10), s11 = hn::MulAdd(fill(a[1]), y, s11);
    s20 = hn::MulAdd(fill(a[2]), x, s20), s21 = hn::MulAdd(fill(a[2]), y, s21);
    s30 = hn::MulAdd(fill(a[3]), x, s30), s31 = hn::MulAdd(fill(a[3]), y, s31);
  }
  const auto put = [&](int64_t row, Floats v, Floats w) HWY_ATTR {
    store_up_to(v, to + row * pitch, left);
    store_up_to(w, to + row * pitch + second, rest);
  };
  put(0, s00, s01), put(1, s10, s11), put(2, s20, s21), put(3, s30, s31);
}
HWY_INLINE void product_of_one(const Factors& f, int64_t row, int64_t n, int64_t left, float* to) {
  Floats sum = zeros();
  for (int64_t b = 0; b < f.terms; ++b)
    sum = hn::MulAdd(fill(f.a[b * f.width + row]), load_up_to(f.dy + b * f.width + n, left), sum);
  store_up_to(sum, to, left);
}

// Two vectors of all rows at a time: what the rule waits for goes on beside the next product. The same columns of the
// rows below are asked for meanwhile.
template <class Each>
HWY_INLINE void walk_product(const Piece& p, const Gradient& gradient, const Each& each) {
  const Factors& f = p.factors;
  const int64_t width = lanes(), pitch = 2 * width;
  HWY_ALIGN float sums[kRows * 2 * hn::MaxLanes(Tag())];
  for (int64_t n = 0; n < f.columns; n += pitch) {
    const int64_t left = std::min(f.columns - n, pitch);
    if (f.rows == kRows) product_of_four(f, n, left, sums, pitch);
    for (int64_t row = 0; row < f.rows; ++row)
      for (int64_t j = 0; j < left; j += width) {
        const int64_t i = row * f.columns + n + j;
        hwy::Prefetch(p.w + i + p.count);
        for (const float* slot : p.slot)
          if (slot) hwy::Prefetch(slot + i + p.count);
        float* const sum = sums + row * pitch + j;
        if (f.rows < kRows) product_of_one(f, row, n + j, left - j, sum);
        each(i, left - j, gradient.finish(load_up_to(sum, left - j)));
      }
  }
}

// Calls each(i, n, g) for all elements of a piece: from element i on, n of them at most, with the gradient g.
template <class Each>
HWY_INLINE void walk(const Update& u, const Piece& p, const Each& each) {
  const Gradient gradient(u, p);
  if (p.factors.terms) return walk_product(p, gradient, each);
  for (int64_t i = 0; i < p.count; i += lanes()) each(i, p.count - i, gradient(i, p.count - i));
}

void sgd_rule(const Update& u, const Piece& p) {
  const Floats lr = fill(*u.lr), momentum = constant(u.settings.momentum), decay = constant(u.settings.decay);
  walk(u, p, [&](int64_t i, int64_t n, Floats from) HWY_ATTR {
    const Floats w = load_up_to(p.w + i, n), g = hn::MulAdd(decay, w, from);
    Floats step = g;
    if (p.slot[0]) {
      const Floats m = hn::MulAdd(momentum, load_up_to(p.slot[0] + i, n), g);
      store_up_to(m, p.new_slot[0] + i, n);
      step = u.settings.nesterov ? hn::MulAdd(momentum, m, g) : m;
    }
    store_up_to(hn::NegMulAdd(lr, step, w), p.new_w + i, n);
  });
}

void adam_rule(const Update& u, const Piece& p) {
  const ops::UpdateSettings& s = u.settings;
  const double lr = static_cast<double>(*u.lr), t = static_cast<double>(*u.step) + 1;
  // 1 - beta^t without the cancellation at small t; in double, as PyTorch has it.
  const double correction1 = -std::expm1(t * std::log(s.beta1)), correction2 = -std::expm1(t * std::log(s.beta2));
  const Floats rate = constant(lr / correction1), root = constant(1 / std::sqrt(correction2)), eps = constant(s.eps);
  const Floats beta1 = constant(s.beta1), beta2 = constant(s.beta2);
  const Floats rest1 = constant(1 - s.beta1), rest2 = constant(1 - s.beta2);
  const Floats decay = constant(s.decoupled ? 0 : s.decay), shrink = constant(s.decoupled ? 1 - lr * s.decay : 1);
  walk(u, p, [&](int64_t i, int64_t n, Floats from) HWY_ATTR {
    const Floats w = load_up_to(p.w + i, n), g = hn::MulAdd(decay, w, from);
    const Floats m = hn::MulAdd(rest1, g, hn::Mul(beta1, load_up_to(p.slot[0] + i, n)));
    const Floats v = hn::MulAdd(hn::Mul(rest2, g), g, hn::Mul(beta2, load_up_to(p.slot[1] + i, n)));
    const Floats below = hn::MulAdd(hn::Sqrt(v), root, eps);
    store_up_to(hn::Sub(hn::Mul(w, shrink), hn::Div(hn::Mul(rate, m), below)), p.new_w + i, n);
    store_up_to(m, p.new_slot[0] + i, n);
    store_up_to(v, p.new_slot[1] + i, n);
  });
}

void rmsprop_rule(const Update& u, const Piece& p) {
  const ops::UpdateSettings& s = u.settings;
  const bool heavy = s.momentum != 0;
  const size_t of_mean = heavy ? 2 : 1;
  const Floats lr = fill(*u.lr), decay = constant(s.decay), momentum = constant(s.momentum), eps = constant(s.eps);
  const Floats alpha = constant(s.alpha), rest = constant(1 - s.alpha);
  walk(u, p, [&](int64_t i, int64_t n, Floats from) HWY_ATTR {
    const Floats w = load_up_to(p.w + i, n), g = hn::MulAdd(decay, w, from);
    Floats square = hn::MulAdd(hn::Mul(rest, g), g, hn::Mul(alpha, load_up_to(p.slot[0] + i, n)));
    store_up_to(square, p.new_slot[0] + i, n);
    if (s.centered) {
      const Floats mean = hn::MulAdd(rest, g, hn::Mul(alpha, load_up_to(p.slot[of_mean] + i, n)));
      store_up_to(mean, p.new_slot[of_mean] + i, n);
      square = relu_of(hn::NegMulAdd(mean, mean, square));
    }
    Floats step = hn::Div(g, hn::Add(hn::Sqrt(square), eps));
    if (heavy) {
      step = hn::MulAdd(momentum, load_up_to(p.slot[1] + i, n), step);
      store_up_to(step, p.new_slot[1] + i, n);
    }
    store_up_to(hn::NegMulAdd(lr, step, w), p.new_w + i, n);
  });
}

void adagrad_rule(const Update& u, const Piece& p) {
  const ops::UpdateSettings& s = u.settings;
  const Floats rate = constant(static_cast<double>(*u.lr) / (1 + static_cast<double>(*u.step) * s.lr_decay));
  const Floats decay = constant(s.decay), eps = constant(s.eps);
  walk(u, p, [&](int64_t i, int64_t n, Floats from) HWY_ATTR {
    const Floats w = load_up_to(p.w + i, n), g = hn::MulAdd(decay, w, from);
    const Floats sum = hn::MulAdd(g, g, load_up_to(p.slot[0] + i, n));
    store_up_to(sum, p.new_slot[0] + i, n);
    store_up_to(hn::Sub(w, hn::Div(hn::Mul(rate, g), hn::Add(hn::Sqrt(sum), eps))), p.new_w + i, n);
  });
}

void lion_rule(const Update& u, const Piece& p) {
  const ops::UpdateSettings& s = u.settings;
  const Floats lr = fill(*u.lr), shrink = constant(1 - static_cast<double>(*u.lr) * s.decay);
  const Floats beta1 = constant(s.beta1), beta2 = constant(s.beta2);
  const Floats rest1 = constant(1 - s.beta1), rest2 = constant(1 - s.beta2);
  walk(u, p, [&](int64_t i, int64_t n, Floats from) HWY_ATTR {
    const Floats g = from, m = load_up_to(p.slot[0] + i, n);
    const Floats towards = hn::MulAdd(rest1, g, hn::Mul(beta1, m));
    const Floats signed_rate = hn::IfThenElseZero(hn::Ne(towards, zeros()), hn::CopySign(lr, towards));
    const Floats step = hn::IfThenElse(hn::Eq(towards, towards), signed_rate, towards);  // a NaN shows
    store_up_to(hn::MulSub(load_up_to(p.w + i, n), shrink, step), p.new_w + i, n);
    store_up_to(hn::MulAdd(rest2, g, hn::Mul(beta2, m)), p.new_slot[0] + i, n);
  });
}

void ema_rule(const Update& u, const Piece& p) {
  const Floats decay = constant(u.settings.decay), rest = constant(1 - u.settings.decay);
  for (int64_t i = 0; i < p.count; i += lanes()) {
    const int64_t n = p.count - i;
    const Floats e = hn::MulAdd(rest, load_up_to(p.g + i, n), hn::Mul(decay, load_up_to(p.w + i, n)));
    store_up_to(e, p.new_w + i, n);
  }
}

template <void (*RULE)(const Update&, const Piece&)>
void run_piece(const Update& u, int64_t task) {
  RULE(u, u.pieces[static_cast<size_t>(task)]);
}
void sgd_piece(const Update& u, int64_t task) { run_piece<sgd_rule>(u, task); }
void adam_piece(const Update& u, int64_t task) { run_piece<adam_rule>(u, task); }
void rmsprop_piece(const Update& u, int64_t task) { run_piece<rmsprop_rule>(u, task); }
void adagrad_piece(const Update& u, int64_t task) { run_piece<adagrad_rule>(u, task); }
void lion_piece(const Update& u, int64_t task) { run_piece<lion_rule>(u, task); }
void ema_piece(const Update& u, int64_t task) { run_piece<ema_rule>(u, task); }

// Sums of sums of a few terms: a long chain would lose digits, and where a vector is one float a piece is long.
void square_piece(const Squares& s, int64_t task) {
  const auto [x, count] = s.pieces[static_cast<size_t>(task)];
  Floats sum = zeros();
  for (int64_t i = 0; i < count;) {
    Floats blocks = zeros();
    for (int b = 0; b < 16 && i < count; ++b) {
      Floats block = zeros();
      for (int k = 0; k < 16 && i < count; ++k, i += lanes()) {
        const Floats v = load_up_to(x + i, count - i);
        block = hn::MulAdd(v, v, block);
      }
      blocks = hn::Add(blocks, block);
    }
    sum = hn::Add(sum, blocks);
  }
  s.parts[task] = sum_lanes(sum);
}

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(sgd_piece);
HWY_EXPORT(adam_piece);
HWY_EXPORT(rmsprop_piece);
HWY_EXPORT(adagrad_piece);
HWY_EXPORT(lion_piece);
HWY_EXPORT(ema_piece);
HWY_EXPORT(square_piece);

// A skipped step: everything stays.
void keep_piece(const Update& u, int64_t task) {
  const Piece& p = u.pieces[static_cast<size_t>(task)];
  if (p.new_w != p.w) std::copy_n(p.w, p.count, p.new_w);
  for (size_t k = 0; k < kMostSlots; ++k)
    if (p.slot[k] && p.new_slot[k] != p.slot[k]) std::copy_n(p.slot[k], p.count, p.new_slot[k]);
}

void need_dense(const Operand& o) {
  SITU_ASSERT(o.pitch == o.cols() || o.rows() == 1, "operands of an update are dense");
}

// in: w, g, slots; out: w, slots. Elements [start, start + count) of them.
Piece piece_of(std::span<const Operand> in, std::span<const Operand> out, int64_t start, int64_t count) {
  Piece p;
  p.w = in[0].f32() + start;
  p.new_w = out[0].f32() + start;
  for (size_t k = 0; k + 1 < out.size(); ++k) {
    p.slot[k] = in[2 + k].f32() + start;
    p.new_slot[k] = out[1 + k].f32() + start;
  }
  p.count = count;
  const auto all = static_cast<double>(in[0].type.count());
  p.place = (static_cast<double>(start) + 0.5 * static_cast<double>(count)) / all;
  return p;
}

// Pieces of whole rows, or of one where they are long.
void add_product(Update& u, std::span<const Operand> in, std::span<const Operand> out, int64_t terms) {
  const int64_t rows = in[0].rows(), columns = in[0].cols(), width = rows + columns;
  const int64_t step = columns <= kMostColumns ? kRows : 1, most = std::min(columns, kMostColumns);
  const float* f = in[1].f32();
  for (int64_t row = 0; row < rows; row += step)
    for (int64_t n = 0; n < columns; n += most) {
      const int64_t count = std::min(step, rows - row), wide = std::min(most, columns - n);
      Piece p = piece_of(in, out, row * columns + n, count * wide);
      p.factors = {f + row, f + rows + n, terms, width, count, wide};
      u.pieces.push_back(p);
    }
}

void add_member(Update& u, std::span<const Operand> in, std::span<const Operand> out) {
  for (const Operand& o : in) need_dense(o);
  for (const Operand& o : out) need_dense(o);
  const int64_t terms = ops::gradient_factors(in[1].type, in[0].type), count = in[0].type.count();
  if (terms && in[0].shape().rank() == 2) return add_product(u, in, out, terms);
  for (int64_t c = 0; c < count; c += kPiece) {
    Piece p = piece_of(in, out, c, std::min(kPiece, count - c));
    p.g = in[1].f32() + c + (terms ? in[1].cols() - count : 0);  // of factors, the last columns
    p.parts = terms ? terms : ops::gradient_parts(in[1].type, in[0].type);
    p.stride = terms ? in[1].cols() : count;
    u.pieces.push_back(p);
  }
}

template <typename Run>
Work bind_update(const Call& call, std::string_view op, Run run) {
  const ops::UpdateLayout layout = ops::update_layout(op, call.attrs);
  auto u = std::make_shared<Update>(call.attrs);
  size_t next = 0;
  if (layout.lr) u->lr = call.in[next++].f32();
  if (layout.step) u->step = call.in[next++].f32();
  if (layout.clipped) u->factor = call.in[next++].f32();
  const auto each = static_cast<size_t>(layout.each()), results = static_cast<size_t>(layout.results());
  const std::span<const Operand> in(call.in), out(call.out);
  for (size_t i = next, o = 0; i < in.size(); i += each, o += results)
    add_member(*u, in.subspan(i, each), out.subspan(o, results));
  // By where they lie in their tensors: what computes a gradient cuts it in this order, so most of it is in the cache
  // of the core that takes it here.
  std::ranges::stable_sort(u->pieces, {}, &Piece::place);
  return {static_cast<int64_t>(u->pieces.size()), [u, run](int64_t task) {
            const bool skips = u->settings.guarded && *u->factor == 0;
            skips ? keep_piece(*u, task) : run(*u, task);
          }};
}

Work bind_sgd(const Call& call) { return bind_update(call, "sgd", &HWY_DYNAMIC_DISPATCH(sgd_piece)); }
Work bind_adam(const Call& call) { return bind_update(call, "adam", &HWY_DYNAMIC_DISPATCH(adam_piece)); }
Work bind_rmsprop(const Call& call) { return bind_update(call, "rmsprop", &HWY_DYNAMIC_DISPATCH(rmsprop_piece)); }
Work bind_adagrad(const Call& call) { return bind_update(call, "adagrad", &HWY_DYNAMIC_DISPATCH(adagrad_piece)); }
Work bind_lion(const Call& call) { return bind_update(call, "lion", &HWY_DYNAMIC_DISPATCH(lion_piece)); }
Work bind_ema(const Call& call) { return bind_update(call, "ema", &HWY_DYNAMIC_DISPATCH(ema_piece)); }

Work bind_squares(const Call& call) {
  auto s = std::make_shared<Squares>();
  const int64_t piece = call.attrs.integer("piece");
  for (const Operand& x : call.in) {
    need_dense(x);
    for (int64_t i = 0; i < x.type.count(); i += piece)
      s->pieces.push_back({x.f32() + i, std::min(piece, x.type.count() - i)});
  }
  s->parts = call.out[0].f32();
  const auto run = &HWY_DYNAMIC_DISPATCH(square_piece);
  return {static_cast<int64_t>(s->pieces.size()), [s, run](int64_t task) { run(*s, task); }};
}

}  // namespace

namespace kernels {
KernelList update() {
  static constexpr Kernel kernels[] = {{"sgd", bind_sgd},
                                       {"adam", bind_adam},
                                       {"rmsprop", bind_rmsprop},
                                       {"adagrad", bind_adagrad},
                                       {"lion", bind_lion},
                                       {"ema", bind_ema},
                                       {"square_sum_parts", bind_squares},
                                       {"sgd_factors", bind_sgd},
                                       {"adam_factors", bind_adam},
                                       {"rmsprop_factors", bind_rmsprop},
                                       {"adagrad_factors", bind_adagrad},
                                       {"lion_factors", bind_lion}};
  return {kernels, {}};
}
}  // namespace kernels
}  // namespace situ::cpu
#endif
