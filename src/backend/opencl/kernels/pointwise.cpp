// pointwise.cpp -- every pointwise op, `fused` and `bias`: the expression becomes source before pointwise.cl.
//
// One program per expression and pattern of stretched inputs; shapes and strides are arguments.
#include <fmt/args.h>

#include <cmath>
#include <map>

#include "backend/opencl/kernels/axes.h"
#include "ops/expr.h"

namespace situ::opencl::kernels {
namespace {

// {0}, {1}, ... are the operands, all of type fv; a comparison of vectors yields a vector that ?: selects by.
std::string_view formula_of(std::string_view op) {
  static const std::map<std::string_view, std::string_view> formulas = {
      {"neg", "-{0}"},
      {"exp", "exp({0})"},
      {"log", "log({0})"},
      {"sqrt", "sqrt({0})"},
      {"rsqrt", "rsqrt({0})"},
      {"reciprocal", "(fv)(1.0f) / {0}"},
      {"abs", "fabs({0})"},
      {"square", "{0} * {0}"},
      {"relu", "{0} < (fv)(0.0f) ? (fv)(0.0f) : {0}"},
      {"relu6", "{0} < (fv)(0.0f) ? (fv)(0.0f) : ({0} > (fv)(6.0f) ? (fv)(6.0f) : {0})"},
      {"sigmoid", "(fv)(1.0f) / ((fv)(1.0f) + exp(-{0}))"},
      {"tanh", "tanh({0})"},
      {"silu", "{0} / ((fv)(1.0f) + exp(-{0}))"},
      {"add", "{0} + {1}"},
      {"sub", "{0} - {1}"},
      {"mul", "{0} * {1}"},
      {"div", "{0} / {1}"},
      {"max", "{1} > {0} ? {1} : {0}"},
      {"min", "{1} < {0} ? {1} : {0}"},
      {"greater", "{0} > {1} ? (fv)(1.0f) : (fv)(0.0f)"},
      {"equal", "{0} == {1} ? (fv)(1.0f) : (fv)(0.0f)"},
      {"relu_mask", "{1} > (fv)(0.0f) ? {0} : (fv)(0.0f)"},
      {"relu6_mask", "({1} > (fv)(0.0f) ? ({1} < (fv)(6.0f) ? {0} : (fv)(0.0f)) : (fv)(0.0f))"},
      {"select", "{0} != (fv)(0.0f) ? {1} : {2}"},
      {"erf", "erf_of({0})"},
      {"gelu", "gelu_of({0})"},
      {"gelu_slope", "gelu_slope_of({0})"},
      {"gelu_tanh", "gelu_tanh_of({0})"},
      {"gelu_tanh_slope", "gelu_tanh_slope_of({0})"},
      {"softplus", "softplus_of({0})"},
      {"hard_sigmoid", "hard_sigmoid_of({0})"},
      {"hard_swish", "{0} * hard_sigmoid_of({0})"},
      {"hard_swish_slope", "hard_swish_slope_of({0})"},
      {"leaky_relu", "{0} > (fv)(0.0f) ? {0} : {0} * {1}"},
      {"elu", "{0} > (fv)(0.0f) ? {0} : {1} * expm1({0})"},
      {"normalize", "({0} - {1}) * ({2} * {3}) + {4}"},
      {"norm_dx", "{3} * {4} * ({0} - {7} * ({6} + ({1} - {2}) * {3} * {5}))"},
  };
  const auto it = formulas.find(op);
  SITU_ASSERT(it != formulas.end(), "pointwise op `{}` has no OpenCL formula", op);
  return it->second;
}

std::string literal(double value) {
  const float f = static_cast<float>(value);
  if (std::isnan(f)) return "(fv)(NAN)";
  if (std::isinf(f)) return f > 0 ? "(fv)(INFINITY)" : "(fv)(-INFINITY)";
  return fmt::format("(fv)({:a}f)", f);
}

std::string argument(const ops::ExprArg& arg) {
  if (arg.kind == ops::ExprArg::literal) return literal(arg.value);
  return fmt::format("{}{}", arg.kind == ops::ExprArg::input ? 'i' : 't', arg.index);
}

std::string statement(const ops::ExprStep& step, size_t number) {
  fmt::dynamic_format_arg_store<fmt::format_context> args;
  for (const ops::ExprArg& arg : step.args) args.push_back(argument(arg));
  return fmt::format("const fv t{} = {};", number, fmt::vformat(formula_of(step.op->name), args));
}

// The source before pointwise.cl; strides[i] is that of input i along the last axis.
std::string prelude(const ops::Expr& expr, const std::vector<int64_t>& strides, const std::vector<TensorArg>& ins) {
  std::string text = "#define EACH_INPUT(F)";
  for (size_t i = 0; i < strides.size(); ++i)
    text += fmt::format(" F(i{}, {}, {}, {})", i, i, strides[i], type_name(ins[i]));
  text += "\n#define STEPS";
  for (size_t i = 0; i < expr.steps.size(); ++i) text += " " + statement(expr.steps[i], i);
  return text + fmt::format("\n#define RESULT t{}\n", expr.steps.size() - 1);
}

Call bind_pointwise(const LaunchSpec& launch, const Target& target) {
  const int arity = static_cast<int>(launch.in.size());
  const std::string_view op = launch.node.op == "bias" ? "add" : std::string_view(launch.node.op);
  const ops::Expr expr = ops::expr_of(op, launch.node.attrs, arity);
  std::vector<TensorArg> operands{launch.out[0]};
  operands.insert(operands.end(), launch.in.begin(), launch.in.end());
  std::vector<Axis> axes = merged_axes(launch.out[0].shape(), operands);
  const Axis row = axes.back();
  axes.pop_back();
  int64_t rows = 1;
  for (const Axis& a : axes) rows *= a.extent;
  std::vector<int64_t> strides(row.strides.begin() + 1, row.strides.end());
  if (row.extent == 1) strides.assign(strides.size(), 1);  // reads one lane either way: fewer programs

  Call call = make_call("pointwise.cl", "pointwise");
  call.prelude = prelude(expr, strides, launch.in);
  const int64_t vw = tuned(target, "vector.VW"), chunk = std::max<int64_t>(1, tuned(target, "vector.CHUNK") / vw);
  call.define("VW", vw);
  add_tensors(call, launch.in);
  add_tensor(call, launch.out[0]);
  call.arg(table_of(axes, operands.size()));
  add_ints(call, {static_cast<int64_t>(axes.size()), rows, row.extent, chunk});
  const int64_t units = rows * ceil_div(row.extent, vw);
  return set_grid(call, ceil_div(int_of(units), chunk), 1, 1, tuned(target, "vector.WX"));
}

}  // namespace

KernelList pointwise() {
  static constexpr std::string_view kHalves = "* -> Y";
  static constexpr Kernel kernels[] = {{"fused", bind_pointwise, kHalves},
                                       {"bias", bind_pointwise, kHalves},
                                       {"neg", bind_pointwise, kHalves},
                                       {"exp", bind_pointwise, kHalves},
                                       {"log", bind_pointwise, kHalves},
                                       {"sqrt", bind_pointwise, kHalves},
                                       {"rsqrt", bind_pointwise, kHalves},
                                       {"abs", bind_pointwise, kHalves},
                                       {"reciprocal", bind_pointwise, kHalves},
                                       {"square", bind_pointwise, kHalves},
                                       {"relu", bind_pointwise, kHalves},
                                       {"relu6", bind_pointwise, kHalves},
                                       {"sigmoid", bind_pointwise, kHalves},
                                       {"tanh", bind_pointwise, kHalves},
                                       {"silu", bind_pointwise, kHalves},
                                       {"add", bind_pointwise, kHalves},
                                       {"sub", bind_pointwise, kHalves},
                                       {"mul", bind_pointwise, kHalves},
                                       {"div", bind_pointwise, kHalves},
                                       {"max", bind_pointwise, kHalves},
                                       {"min", bind_pointwise, kHalves},
                                       {"greater", bind_pointwise, kHalves},
                                       {"equal", bind_pointwise, kHalves},
                                       {"select", bind_pointwise, kHalves},
                                       {"relu_mask", bind_pointwise, kHalves},
                                       {"relu6_mask", bind_pointwise, kHalves},
                                       {"erf", bind_pointwise, kHalves},
                                       {"gelu", bind_pointwise, kHalves},
                                       {"gelu_slope", bind_pointwise, kHalves},
                                       {"gelu_tanh", bind_pointwise, kHalves},
                                       {"gelu_tanh_slope", bind_pointwise, kHalves},
                                       {"softplus", bind_pointwise, kHalves},
                                       {"hard_sigmoid", bind_pointwise, kHalves},
                                       {"hard_swish", bind_pointwise, kHalves},
                                       {"hard_swish_slope", bind_pointwise, kHalves},
                                       {"leaky_relu", bind_pointwise, kHalves},
                                       {"elu", bind_pointwise, kHalves},
                                       {"normalize", bind_pointwise, kHalves},
                                       {"norm_dx", bind_pointwise, kHalves}};
  return {kernels, {}};
}

}  // namespace situ::opencl::kernels
