// epilogue.cpp -- reading, checking, applying and differentiating the `epilogue` attribute.
#include "ops/epilogue.h"

#include <algorithm>
#include <cmath>

namespace situ::ops {
namespace {

constexpr std::string_view kNames[] = {"bias",     "relu", "relu6",
                                       "residual", "mask", "mask6"};  // in the order of the enum

Epilogue word_of(std::string_view word) {
  const auto it = std::find(std::begin(kNames), std::end(kNames), word);
  if (it == std::end(kNames)) fail("`{}` is no epilogue: use words of {} joined by +", word, fmt::join(kNames, ", "));
  return static_cast<Epilogue>(it - std::begin(kNames));
}

std::string joined(std::span<const Epilogue> words) {
  std::string text;
  for (Epilogue e : words) text += fmt::format("{}{}", text.empty() ? "" : "+", name_of(e));
  return text;
}

double applied(Epilogue e, double y, double operand) {
  switch (e) {
    case Epilogue::bias:
    case Epilogue::residual:
      return y + operand;
    case Epilogue::relu:
      return std::max(y, 0.0);
    case Epilogue::relu6:
      return std::clamp(y, 0.0, 6.0);
    case Epilogue::mask:
      return operand > 0 ? y : 0;
    case Epilogue::mask6:
      return operand > 0 && operand < 6 ? y : 0;
  }
  return y;
}

// Calls visit(word, its operand or an empty tensor) for each word in order.
void each_word(const RefCall& call, int first, auto visit) {
  size_t next = static_cast<size_t>(first);
  for (Epilogue e : epilogue_of(call.attrs)) visit(e, takes_operand(e) ? call.in[next++] : RefTensor{});
}

// The operand of each word, or -1.
std::vector<int> operand_indices(std::span<const Epilogue> words, int first) {
  std::vector<int> indices;
  for (Epilogue e : words) indices.push_back(takes_operand(e) ? first++ : -1);
  return indices;
}

// The activation that word `at` produces. The last one is the node's result; an earlier one is computed again.
Value value_after(GradBuilder& g, std::string_view op, int first, std::span<const Epilogue> words, size_t at) {
  if (at + 1 == words.size()) return g.out(0);
  const auto prefix = words.first(at + 1);
  Values inputs;
  for (int i = 0; i < first + std::count_if(prefix.begin(), prefix.end(), takes_operand); ++i)
    inputs.push_back(g.in(i));
  Attrs attrs = g.attrs();
  return g.emit(op, inputs, attrs.set("epilogue", joined(prefix)));
}

bool is_mask(Epilogue e) { return e == Epilogue::mask || e == Epilogue::mask6; }

Value sum_of_rows(GradBuilder& g, Value dy) { return g.sum_to(dy, Shape{g.type(dy).shape.cols()}); }

}  // namespace

std::string_view name_of(Epilogue e) { return kNames[static_cast<size_t>(e)]; }

bool takes_like_result(Epilogue e) { return e == Epilogue::residual || e == Epilogue::mask || e == Epilogue::mask6; }
bool takes_operand(Epilogue e) { return e == Epilogue::bias || takes_like_result(e); }

std::vector<Epilogue> epilogue_of(const Attrs& attrs) {
  std::vector<Epilogue> words;
  const std::string text = attrs.text("epilogue", "");
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = std::min(rest.find('+'), rest.size());
    words.push_back(word_of(rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return words;
}

void check_epilogue(const OpView& view, int first, const Type& y) {
  const auto words = epilogue_of(view.attrs);
  int next = first;
  for (Epilogue e : words) {
    if (!takes_operand(e)) continue;
    if (next >= view.arity()) fail("the epilogue word `{}` needs an operand: append it to the inputs", name_of(e));
    const Type wanted = e == Epilogue::bias ? f32({y.shape.cols()}) : y;
    if (view.in(next) != wanted)
      fail("the operand of the epilogue word `{}` must be {}, not {}", name_of(e), to_string(wanted),
           to_string(view.in(next)));
    ++next;
  }
  if (next != view.arity()) fail("{} operands, but the epilogue takes {}", view.arity(), next);
}

void reference_epilogue(const RefCall& call, int first, const RefTensor& y) {
  each_word(call, first, [&](Epilogue e, const RefTensor& operand) {
    for (int64_t i = 0; i < y.count(); ++i) y[i] = applied(e, y[i], operand.data ? operand[i % operand.count()] : 0);
  });
}

void magnitude_epilogue(const RefCall& call, int first, const RefTensor& y) {
  each_word(call, first, [&](Epilogue e, const RefTensor& operand) {
    if (e != Epilogue::bias && e != Epilogue::residual) return;
    for (int64_t i = 0; i < y.count(); ++i) y[i] += std::fabs(operand[i % operand.count()]);
  });
}

Value epilogue_gradient(GradBuilder& g, std::string_view op, int first) {
  const auto words = epilogue_of(g.attrs());
  const auto operands = operand_indices(words, first);
  auto wanted_before = [&](size_t at) {
    bool wanted = false;
    for (int i = 0; i < first; ++i) wanted |= g.wants(i);
    for (size_t k = 0; k < at; ++k) wanted |= operands[k] >= 0 && !is_mask(words[k]) && g.wants(operands[k]);
    return wanted;
  };
  if (!wanted_before(words.size())) return ir::kNoValue;
  Value dy = g.dout(0);
  for (size_t k = words.size(); k-- > 0;) {
    const Epilogue e = words[k];
    if (e == Epilogue::bias && g.wants(operands[k])) g.add(operands[k], sum_of_rows(g, dy));
    if (e == Epilogue::residual) g.add(operands[k], dy);
    if (!wanted_before(k)) return ir::kNoValue;
    if (e == Epilogue::mask) dy = g.emit("relu_mask", {dy, g.in(operands[k])});
    if (e == Epilogue::mask6) dy = g.emit("relu6_mask", {dy, g.in(operands[k])});
    if (e == Epilogue::relu) dy = g.emit("relu_mask", {dy, value_after(g, op, first, words, k)});
    if (e == Epilogue::relu6) dy = g.emit("relu6_mask", {dy, value_after(g, op, first, words, k)});
  }
  bool core = false;
  for (int i = 0; i < first; ++i) core |= g.wants(i);
  return core ? dy : ir::kNoValue;
}

}  // namespace situ::ops
