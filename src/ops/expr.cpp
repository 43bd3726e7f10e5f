// expr.cpp -- reading and printing the expression of a `fused` node.
#include "ops/expr.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "ops/magnitude.h"

namespace situ::ops {
namespace {

class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  bool done() {
    skip_space();
    return rest_.empty();
  }
  bool accept(char c) {
    skip_space();
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail("expected `{}` before `{}` in the expression", c, rest_.substr(0, 20));
  }
  std::string word() {  // names and numbers alike; the caller tells them apart
    skip_space();
    size_t n = 0;
    auto is_part = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '+' || c == '-';
    };
    while (n < rest_.size() && is_part(rest_[n])) ++n;
    if (n == 0) fail("expected a name or a number before `{}` in the expression", rest_.substr(0, 20));
    std::string result(rest_.substr(0, n));
    rest_.remove_prefix(n);
    return result;
  }

 private:
  void skip_space() {
    while (!rest_.empty() && std::isspace(static_cast<unsigned char>(rest_[0]))) rest_.remove_prefix(1);
  }
  std::string_view rest_;
};

// The number after a letter, as in i3 or t12; -1 if the word is something else.
int index_after(char letter, const std::string& word) {
  if (word.size() < 2 || word[0] != letter) return -1;
  int index = -1;
  const auto [end, error] = std::from_chars(word.data() + 1, word.data() + word.size(), index);
  return error == std::errc() && end == word.data() + word.size() ? index : -1;
}

ExprArg read_arg(Reader& r, int steps) {
  const std::string word = r.word();
  if (const int i = index_after('i', word); i >= 0) return {ExprArg::input, i, 0};
  if (const int t = index_after('t', word); t >= 0) {
    if (t >= steps) fail("step t{} of the expression is used before it is defined", t);
    return {ExprArg::step, t, 0};
  }
  char* end = nullptr;
  const double value = std::strtod(word.c_str(), &end);
  if (*end) fail("`{}` in the expression is no input (i0), step (t0) or number", word);
  return {ExprArg::literal, 0, value};
}

const OpDef* pointwise_op(const std::string& name) {
  const OpDef& op = get(name);
  if (!op.scalar) fail("`{}` is not pointwise: an expression holds pointwise ops only", name);
  return &op;
}

ExprStep read_step(Reader& r, int number) {
  if (index_after('t', r.word()) != number) fail("step {} of the expression must be named t{}", number, number);
  r.expect('=');
  ExprStep step{pointwise_op(r.word()), {}};
  r.expect('(');
  do step.args.push_back(read_arg(r, number));
  while (r.accept(','));
  r.expect(')');
  const Attrs none;
  step.op->type({step.op->name, Types(step.args.size()), {}, none});  // the number of operands
  return step;
}

std::string print(const ExprArg& arg) {
  if (arg.kind == ExprArg::literal) return fmt::format("{:a}", arg.value);
  return fmt::format("{}{}", arg.kind == ExprArg::input ? 'i' : 't', arg.index);
}

}  // namespace

Expr parse_expr(std::string_view text) {
  Expr expr;
  Reader r(text);
  do {
    expr.steps.push_back(read_step(r, static_cast<int>(expr.steps.size())));
    for (const ExprArg& arg : expr.steps.back().args)
      if (arg.kind == ExprArg::input) expr.inputs = std::max(expr.inputs, arg.index + 1);
  } while (r.accept(';') && !r.done());
  if (!r.done()) fail("the expression goes on after its end: separate steps by ;");
  return expr;
}

std::string print(const Expr& expr) {
  std::string text;
  for (size_t s = 0; s < expr.steps.size(); ++s) {
    text += fmt::format("{}t{} = {}(", s ? "; " : "", s, expr.steps[s].op->name);
    for (size_t a = 0; a < expr.steps[s].args.size(); ++a)
      text += fmt::format("{}{}", a ? ", " : "", print(expr.steps[s].args[a]));
    text += ")";
  }
  return text;
}

Expr expr_of(std::string_view op, const Attrs& attrs, int arity) {
  if (op == "fused") return parse_expr(attrs.text("expr"));
  Expr expr{{{pointwise_op(std::string(op)), {}}}, arity};
  for (int i = 0; i < arity; ++i) expr.steps[0].args.push_back({ExprArg::input, i, 0});
  return expr;
}

Sized evaluate(const Expr& expr, std::span<const Sized> inputs) {
  std::vector<Sized> steps;
  for (const ExprStep& step : expr.steps) {
    std::vector<double> values, magnitudes;
    for (const ExprArg& arg : step.args) {
      const auto index = static_cast<size_t>(arg.index);
      const Sized a = arg.kind == ExprArg::literal ? Sized{arg.value, std::fabs(arg.value)}
                      : arg.kind == ExprArg::input ? inputs[index]
                                                   : steps[index];
      values.push_back(a.value);
      magnitudes.push_back(a.magnitude);
    }
    const int arity = static_cast<int>(values.size());
    steps.push_back(
        {step.op->scalar(values.data()), scalar_magnitude(*step.op, values.data(), magnitudes.data(), arity)});
  }
  return steps.back();
}

}  // namespace situ::ops
