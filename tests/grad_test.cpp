// grad_test.cpp -- reverse mode over whole graphs: every use of a value counts, nothing else is built, nothing is
// silent.
#include <gtest/gtest.h>

#include <cmath>

#include "backend/ref/device.h"
#include "base/error.h"
#include "grad/reverse.h"
#include "ops/op.h"
#include "step/run.h"

namespace situ::grad {
namespace {

using ir::Value;

Value total(ir::Graph& graph, Value v) {
  return ops::emit(graph, "reduce", {v}, {{"kind", "sum"}, {"axes", ir::Ints{0}}});
}

TEST(Reverse, EveryUseOfAValueCounts) {
  ir::Graph graph;  // loss = sum(x * x + exp(x) + exp(x) * x): x is used by four operands, exp(x) by two
  const Value x = graph.input("x", f32({3})), e = ops::emit(graph, "exp", {x});
  const Value y = ops::emit(graph, "add", {ops::emit(graph, "mul", {x, x}), e});
  const Value loss = total(graph, ops::emit(graph, "add", {y, ops::emit(graph, "mul", {e, x})}));
  graph.output("dx", gradients(graph, loss, {x})[0]);
  const auto device = ref::make_device();
  const std::vector<double> at = {0.5, -1, 2};
  const auto dx = step::run_once(*device, graph, {{"x", at}}).at("dx");
  for (size_t i = 0; i < at.size(); ++i) EXPECT_NEAR(dx[i], 2 * at[i] + std::exp(at[i]) * (2 + at[i]), 1e-12) << i;
}

TEST(Reverse, OnlyWhatIsWantedIsBuilt) {
  ir::Graph graph;
  const Value x = graph.input("x", f32({4, 3})), w = graph.input("w", f32({3, 2})), v = graph.input("v", f32({2, 2}));
  const Value h = ops::emit(graph, "matmul", {ops::emit(graph, "matmul", {x, w}), v});
  const Value loss = total(graph, total(graph, h));
  const size_t before = graph.nodes.size();
  gradients(graph, loss, {v});
  int products = 0;
  for (size_t n = before; n < graph.nodes.size(); ++n) products += graph.nodes[n].op == "matmul";
  EXPECT_EQ(products, 1) << "dv alone: neither dw nor dx nor the gradient of the first product";
}

TEST(Reverse, AValueTheLossDoesNotDependOnGetsZeros) {
  ir::Graph graph;
  const Value x = graph.input("x", f32({3})), unused = graph.input("u", f32({2}));
  const Value d = gradients(graph, total(graph, x), {unused})[0];
  EXPECT_EQ(graph.producer(d).op, "const");
  EXPECT_EQ(graph.producer(d).attrs.number("value"), 0);
}

TEST(Reverse, AnOpWithoutAGradientRuleIsNamed) {
  ir::Graph graph;
  const Value x = graph.input("x", f32({3}));
  const Value loss = total(graph, ops::emit(graph, "greater", {x, graph.constant(0, f32({}))}));
  try {
    gradients(graph, loss, {x});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("greater"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace situ::grad
