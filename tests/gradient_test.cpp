// gradient_test.cpp -- every gradient rule against central differences of the op's own reference, in double.
//
// All results are projected on random numbers, which catches transposed Jacobians. Small examples move every element;
// large ones move all elements at once along random signs, which sees every entry too, though not one by one.
#include <gtest/gtest.h>

#include <cmath>

#include "base/philox.h"
#include "oracle.h"

namespace situ {
namespace {

using ops::Value;
using ops::Values;
using oracle::Single;
using oracle::Tensor;
using oracle::Tensors;

constexpr double kTolerance = 1e-6, kStep = 1e-6;
constexpr double kBudget = 4e6;  // flops for moving every element of an operand; beyond it, directions
constexpr int kDirections = 6;

double unit(uint64_t i, uint32_t stream) { return 2 * unit_float(random_word(i, stream, 77, 0)) - 1; }

double norm(const Tensor& t) {
  double sum = 0;
  for (double v : t) sum += v * v;
  return std::sqrt(sum);
}
double dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

Tensors projection_of(const Single& s) {
  Tensors projection;
  for (size_t o = 0; o < s.op().outputs.size(); ++o) {
    Tensor& r = projection.emplace_back(static_cast<size_t>(s.graph.type(s.op().outputs[o]).count()));
    for (size_t i = 0; i < r.size(); ++i) r[i] = unit(i, static_cast<uint32_t>(o));
  }
  return projection;
}

// The derivative along a direction of one operand. Results are subtracted before they are summed: what did not move
// cancels exactly.
double difference(const Single& s, size_t operand, const Tensor& direction, const Tensors& projection) {
  Tensors up = s.inputs, down = s.inputs;
  for (size_t i = 0; i < direction.size(); ++i) {
    up[operand][i] += kStep * direction[i];
    down[operand][i] -= kStep * direction[i];
  }
  const Tensors above = oracle::run(s.view(), up), below = oracle::run(s.view(), down);
  double sum = 0;
  for (size_t o = 0; o < above.size(); ++o)
    for (size_t i = 0; i < above[o].size(); ++i) sum += projection[o][i] * (above[o][i] - below[o][i]);
  return sum / (2 * kStep);
}

struct Gradients {
  Tensors of;                // by operand; empty where the rule gives none
  std::vector<bool> serves;  // for each node the rule emitted: whether a gradient needs it
};

// Marks the nodes that lead to these values.
std::vector<bool> needed_for(const ir::Graph& graph, const Values& targets) {
  std::vector<bool> needed(graph.nodes.size());
  auto mark = [&](Value v) {
    if (v != ir::kNoValue) needed[static_cast<size_t>(graph.values[static_cast<size_t>(v)].producer)] = true;
  };
  for (Value v : targets) mark(v);
  for (size_t n = graph.nodes.size(); n-- > 0;)
    if (needed[n])
      for (Value v : graph.nodes[n].inputs) mark(v);
  return needed;
}

// Runs the rule with the projection as the gradient that arrives at each result in `arrives`.
Gradients by_rule(const Single& s, const Tensors& projection, const std::vector<bool>& wanted,
                  const std::vector<bool>& arrives) {
  ir::Graph graph = s.graph;
  oracle::Named named = s.named();
  Values douts;
  for (size_t o = 0; o < projection.size(); ++o) {
    const std::string name = fmt::format("d{}", o);
    douts.push_back(arrives[o] ? graph.input(name, graph.type(s.op().outputs[o])) : ir::kNoValue);
    named[name] = projection[o];
  }
  const size_t before = graph.nodes.size();
  ops::GradBuilder builder(graph, s.op(), douts, wanted);
  ops::get(s.op().op).grad(builder);
  Gradients result;
  const Tensors values = oracle::evaluate(graph, named);
  for (Value v : builder.dins()) result.of.push_back(v == ir::kNoValue ? Tensor() : values[static_cast<size_t>(v)]);
  const std::vector<bool> needed = needed_for(graph, builder.dins());
  result.serves.assign(needed.begin() + static_cast<std::ptrdiff_t>(before), needed.end());
  return result;
}

// Operands the signature calls constant are not differentiated; integers cannot be.
std::vector<bool> differentiable(const Single& s) {
  std::vector<bool> result;
  std::string_view signature = ops::get(s.op().op).signature;
  for (Value v : s.op().inputs) {
    const std::string_view operand = signature.substr(0, std::min(signature.find(','), signature.size()));
    if (operand.size() < signature.size()) signature.remove_prefix(operand.size() + 1);
    result.push_back(s.graph.type(v).dtype == DType::f32 && operand.find(": constant") == std::string_view::npos);
  }
  return result;
}

std::vector<Tensor> directions_for(const Single& s, size_t operand) {
  const size_t count = s.inputs[operand].size();
  const double flops = std::max(ops::cost_of(s.view()).flops, static_cast<double>(s.inputs[operand].size()));
  const bool all = 2 * static_cast<double>(count) * flops <= kBudget;
  std::vector<Tensor> directions(all ? count : kDirections, Tensor(count));
  for (size_t d = 0; d < directions.size(); ++d)
    for (size_t i = 0; i < count; ++i)
      directions[d][i] = all ? (i == d ? 1 : 0) : unit(i, static_cast<uint32_t>(100 + d)) < 0 ? -1 : 1;
  return directions;
}

// The largest disagreement of rule and differences over all directions, relative to the gradient's norm.
double relative_error(const Single& s, size_t operand, const Tensor& gradient, const Tensors& projection) {
  double worst = 0, scale = norm(gradient);
  for (const Tensor& direction : directions_for(s, operand)) {
    const double expected = difference(s, operand, direction, projection);
    const double found = gradient.empty() ? 0 : dot(gradient, direction);
    scale = std::max(scale, std::fabs(expected) / norm(direction));
    worst = std::max(worst, std::fabs(found - expected));
  }
  return worst == 0 ? 0 : worst / std::max(scale, 1e-3);
}

// Calls check(example as a graph, projection) for every example of every op with a gradient rule.
template <typename Check>
void for_all_gradients(Check check) {
  for (const ops::OpDef* op : ops::all_ops()) {
    if (!op->grad) continue;
    for (const ops::Example& example : ops::examples(*op)) {
      SCOPED_TRACE(fmt::format("{}({})", op->name, example.text));
      const Single s = oracle::single(*op, example);
      check(s, projection_of(s));
    }
  }
}

TEST(Gradient, RuleAgreesWithCentralDifferences) {
  for_all_gradients([](const Single& s, const Tensors& projection) {
    const std::vector<bool> wanted = differentiable(s);
    const Gradients gradients = by_rule(s, projection, wanted, std::vector<bool>(projection.size(), true));
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (!wanted[i]) continue;
      EXPECT_LT(relative_error(s, i, gradients.of[i], projection), kTolerance) << "operand " << i;
    }
  });
}

TEST(Gradient, RuleServesEachOperandAlone) {
  for_all_gradients([](const Single& s, const Tensors& projection) {
    const std::vector<bool> all = differentiable(s), arrives(projection.size(), true);
    const Gradients together = by_rule(s, projection, all, arrives);
    for (size_t i = 0; i < all.size(); ++i) {
      std::vector<bool> wanted(all.size());
      wanted[i] = all[i];
      const Gradients alone = by_rule(s, projection, wanted, arrives);
      EXPECT_EQ(alone.of[i], all[i] ? together.of[i] : Tensor()) << "operand " << i;
      for (size_t n = 0; n < alone.serves.size(); ++n)
        EXPECT_TRUE(alone.serves[n]) << "operand " << i << " alone: node " << n << " of the rule serves nothing";
      for (size_t k = 0; k < all.size(); ++k)
        EXPECT_TRUE(k == i || alone.of[k].empty()) << "operand " << k << " got a gradient it did not want";
    }
  });
}

// A gradient rule is linear in what arrives: each result's part alone adds up to the whole.
TEST(Gradient, RuleServesEachResultAlone) {
  for_all_gradients([](const Single& s, const Tensors& projection) {
    if (projection.size() == 1) return;
    const std::vector<bool> wanted = differentiable(s);
    const Gradients together = by_rule(s, projection, wanted, std::vector<bool>(projection.size(), true));
    Tensors sums = together.of;
    for (Tensor& t : sums) std::fill(t.begin(), t.end(), 0.0);
    for (size_t o = 0; o < projection.size(); ++o) {
      std::vector<bool> arrives(projection.size());
      arrives[o] = true;
      const Gradients part = by_rule(s, projection, wanted, arrives);
      for (size_t i = 0; i < sums.size(); ++i)
        for (size_t e = 0; e < sums[i].size() && !part.of[i].empty(); ++e) sums[i][e] += part.of[i][e];
    }
    for (size_t i = 0; i < sums.size(); ++i) {
      const double tolerance = 1e-12 * (1 + norm(together.of[i]));
      for (size_t e = 0; e < sums[i].size(); ++e)
        ASSERT_NEAR(sums[i][e], together.of[i][e], tolerance) << "operand " << i;
    }
  });
}

}  // namespace
}  // namespace situ
