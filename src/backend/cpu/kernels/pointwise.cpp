// pointwise.cpp -- every pointwise op, and chains of them fused into one node, run block by block in the L1 cache.
//
// The result's elements are cut into tasks, a task into blocks. For each block every step of the expression runs once
// over the whole block, from and to small buffers; only the first read and the last write touch memory. Operands that
// are one run of floats are read where they lie. Others (broadcast, pitched) are first gathered into a buffer, once per
// task if they repeat with a period that divides the block (scalars, a bias).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels/pointwise.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <string>

#include "backend/cpu/math-inl.h"
#include "backend/cpu/simd-inl.h"
#include "backend/cpu/strided.h"
#include "base/error.h"
#include "ops/expr.h"

#ifndef SITU_BACKEND_CPU_POINTWISE_ONCE_
#define SITU_BACKEND_CPU_POINTWISE_ONCE_
namespace situ::cpu {
namespace {

// clang-format off
#define SITU_POINTWISE_OPS(X)                                                                      \
  X(neg) X(exp) X(log) X(sqrt) X(rsqrt) X(reciprocal) X(abs) X(square)                             \
  X(relu) X(relu6) X(sigmoid) X(tanh) X(silu)                                                      \
  X(erf) X(gelu) X(gelu_slope) X(gelu_tanh) X(gelu_tanh_slope) X(softplus)                         \
  X(hard_sigmoid) X(hard_swish) X(hard_swish_slope)                                                \
  X(add) X(sub) X(mul) X(div) X(max) X(min) X(greater) X(equal) X(relu_mask) X(relu6_mask)         \
  X(leaky_relu) X(elu) X(select) X(normalize) X(norm_dx)
// clang-format on

enum class Opcode {
#define SITU_ENUM(name) op_##name,
  SITU_POINTWISE_OPS(SITU_ENUM)
#undef SITU_ENUM
};
constexpr size_t kMostArgs = 8;
using StepFunction = void (*)(const float* const* args, float* y, int64_t n);

}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

// One vector of an op; in(k) is that of operand k.
template <Opcode OP, class In>
HWY_INLINE Floats apply(const In& in) {
  const Floats a = in(0);
  if constexpr (OP == Opcode::op_neg) return hn::Neg(a);
  if constexpr (OP == Opcode::op_exp) return exp_of(a);
  if constexpr (OP == Opcode::op_log) return log_of(a);
  if constexpr (OP == Opcode::op_sqrt) return hn::Sqrt(a);
  if constexpr (OP == Opcode::op_rsqrt) return hn::Div(fill(1.0f), hn::Sqrt(a));
  if constexpr (OP == Opcode::op_reciprocal) return hn::Div(fill(1.0f), a);
  if constexpr (OP == Opcode::op_abs) return hn::Abs(a);
  if constexpr (OP == Opcode::op_square) return hn::Mul(a, a);
  if constexpr (OP == Opcode::op_relu) return relu_of(a);
  if constexpr (OP == Opcode::op_relu6) return relu6_of(a);
  if constexpr (OP == Opcode::op_sigmoid) return sigmoid_of(a);
  if constexpr (OP == Opcode::op_tanh) return tanh_of(a);
  if constexpr (OP == Opcode::op_silu) return hn::Mul(a, sigmoid_of(a));
  if constexpr (OP == Opcode::op_erf) return erf_of(a);
  if constexpr (OP == Opcode::op_gelu) return gelu_of(a);
  if constexpr (OP == Opcode::op_gelu_slope) return gelu_slope_of(a);
  if constexpr (OP == Opcode::op_gelu_tanh) return gelu_tanh_of(a);
  if constexpr (OP == Opcode::op_gelu_tanh_slope) return gelu_tanh_slope_of(a);
  if constexpr (OP == Opcode::op_softplus) return softplus_of(a);
  if constexpr (OP == Opcode::op_hard_sigmoid) return hard_sigmoid_of(a);
  if constexpr (OP == Opcode::op_hard_swish) return hn::Mul(a, hard_sigmoid_of(a));
  if constexpr (OP == Opcode::op_hard_swish_slope) return hard_swish_slope_of(a);
  if constexpr (OP == Opcode::op_add) return hn::Add(a, in(1));
  if constexpr (OP == Opcode::op_sub) return hn::Sub(a, in(1));
  if constexpr (OP == Opcode::op_mul) return hn::Mul(a, in(1));
  if constexpr (OP == Opcode::op_div) return hn::Div(a, in(1));
  if constexpr (OP == Opcode::op_max) return hn::Max(a, in(1));
  if constexpr (OP == Opcode::op_min) return hn::Min(a, in(1));
  if constexpr (OP == Opcode::op_greater) return hn::IfThenElseZero(hn::Gt(a, in(1)), fill(1.0f));
  if constexpr (OP == Opcode::op_equal) return hn::IfThenElseZero(hn::Eq(a, in(1)), fill(1.0f));
  if constexpr (OP == Opcode::op_relu_mask) return hn::IfThenElseZero(hn::Gt(in(1), zeros()), a);
  if constexpr (OP == Opcode::op_relu6_mask) return inside_six(in(1), a);
  if constexpr (OP == Opcode::op_leaky_relu) return hn::IfThenElse(hn::Gt(a, zeros()), a, hn::Mul(a, in(1)));
  if constexpr (OP == Opcode::op_elu) return hn::IfThenElse(hn::Gt(a, zeros()), a, hn::Mul(in(1), expm1_of(a)));
  if constexpr (OP == Opcode::op_select) return hn::IfThenElse(hn::Eq(a, zeros()), in(2), in(1));
  if constexpr (OP == Opcode::op_normalize) return hn::MulAdd(hn::Sub(a, in(1)), hn::Mul(in(2), in(3)), in(4));
  if constexpr (OP == Opcode::op_norm_dx) {
    const Floats rstd = in(3), normal = hn::Mul(hn::Sub(in(1), in(2)), rstd);
    return hn::Mul(hn::Mul(rstd, in(4)), hn::NegMulAdd(in(7), hn::MulAdd(normal, in(5), in(6)), a));
  }
}

// y may be any operand: each vector is read before it is written.
template <Opcode OP>
void run_step(const float* const* args, float* y, int64_t n) {
  const Tag d;
  int64_t i = 0;
  for (; i + lanes() <= n; i += lanes())
    hn::StoreU(apply<OP>([&](int k) HWY_ATTR { return hn::LoadU(d, args[k] + i); }), d, y + i);
  if (i == n) return;
  store_part(apply<OP>([&](int k) HWY_ATTR { return load_part(args[k] + i, n - i); }), y + i, n - i);
}

StepFunction step_function(Opcode op) {
  switch (op) {
#define SITU_CASE(name)   \
  case Opcode::op_##name: \
    return run_step<Opcode::op_##name>;
    SITU_POINTWISE_OPS(SITU_CASE)
#undef SITU_CASE
  }
  return nullptr;
}

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(step_function);

constexpr int64_t kScratchFloats = 8192;  // a task's buffers: they fill an L1 cache
constexpr int64_t kMostSlots = 64;
constexpr int64_t kLongestBlock = 1024, kShortestBlock = 128;
constexpr int64_t kBlocksPerTask = 16;

// A step's operand: an index into the table of pointers, which holds inputs, then literals, then buffers of steps.
struct Step {
  StepFunction run = nullptr;
  std::vector<int> args;
  int y = 0;
};
enum class Access { in_place, rolling, once, each_block };  // rolling: in place, again and again
struct Input {
  float* data = nullptr;
  Axes axes;
  Access access = Access::in_place;
  int64_t slot = -1;   // of the scratch, if gathered
  int64_t period = 0;  // if rolling
};
struct Program {
  std::vector<Input> inputs;
  Input output;
  std::vector<std::vector<float>> literals;  // a block of copies of each
  std::vector<Step> steps;
  int64_t count = 0, block = 0, task = 0;
  int64_t slots = 0, first_buffer = 0;  // pointer index of scratch slot 0
  int64_t result = 0;                   // pointer index of the result
};

Opcode opcode_of(std::string_view name) {
#define SITU_NAME(op) \
  if (name == #op) return Opcode::op_##op;
  SITU_POINTWISE_OPS(SITU_NAME)
#undef SITU_NAME
  SITU_ASSERT(false, "no pointwise op {}", name);
  return Opcode::op_neg;
}

// How often an input repeats; 0: not at all.
int64_t period_of(const Axes& axes) {
  if (is_constant(axes)) return 1;
  const bool repeats = axes.size() == 2 && axes[0].stride == 0 && axes[1].stride == 1;
  return repeats ? axes[1].extent : 0;
}

// Inputs that repeat, but seldom, are read where they lie if blocks can end where periods do.
void roll_long_periods(Program& p) {
  int64_t period = 0;
  for (const Input& input : p.inputs) {
    const int64_t own = input.access == Access::each_block ? period_of(input.axes) : 0;
    if (own > 0 && period > 0 && own != period) return;
    period = std::max(period, own);
  }
  const int64_t block = period / std::max<int64_t>(1, ceil_div(period, p.block));
  if (block < kShortestBlock || period % block != 0) return;
  p.block = block;
  for (Input& input : p.inputs) {
    if (input.access != Access::each_block || period_of(input.axes) != period) continue;
    input.access = Access::rolling;
    input.period = period;
  }
}

// The block: as long as the slots allow, and a multiple of the periods if that leaves it long enough.
void choose_block(Program& p) {
  p.block = std::min(kLongestBlock, kScratchFloats / std::max<int64_t>(p.slots, 1) / 16 * 16);
  int64_t period = 1;
  for (const Input& input : p.inputs) {
    const int64_t own = input.access == Access::in_place ? 0 : period_of(input.axes);
    if (own > 0 && std::lcm(period, own) * 2 <= p.block) period = std::lcm(period, own);
  }
  p.block = p.block / period * period;
  for (Input& input : p.inputs) {
    const int64_t own = input.access == Access::in_place ? 0 : period_of(input.axes);
    if (own > 0 && period % own == 0) input.access = Access::once;
  }
  if (period == 1) roll_long_periods(p);
  p.task = p.block * kBlocksPerTask;
}

Input bind_input(const Operand& operand, const Shape& to, int64_t& slots) {
  Input input{operand.f32(), collapsed(broadcast_axes(operand, to))};
  if (is_run(input.axes)) return input;
  input.access = Access::each_block;
  input.slot = slots++;
  return input;
}

// Buffers for steps, reused as soon as nobody reads them any more.
void place_steps(Program& p, const ops::Expr& expr, const std::vector<std::array<int, kMostArgs>>& literal_of) {
  const int steps = static_cast<int>(expr.steps.size());
  std::vector<int> last_use(expr.steps.size(), -1), where(expr.steps.size(), -1);
  for (int s = 0; s < steps; ++s)
    for (const ops::ExprArg& arg : expr.steps[static_cast<size_t>(s)].args)
      if (arg.kind == ops::ExprArg::step) last_use[static_cast<size_t>(arg.index)] = s;
  std::vector<int> free;
  for (int s = 0; s < steps; ++s) {
    const ops::ExprStep& from = expr.steps[static_cast<size_t>(s)];
    Step step;
    step.run = HWY_DYNAMIC_DISPATCH(step_function)(opcode_of(from.op->name));
    for (size_t a = 0; a < from.args.size(); ++a) {
      const ops::ExprArg& arg = from.args[a];
      step.args.push_back(arg.kind == ops::ExprArg::input  ? arg.index
                          : arg.kind == ops::ExprArg::step ? where[static_cast<size_t>(arg.index)]
                                                           : literal_of[static_cast<size_t>(s)][a]);
    }
    for (int t = 0; t < s; ++t)
      if (last_use[static_cast<size_t>(t)] == s) free.push_back(where[static_cast<size_t>(t)]);
    if (s + 1 == steps) {
      step.y = static_cast<int>(p.result);
    } else if (free.empty()) {
      step.y = static_cast<int>(p.first_buffer + p.slots++);
    } else {
      step.y = free.back();
      free.pop_back();
    }
    where[static_cast<size_t>(s)] = step.y;
    p.steps.push_back(step);
  }
}

std::shared_ptr<Program> make_program(const Call& call, const ops::Expr& expr) {
  auto p = std::make_shared<Program>();
  const Operand& y = call.out[0];
  p->count = y.type.count();
  for (const Operand& operand : call.in) p->inputs.push_back(bind_input(operand, y.shape(), p->slots));
  p->output = {y.f32(), collapsed(axes_of(y))};
  if (!is_run(p->output.axes)) {
    p->output.access = Access::each_block;
    p->output.slot = p->slots++;
  }
  std::vector<double> values;
  std::vector<std::array<int, kMostArgs>> literal_of(expr.steps.size());
  for (size_t s = 0; s < expr.steps.size(); ++s)
    for (size_t a = 0; a < expr.steps[s].args.size(); ++a)
      if (expr.steps[s].args[a].kind == ops::ExprArg::literal) {
        literal_of[s][a] = static_cast<int>(p->inputs.size() + values.size());
        values.push_back(expr.steps[s].args[a].value);
      }
  p->result = static_cast<int64_t>(p->inputs.size() + values.size());
  p->first_buffer = p->result + 1;
  place_steps(*p, expr, literal_of);
  SITU_ASSERT(p->slots <= kMostSlots && static_cast<int64_t>(values.size()) <= kMostSlots, "expression with {} buffers",
              p->slots);
  choose_block(*p);
  for (double value : values) p->literals.emplace_back(static_cast<size_t>(p->block), static_cast<float>(value));
  return p;
}

void gather(const Input& input, int64_t first, int64_t n, float* to) {
  each_run(input.axes, first, n, [&](int64_t done, int64_t offset, int64_t count, int64_t stride) {
    const float* from = input.data + offset;
    if (stride == 1)
      for (int64_t i = 0; i < count; ++i) to[done + i] = from[i];
    else
      for (int64_t i = 0; i < count; ++i) to[done + i] = from[i * stride];
  });
}
void scatter(const Input& output, int64_t first, int64_t n, const float* from) {
  each_run(output.axes, first, n, [&](int64_t done, int64_t offset, int64_t count, int64_t stride) {
    float* to = output.data + offset;
    for (int64_t i = 0; i < count; ++i) to[i * stride] = from[done + i];
  });
}

void run_task(const Program& p, int64_t task) {
  HWY_ALIGN float scratch[kScratchFloats];
  const int64_t begin = task * p.task, end = std::min(begin + p.task, p.count);
  float* pointers[12 + 2 * kMostSlots + 1 + kMostSlots];
  for (int64_t s = 0; s < p.slots; ++s) pointers[p.first_buffer + s] = scratch + s * p.block;
  for (size_t i = 0; i < p.literals.size(); ++i)
    pointers[p.inputs.size() + i] = const_cast<float*>(p.literals[i].data());
  for (int64_t first = begin; first < end; first += p.block) {
    const int64_t n = std::min(p.block, end - first);
    for (size_t i = 0; i < p.inputs.size(); ++i) {
      const Input& input = p.inputs[i];
      pointers[i] = input.access == Access::in_place  ? input.data + first
                    : input.access == Access::rolling ? input.data + first % input.period
                                                      : scratch + input.slot * p.block;
      if (input.access == Access::each_block || (input.access == Access::once && first == begin))
        gather(input, first, n, pointers[i]);
    }
    pointers[p.result] =
        p.output.access == Access::in_place ? p.output.data + first : scratch + p.output.slot * p.block;
    for (const Step& step : p.steps) {
      const float* args[kMostArgs];
      for (size_t a = 0; a < step.args.size(); ++a) args[a] = pointers[step.args[a]];
      step.run(args, pointers[step.y], n);
    }
    if (p.output.access != Access::in_place) scatter(p.output, first, n, pointers[p.result]);
  }
}

Work bind_expr(const Call& call, const ops::Expr& expr) {
  SITU_ASSERT(call.in.size() <= 12, "a fused node has at most 12 inputs");
  auto program = make_program(call, expr);
  return {ceil_div(program->count, program->task), [program](int64_t task) { run_task(*program, task); }};
}

Work bind_op(const Call& call, std::string_view name) {
  return bind_expr(call, ops::expr_of(name, call.attrs, static_cast<int>(call.in.size())));
}
#define SITU_BIND(name) \
  Work bind_##name(const Call& call) { return bind_op(call, #name); }
SITU_POINTWISE_OPS(SITU_BIND)
SITU_BIND(fused)
#undef SITU_BIND
Work bind_bias(const Call& call) { return bind_op(call, "add"); }

}  // namespace

namespace kernels {
KernelList pointwise() {
  static constexpr Kernel kernels[] = {
#define SITU_KERNEL(name) {#name, bind_##name},
      SITU_POINTWISE_OPS(SITU_KERNEL)
#undef SITU_KERNEL
          {"bias", bind_bias},
      {"fused", bind_fused}};
  return {kernels, {}};
}
}  // namespace kernels
}  // namespace situ::cpu
#endif
