// examples.cpp -- reads the `examples` text of an op and makes values for its operands.
//
// Values lie on a shuffled, jittered grid: no two of one tensor are close, so a maximum stays where it is when a
// finite difference moves one of them, and mantissas are full, so that f32 products round.
#include "ops/examples.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <numeric>

#include "base/philox.h"
#include "ir/text.h"

namespace situ::ops {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

// Cuts at a separator that stands outside quotes, brackets and braces.
std::vector<std::string_view> split_at(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  bool quoted = false;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (quoted) continue;
    depth += (text[i] == '[' || text[i] == '{') - (text[i] == ']' || text[i] == '}');
    if (text[i] != separator || depth) continue;
    parts.push_back(trimmed(text.substr(begin, i - begin)));
    begin = i + 1;
  }
  parts.push_back(trimmed(text.substr(begin)));
  return parts;
}

ExampleInput read_input(std::string_view text) {
  const size_t bracket = text.find(']');
  if (bracket == std::string_view::npos) fail("`{}` is no operand: write a type such as f32[4,10]", text);
  ExampleInput input{ir::parse_type(text.substr(0, bracket + 1))};
  const std::string suffix(text.substr(bracket + 1));
  if (suffix.empty()) return input;
  constexpr std::string_view kMarks = "*<+=";  // in the order of the kinds
  const size_t kind = kMarks.find(suffix[0]);
  char* end = nullptr;
  input.bound = std::strtod(suffix.c_str() + 1, &end);
  if (kind == std::string_view::npos || *end) fail("`{}` after an operand's type means nothing", suffix);
  input.kind = static_cast<ExampleInput::Kind>(kind);
  return input;
}

Example read_example(std::string_view text) {
  Example example{std::string(text), {}, {}};
  const size_t brace = text.find('{');
  if (brace != std::string_view::npos) example.attrs = ir::parse_attrs(text.substr(brace));
  for (std::string_view part : split_at(trimmed(text.substr(0, brace)), ','))
    example.inputs.push_back(read_input(part));
  return example;
}

uint32_t word(uint64_t i, uint32_t stream, uint64_t seed) {
  return random_word(i, stream, static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
}

std::vector<int64_t> shuffled(int64_t n, uint64_t seed) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  for (uint64_t i = order.size(); i-- > 1;) std::swap(order[i], order[word(i, 1, seed) % (i + 1)]);
  return order;
}

// n points of [0, 1), in shuffled order, each in the middle half of its own cell.
std::vector<double> grid(int64_t n, uint64_t seed) {
  std::vector<double> points;
  for (int64_t cell : shuffled(n, seed)) {
    const double jitter = 0.25 + 0.5 * unit_float(word(points.size(), 2, seed));
    points.push_back((static_cast<double>(cell) + jitter) / static_cast<double>(n));
  }
  return points;
}

double signed_unit(double u) { return u < 0.5 ? -1 + u * 1.9 : 0.05 + (u - 0.5) * 1.9; }

}  // namespace

std::vector<Example> examples(const OpDef& op) {
  std::vector<Example> list;
  for (std::string_view text : split_at(op.examples, ';'))
    if (!text.empty()) list.push_back(read_example(text));
  return list;
}

std::vector<double> example_values(const ExampleInput& input, uint64_t seed) {
  std::vector<double> values = grid(input.type.count(), seed);
  for (size_t i = 0; i < values.size(); ++i) {
    double& v = values[i];
    switch (input.kind) {
      case ExampleInput::signed_unit:
        v = input.bound * signed_unit(v);
        break;
      case ExampleInput::integer:
        v = word(i, 3, seed) % static_cast<uint32_t>(input.bound);
        break;
      case ExampleInput::positive:
        v += 0.5;
        break;
      case ExampleInput::fixed:
        v = input.bound;
        break;
    }
    v = static_cast<double>(static_cast<float>(v));
  }
  return values;
}

}  // namespace situ::ops
