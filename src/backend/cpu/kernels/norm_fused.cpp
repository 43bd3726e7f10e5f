// norm_fused.cpp -- a batch norm in one launch, forward or backward: ops/norm_fused.h, for the functions that networks
// have.
//
//   y  = act(normalize(x, mean, rstd, gamma, beta) + residual)      with or without residual, relu or relu6
//   dx = norm_dx(dy, x, mean, rstd, gamma, dgamma, dbeta, 1 / n) + residual
// A task owns a few columns over all rows: it takes their statistics, and goes over its rows again while they are near.
// Other functions, and few columns, are done apart.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels/norm_fused.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <optional>

#include "backend/cpu/columns-inl.h"
#include "backend/cpu/norm_columns.h"
#include "base/error.h"
#include "ops/expr.h"
#include "ops/norm_fused.h"

#ifndef SITU_BACKEND_CPU_NORM_FUSED_ONCE_
#define SITU_BACKEND_CPU_NORM_FUSED_ONCE_
namespace situ::cpu {
namespace {

enum class Act { none, relu, relu6 };

struct FusedWork {
  Matrix x, dy, residual, y;
  int64_t rows = 0, cols = 0, width = 0;  // width: columns of a task
  const float *gamma = nullptr, *beta = nullptr;
  float* statistics[3] = {};                                 // results: mean, var, rstd; or dgamma, dbeta
  const float *given_mean = nullptr, *given_rstd = nullptr;  // backward
  float eps = 0, inv_n = 0;
  Act act = Act::none;
};

}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

template <Act ACT>
HWY_INLINE Floats activated(Floats v) {
  if constexpr (ACT == Act::relu) return relu_of(v);
  if constexpr (ACT == Act::relu6) return relu6_of(v);
  return v;
}

// One vector of columns from `col` on, of which the first n count; y may lie where an operand does.
template <bool RESIDUAL, Act ACT>
void normalize_columns(const FusedWork& w, int64_t col, int64_t n) {
  const Floats mean = load_up_to(w.statistics[0] + col, n), beta = load_up_to(w.beta + col, n);
  const Floats scale = hn::Mul(load_up_to(w.statistics[2] + col, n), load_up_to(w.gamma + col, n));
  for (int64_t r = 0; r < w.rows; ++r) {
    Floats v = hn::MulAdd(hn::Sub(load_up_to(w.x.at(r, col), n), mean), scale, beta);
    if constexpr (RESIDUAL) v = hn::Add(v, load_up_to(w.residual.at(r, col), n));
    store_up_to(activated<ACT>(v), w.y.at(r, col), n);
  }
}

template <bool RESIDUAL>
void gradient_columns(const FusedWork& w, int64_t col, int64_t n) {
  const Floats mean = load_up_to(w.given_mean + col, n), rstd = load_up_to(w.given_rstd + col, n);
  const Floats inv_n = fill(w.inv_n), scale = hn::Mul(rstd, load_up_to(w.gamma + col, n));
  const Floats slope = hn::Mul(hn::Mul(inv_n, rstd), load_up_to(w.statistics[0] + col, n));
  const Floats shift = hn::Mul(inv_n, load_up_to(w.statistics[1] + col, n));
  for (int64_t r = 0; r < w.rows; ++r) {
    const Floats centred = hn::Sub(load_up_to(w.x.at(r, col), n), mean);
    Floats v = hn::Mul(scale, hn::NegMulAdd(centred, slope, hn::Sub(load_up_to(w.dy.at(r, col), n), shift)));
    if constexpr (RESIDUAL) v = hn::Add(v, load_up_to(w.residual.at(r, col), n));
    store_up_to(v, w.y.at(r, col), n);
  }
}

template <bool RESIDUAL>
void normalize_with(const FusedWork& w, int64_t col, int64_t n) {
  if (w.act == Act::relu) return normalize_columns<RESIDUAL, Act::relu>(w, col, n);
  if (w.act == Act::relu6) return normalize_columns<RESIDUAL, Act::relu6>(w, col, n);
  normalize_columns<RESIDUAL, Act::none>(w, col, n);
}

void moments_fused_task(const FusedWork& w, int64_t task) {
  const int64_t begin = task * w.width, end = std::min(begin + w.width, w.cols);
  Moments m;
  column_moments(w.x.at(0, begin), w.x.pitch, w.rows, end - begin, m);
  finish_moments(m, w.eps, end - begin, w.statistics[0] + begin, w.statistics[1] + begin, w.statistics[2] + begin);
  for (int64_t c = begin; c < end; c += lanes())
    w.residual ? normalize_with<true>(w, c, end - c) : normalize_with<false>(w, c, end - c);
}

void norm_sums_fused_task(const FusedWork& w, int64_t task) {
  const int64_t begin = task * w.width, end = std::min(begin + w.width, w.cols), n = end - begin;
  HWY_ALIGN float products[kNormBuffer] = {}, plain[kNormBuffer] = {}, shift[kNormBuffer] = {};
  std::copy_n(w.given_mean + begin, n, shift);
  column_sums(w.x, w.dy, 0, w.rows, begin, n, shift, products, plain);
  for (int64_t c = 0; c < n; ++c) {
    w.statistics[0][begin + c] = products[c] * w.given_rstd[begin + c];
    w.statistics[1][begin + c] = plain[c];
  }
  for (int64_t c = begin; c < end; c += lanes())
    w.residual ? gradient_columns<true>(w, c, end - c) : gradient_columns<false>(w, c, end - c);
}

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(moments_fused_task);
HWY_EXPORT(norm_sums_fused_task);

using ops::ExprArg;
using ops::NormFused;

// The function as this kernel knows it; operands of the node by their places.
struct Function {
  int gamma = -1, beta = -1, residual = -1;
  double inv_n = 0;
  Act act = Act::none;
};

bool is_input(const ExprArg& arg, int index) { return arg.kind == ExprArg::input && arg.index == index; }
bool is_step(const ExprArg& arg, size_t index) {
  return arg.kind == ExprArg::step && arg.index == static_cast<int>(index);
}
// The operand of the node, behind those of its statistics, that stands in this place; -1 if none does.
int other_operand(const ExprArg& arg, const NormFused& form) {
  return arg.kind == ExprArg::input && arg.index >= form.operands + 2 ? arg.index - 2 : -1;
}

bool reads_norm(const ops::ExprStep& step, const NormFused& form, Function& f) {
  const auto inputs = [&](std::initializer_list<std::pair<size_t, int>> wanted) {
    for (auto [place, index] : wanted)
      if (!is_input(step.args[place], index)) return false;
    return true;
  };
  if (form.statistics == "moments") {
    if (step.op->name != "normalize" || !inputs({{0, 0}, {1, 1}, {2, 2}})) return false;
    f.gamma = other_operand(step.args[3], form);
    f.beta = other_operand(step.args[4], form);
    return f.gamma >= 0 && f.beta >= 0;
  }
  if (step.op->name != "norm_dx" || !inputs({{0, 1}, {1, 0}, {2, 2}, {3, 3}, {5, 4}, {6, 5}})) return false;
  f.gamma = other_operand(step.args[4], form);
  f.inv_n = step.args[7].value;
  return f.gamma >= 0 && step.args[7].kind == ExprArg::literal;
}

std::optional<Function> function_of(const ops::Expr& expr, const NormFused& form) {
  Function f;
  if (!reads_norm(expr.steps[0], form, f)) return {};
  for (size_t s = 1; s < expr.steps.size(); ++s) {
    const ops::ExprStep& step = expr.steps[s];
    const bool before = f.act == Act::none && f.residual < 0;
    if (step.op->name == "add" && before && (is_step(step.args[0], s - 1) || is_step(step.args[1], s - 1))) {
      f.residual = other_operand(step.args[is_step(step.args[0], s - 1) ? 1 : 0], form);
      if (f.residual < 0) return {};
    } else if (form.statistics == "moments" && f.act == Act::none && is_step(step.args[0], s - 1) &&
               (step.op->name == "relu" || step.op->name == "relu6")) {
      f.act = step.op->name == "relu" ? Act::relu : Act::relu6;
    } else {
      return {};
    }
  }
  return f;
}

// Columns of a task: whole lines of a cache, more of them where enough tasks remain.
int64_t task_columns(int64_t cols) {
  return cols >= 1024 ? kNormColumns : cols >= 512 ? kNormColumns / 2 : kNormColumns / 4;
}

Work bind(const Call& call, std::string_view op) {
  const NormFused& form = ops::norm_fused_form(op);
  const std::optional<Function> f = function_of(ops::parse_expr(call.attrs.text("expr")), form);
  SITU_ASSERT(f, "{} with a function that is no norm's", op);
  const auto operand = [&](int i) { return call.in[static_cast<size_t>(i)]; };
  FusedWork w;
  w.x = Matrix(call.in[0]);
  w.y = Matrix(call.out[0]);
  w.rows = call.in[0].rows();
  w.cols = call.in[0].cols();
  w.width = task_columns(w.cols);
  w.gamma = operand(f->gamma).f32();
  if (f->beta >= 0) w.beta = operand(f->beta).f32();
  if (f->residual >= 0) w.residual = Matrix(operand(f->residual));
  w.act = f->act;
  for (size_t i = 1; i < call.out.size(); ++i) w.statistics[i - 1] = call.out[i].f32();
  const bool moments = form.statistics == "moments";
  if (moments) {
    w.eps = static_cast<float>(call.attrs.number("eps"));
  } else {
    w.dy = Matrix(call.in[1]);
    w.given_mean = call.in[2].f32();
    w.given_rstd = call.in[3].f32();
    w.inv_n = static_cast<float>(f->inv_n);
  }
  const auto run = moments ? &HWY_DYNAMIC_DISPATCH(moments_fused_task) : &HWY_DYNAMIC_DISPATCH(norm_sums_fused_task);
  return {ceil_div(w.cols, w.width), [w, run](int64_t task) { run(w, task); }};
}
Work bind_moments(const Call& call) { return bind(call, "moments_fused"); }
Work bind_sums(const Call& call) { return bind(call, "norm_sums_fused"); }

// --- one launch, or apart ---
// A task's columns lie a row apart, and are read twice. That is faster while x is near: forward as long as it fits a
// second-level cache with its result, backward, where two images are read twice, longer.
constexpr int64_t kFewestTasks = 6, kMostForward = 262144, kMostBackward = 1 << 20;  // elements of x

bool by_column(const Type& operand, const Type& x) {
  return operand.count() == x.shape.cols() && operand.shape.cols() == x.shape.cols();
}

bool accepts_one(const ops::OpView& v, const device::Target&) {
  const Type& x = v.in(0);
  if (ceil_div(x.shape.cols(), task_columns(x.shape.cols())) < kFewestTasks) return false;
  const std::optional<Function> f = function_of(ops::parse_expr(v.attrs.text("expr")), ops::norm_fused_form(v.op));
  return f && by_column(v.in(f->gamma), x) && (f->beta < 0 || by_column(v.in(f->beta), x)) &&
         (f->residual < 0 || v.in(f->residual) == x);
}
double one_seconds(const ops::OpView& v, const device::Target&) {
  return v.in(0).count() <= (v.op == "moments_fused" ? kMostForward : kMostBackward) ? 1 : 3;
}
double apart_seconds(const ops::OpView&, const device::Target&) { return 2; }

void expand_one(device::Expansion& e) { e.launch_op(e.view().op, e.inputs()); }

void expand_apart(device::Expansion& e) { device::expand_norm_apart(e, statistics_parts); }

}  // namespace

namespace kernels {
KernelList norm_fused() {
  static constexpr Kernel kernels[] = {{"moments_fused", bind_moments}, {"norm_sums_fused", bind_sums}};
  static constexpr device::Candidate candidates[] = {
      {"moments_fused", "one_launch", accepts_one, one_seconds, expand_one},
      {"moments_fused", "apart", nullptr, apart_seconds, expand_apart},
      {"norm_sums_fused", "one_launch", accepts_one, one_seconds, expand_one},
      {"norm_sums_fused", "apart", nullptr, apart_seconds, expand_apart}};
  return {kernels, candidates};
}
}  // namespace kernels
}  // namespace situ::cpu
#endif
