// expression.h -- a pointwise expression (ops/expr.h) as OpenCL source: macros for the kernels that hold one.
#pragma once
#include <fmt/args.h>

#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "ops/expr.h"

namespace situ::opencl::kernels {

// {0}, {1}, ... are the operands, all of type fv; a comparison of vectors yields a vector that ?: selects by.
inline std::string_view formula_of(std::string_view op) {
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
      {"norm_dx", "({3} * {4}) * (({0} - {7} * {6}) - ({1} - {2}) * ({7} * {3} * {5}))"},  // few terms per row
  };
  const auto it = formulas.find(op);
  SITU_ASSERT(it != formulas.end(), "pointwise op `{}` has no OpenCL formula", op);
  return it->second;
}

// Statements over variables i0, i1, .. (inputs) and t0, t1, .. (steps), all fv; literals are arguments k0, k1, .., so
// that 1 / n makes no program of its own.
class ExpressionSource {
 public:
  explicit ExpressionSource(const ops::Expr& expr) {
    for (size_t i = 0; i < expr.steps.size(); ++i) add(expr.steps[i], i);
    result_ = expr.steps.size() - 1;
  }
  // LITERALS: parameters for the constants; STEPS: the statements; RESULT: the value.
  std::string defines() const {
    std::string text = "#define LITERALS";
    for (size_t i = 0; i < literals.size(); ++i) text += fmt::format(", float k{}", i);
    return text + fmt::format("\n#define STEPS{}\n#define RESULT t{}\n", steps_, result_);
  }
  std::vector<float> literals;

 private:
  std::string argument(const ops::ExprArg& arg) {
    if (arg.kind != ops::ExprArg::literal)
      return fmt::format("{}{}", arg.kind == ops::ExprArg::input ? 'i' : 't', arg.index);
    literals.push_back(static_cast<float>(arg.value));
    return fmt::format("(fv)(k{})", literals.size() - 1);
  }
  void add(const ops::ExprStep& step, size_t number) {
    fmt::dynamic_format_arg_store<fmt::format_context> args;
    for (const ops::ExprArg& arg : step.args) args.push_back(argument(arg));
    steps_ += fmt::format(" const fv t{} = {};", number, fmt::vformat(formula_of(step.op->name), args));
  }
  std::string steps_;
  size_t result_ = 0;
};

}  // namespace situ::opencl::kernels
