// ops_test.cpp -- what every op owes (signature, types, reference, examples, magnitude, text form), in loops over all
// of them, and a few values computed by hand where a formula can be misread.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "ir/text.h"
#include "ir/verify.h"
#include "ops/epilogue.h"
#include "ops/expr.h"
#include "ops/window.h"
#include "oracle.h"

namespace situ {
namespace {

using oracle::Single;
using oracle::Tensor;
using oracle::Tensors;

template <typename Check>
void for_all_examples(Check check) {
  for (const ops::OpDef* op : ops::all_ops())
    for (const ops::Example& example : ops::examples(*op)) {
      SCOPED_TRACE(fmt::format("{}({})", op->name, example.text));
      check(*op, example, oracle::single(*op, example));
    }
}

// Runs an op on given operands; `text` describes their types and the attributes.
Tensors run(std::string_view op, std::string_view text, const Tensors& inputs) {
  const auto examples = oracle::examples_from(op, text);
  return oracle::run(oracle::single(ops::get(op), examples.at(0)).view(), inputs);
}

void expect_near(const Tensor& found, const Tensor& expected, double tolerance = 1e-12) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], tolerance) << "element " << i;
}

// --- all ops ---

TEST(Ops, AreComplete) {
  std::set<std::string_view> names;
  for (const ops::OpDef* op : ops::all_ops()) {
    SCOPED_TRACE(op->name);
    EXPECT_TRUE(names.insert(op->name).second) << "defined twice";
    EXPECT_EQ(op->signature.substr(0, 1), "(");
    EXPECT_NE(op->signature.find(") -> "), std::string_view::npos);
    EXPECT_TRUE(op->type && op->reference);
    EXPECT_GE(ops::examples(*op).size(), 1u);
  }
  EXPECT_GE(names.size(), 50u);
}

TEST(Ops, ExamplesTypeCheckAndGiveFiniteResults) {
  for_all_examples([](const ops::OpDef&, const ops::Example&, const Single& s) {
    EXPECT_FALSE(s.op().outputs.empty());
    for (const Tensor& t : oracle::run(s.view(), s.inputs))
      for (double v : t) ASSERT_TRUE(std::isfinite(v));
  });
}

TEST(Ops, ExamplesAreRepresentableAndWhatTheyPromise) {
  for_all_examples([](const ops::OpDef&, const ops::Example& example, const Single& s) {
    for (size_t i = 0; i < s.inputs.size(); ++i)
      for (double v : s.inputs[i]) {
        ASSERT_EQ(v, static_cast<double>(static_cast<float>(v)));
        const ops::ExampleInput& input = example.inputs[i];
        if (input.kind == ops::ExampleInput::signed_unit && input.type.dtype == DType::f32) {
          ASSERT_GE(std::fabs(v), 0.0499 * input.bound);
          ASSERT_LE(std::fabs(v), input.bound);
        }
        if (input.kind == ops::ExampleInput::integer) {
          ASSERT_TRUE(v == std::floor(v) && v >= 0 && v < input.bound);
        }
        if (input.kind == ops::ExampleInput::positive) {
          ASSERT_TRUE(v >= 0.5 && v < 1.5);
        }
      }
  });
}

TEST(Ops, MagnitudeBoundsTheReference) {
  for_all_examples([](const ops::OpDef&, const ops::Example&, const Single& s) {
    const Tensors results = oracle::run(s.view(), s.inputs), bounds = oracle::magnitudes(s.view(), s.inputs);
    for (size_t o = 0; o < results.size(); ++o)
      for (size_t i = 0; i < results[o].size(); ++i)
        ASSERT_LE(std::fabs(results[o][i]), bounds[o][i] * (1 + 1e-9)) << "result " << o << " element " << i;
  });
}

// The operands rounded a little: all but what is exact by nature.
Tensors rounded(const ops::Example& example, Tensors inputs, double by) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto kind = example.inputs[i].kind;
    if (kind == ops::ExampleInput::integer || kind == ops::ExampleInput::fixed) continue;
    for (size_t e = 0; e < inputs[i].size(); ++e) inputs[i][e] *= 1 + by * (e % 3 == 0 ? 1 : -1);
  }
  return inputs;
}

// An honest tolerance: rounding the operands moves no result by more than a few roundings of its magnitude, and moves
// some result by a part of it worth naming (less than one: in a long sum errors of either sign cancel).
TEST(Ops, MagnitudeIsTheScaleOfRoundingErrors) {
  constexpr double kRounding = 0x1p-20;
  for_all_examples([](const ops::OpDef&, const ops::Example& example, const Single& s) {
    const Tensors exact = oracle::run(s.view(), s.inputs), bounds = oracle::magnitudes(s.view(), s.inputs);
    const Tensors moved = oracle::run(s.view(), rounded(example, s.inputs, kRounding));
    double most = 0;
    for (size_t o = 0; o < exact.size(); ++o)
      for (size_t i = 0; i < exact[o].size(); ++i) {
        const double error = std::fabs(exact[o][i] - moved[o][i]);
        ASSERT_LE(error, 4 * kRounding * bounds[o][i] + 1e-15) << "result " << o << " element " << i;
        if (bounds[o][i] > 0) most = std::max(most, error / (kRounding * bounds[o][i]));
      }
    EXPECT_TRUE(exact == moved || most > 0.001) << most;
  });
}

TEST(Ops, TextFormRoundTrips) {
  for_all_examples([](const ops::OpDef&, const ops::Example&, const Single& s) {
    ir::verify(s.graph);
    const std::string text = ir::print(s.graph);
    const ir::Graph parsed = ir::parse(text);
    EXPECT_EQ(ir::print(parsed), text);
    const ir::Node& node = parsed.nodes.at(static_cast<size_t>(s.node));
    EXPECT_EQ(node.attrs, s.op().attrs);
    EXPECT_EQ(ops::get(node.op).type({node.op, s.view().ins, {}, node.attrs}), s.view().outs);
  });
}

TEST(Ops, CostsAreFiniteAndViewsAreFree) {
  for_all_examples([](const ops::OpDef& op, const ops::Example&, const Single& s) {
    const ops::Cost cost = ops::cost_of(s.view());
    EXPECT_TRUE(std::isfinite(cost.flops) && cost.flops >= 0);
    EXPECT_TRUE(op.view ? cost.bytes == 0 && cost.flops == 0 : cost.bytes > 0);
  });
}

TEST(Ops, AliasesNameOperandsOfTheSameType) {
  for_all_examples([](const ops::OpDef& op, const ops::Example&, const Single& s) {
    if (!op.aliases) return;
    const ops::OpView view = s.view();
    for (const auto& [out, in] : op.aliases(view))
      EXPECT_EQ(view.outs.at(static_cast<size_t>(out)), view.ins.at(static_cast<size_t>(in)));
  });
}

TEST(Ops, PointwiseOpsAgreeWithTheirScalar) {
  for_all_examples([](const ops::OpDef& op, const ops::Example&, const Single& s) {
    if (!op.scalar) return;
    const ops::OpView view = s.view();
    const ir::Attrs fused{{"expr", ops::print(ops::expr_of(op.name, {}, view.arity()))},
                          {"shape", view.out(0).shape.dims()}};
    EXPECT_EQ(oracle::run({"fused", view.ins, view.outs, fused}, s.inputs), oracle::run(view, s.inputs));
  });
}

// --- mistakes ---

TEST(Ops, TypeRulesRejectWithASentence) {
  const struct {
    const char *op, *operands, *sentence;
  } cases[] = {
      {"matmul", "f32[2,3], f32[4,5]", "inner sizes 3 and 4 differ"},
      {"matmul", "f32[2,3], f32[3]", "two axes"},
      {"matmul", "f32[2,3], f32[3,4], f32[5] {epilogue=\"bias\"}", "must be f32[4], not f32[5]"},
      {"matmul", "f32[2,3], f32[3,4] {epilogue=\"residual\"}", "needs an operand"},
      {"matmul", "f32[2,3], f32[3,4], f32[4] {epilogue=\"relu\"}", "3 operands"},
      {"matmul", "f32[2,3], f32[3,4] {epilogue=\"gelu\"}", "`gelu` is no epilogue"},
      {"conv2d", "f32[1,5,5,4], f32[3,3,3,8]", "3 input channels"},
      {"conv2d", "f32[1,2,2,4], f32[3,3,4,8]", "smaller kernel or more padding"},
      {"conv2d", "f32[1,5,5,4], f32[3,3,2,9] {groups=2}", "common divisor"},
      {"conv2d", "f32[1,5,5,4], f32[3,3,4,8] {stride=[0,1]}", "`stride` holds 0"},
      {"conv2d", "f32[1,5,5,4], f32[3,3,4,8] {pad=[1,1]}", "`pad` needs 4 numbers"},
      {"conv2d_dx", "f32[1,3,3,8], f32[3,3,4,8] {size=[6,5]}", "dy must be [1,4,3,8]"},
      {"conv2d_dx", "f32[1,3,3,8], f32[3,3,4,8]", "attribute `size` is missing"},
      {"conv2d_dw", "f32[1,5,5,4], f32[1,3,3,8] {kernel=[2,3]}", "dy must be [1,4,3,8]"},
      {"bias", "f32[2,3], f32[2]", "b must be [3]"},
      {"add", "f32[2,3], f32[2]", "do not broadcast"},
      {"add", "f32[2,3]", "2 operands are needed, not 1"},
      {"relu", "i32[3]", "must be f32"},
      {"fused", "f32[3] {expr=\"t0 = frob(i0)\", shape=[3]}", "there is no op `frob`"},
      {"fused", "f32[3] {expr=\"t0 = add(i0, t1)\", shape=[3]}", "used before it is defined"},
      {"fused", "f32[3] {expr=\"t0 = add(i0)\", shape=[3]}", "2 operands are needed"},
      {"fused", "f32[3] {expr=\"t0 = softmax(i0)\", shape=[3]}", "not pointwise"},
      {"fused", "f32[3] {expr=\"t0 = relu(i0)\", shape=[4]}", "does not broadcast"},
      {"fused", "f32[3] {expr=\"t0 = relu(i1)\", shape=[3]}", "uses 2 inputs"},
      {"reduce", "f32[3] {kind=\"sum\", axes=[1]}", "axis 1 does not exist"},
      {"reduce", "f32[3,4] {kind=\"sum\", axes=[1,-1]}", "stands twice"},
      {"reduce", "f32[3] {kind=\"prod\", axes=[0]}", "use sum, mean or max"},
      {"max_pool", "f32[1,4,4,1] {kernel=[2,2], pad=[2,0,0,0]}", "smaller than the kernel"},
      {"softmax_xent", "f32[4,10], f32[4], f32[4], f32[]", "labels must be i32[4]"},
      {"softmax_xent", "f32[4,10], i32[4], f32[3], f32[]", "weight must be f32[4]"},
      {"metrics", "f32[3], f32[5], f32[5], f32[5], f32[]", "totals must be f32[4]"},
      {"concat", "f32[2,3], f32[3,3] {axis=1}", "must equal the first but for axis 1"},
      {"split", "f32[2,3] {axis=1, sizes=[1,1]}", "add up to 2"},
      {"reshape", "f32[2,3] {shape=[5]}", "the products must agree"},
      {"transpose", "f32[2,3] {perm=[0,0]}", "each axis of x once"},
      {"one_hot", "f32[4] {classes=3}", "ids must be i32"},
      {"gather_grad", "i32[4], f32[3,5] {rows=7}", "dy must be [4,5]"},
      {"dropout", "f32[4], i32[], i32[], i32[] {p=1, stream=0}", "less than 1"},
      {"sgd", "f32[], f32[3], f32[4]", "must be f32[3] as the parameter is"},
      {"sgd", "f32[], f32[3], f32[3] {momentum=0.9}", "3 operands for each parameter"},
      {"sgd", "f32[], f32[3], f32[3] {nesterov=1}", "nesterov needs a momentum"},
      {"adam", "f32[], f32[], f32[3], f32[3], f32[3] {beta1=0.9, beta2=0.999, eps=1.0e-8}", "w, g, m and v"},
      {"adam", "f32[], f32[], f32[3], f32[3], f32[3], f32[3] {beta1=0.9, eps=1.0e-8}", "attribute `beta2` is missing"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(fmt::format("{}({})", c.op, c.operands));
    try {
      oracle::single(ops::get(c.op), oracle::examples_from(c.op, c.operands).at(0));
      ADD_FAILURE() << "accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::user);
      EXPECT_NE(std::string(e.what()).find(c.sentence), std::string::npos) << e.what();
    }
  }
}

TEST(Ops, UnknownNameSuggestsTheNearest) {
  EXPECT_THROW(ops::get("conv2"), Error);
  try {
    ops::get("sofmax");
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("`softmax`"), std::string::npos);
  }
}

// --- small languages and geometry ---

TEST(Expr, RoundTrips) {
  const std::string text = "t0 = add(i0, i1); t1 = relu(t0); t2 = mul(t1, 0x1p-1)";
  const ops::Expr expr = ops::parse_expr(text);
  EXPECT_EQ(ops::print(expr), text);
  EXPECT_EQ(expr.inputs, 2);
  EXPECT_EQ(ops::print(ops::parse_expr("t0=select( i0 ,-1, 2.5 )")), "t0 = select(i0, -0x1p+0, 0x1.4p+1)");
  EXPECT_EQ(ops::print(ops::expr_of("sub", {}, 2)), "t0 = sub(i0, i1)");
  EXPECT_THROW(ops::parse_expr(""), Error);
  EXPECT_THROW(ops::parse_expr("t1 = relu(i0)"), Error);
  EXPECT_THROW(ops::parse_expr("t0 = relu(i0) t1 = relu(t0)"), Error);
}

TEST(Window, TapsAndOutputsAreInverse) {
  for (int64_t stride : {1, 2, 3})
    for (int64_t dilation : {1, 2, 4})
      for (int64_t before : {0, 1, 5})
        for (int64_t kernel : {1, 2, 3}) {
          const ops::Attrs attrs{{"stride", ops::Ints{stride, 1}},
                                 {"dilation", ops::Ints{dilation, 1}},
                                 {"pad", ops::Ints{before, 0, 6, 0}}};
          const ops::WindowAxis w = ops::window_of(attrs, {7, 1}, {kernel, 1}).y;
          for (int64_t o = 0; o < w.out; ++o)
            for (int64_t k = 0; k < w.kernel; ++k) {
              const int64_t i = w.position(o, k);
              const bool inside = i >= 0 && i < w.in;
              EXPECT_EQ(inside, k >= w.taps_inside(o).begin && k < w.taps_inside(o).end);
              EXPECT_TRUE(!inside || w.output_at(i, k) == o);
            }
          for (int64_t i = 0; i < w.in; ++i)
            for (int64_t k = 0; k < w.kernel; ++k)
              EXPECT_TRUE(w.output_at(i, k) < w.out &&
                          (w.output_at(i, k) < 0 || w.position(w.output_at(i, k), k) == i));
        }
}

// --- by hand ---

TEST(ByHand, SoftmaxXent) {
  // exp(log 1), exp(log 2), exp(log 5) sum to 8; the second row has weight 0 and a label that is no class.
  const double a = std::log(1.0), b = std::log(2.0), c = std::log(5.0), nan = std::nan("");
  const Tensors y = run("softmax_xent", "f32[3,3], i32[3], f32[3], f32[]",
                        {{a, b, c, nan, 1, 2, 700, 700, -700}, {1, 9, 0}, {3, 0, 1}, {0.5}});
  expect_near(y[0], {1.5 * std::log(8.0 / 2), 0, 0.5 * std::log(2.0)});
  expect_near(y[1], {1.5 / 8, 1.5 * (2.0 / 8 - 1), 1.5 * 5 / 8, 0, 0, 0, -0.25, 0.25, 0});
  const Tensors unknown = run("softmax_xent", "f32[2,2], i32[2], f32[2], f32[]", {{1, 1, 2, 2}, {2, -1}, {1, 1}, {1}});
  EXPECT_TRUE(std::isnan(unknown[0][0]) && std::isnan(unknown[0][1]));
  expect_near(unknown[1], {0.5, 0.5, 0.5, 0.5});
}

TEST(ByHand, AccuracyCountsTheFirstMaximum) {
  expect_near(run("accuracy", "f32[4,3], i32[4], f32[4]",
                  {{1, 2, 2, 1, 2, 2, 3, 1, 2, -1, -2, -3}, {1, 2, 0, 3}, {2, 2, 0.5, 1}})[0],
              {2, 0, 0.5, 0});
}

TEST(ByHand, Metrics) {
  expect_near(run("metrics", "f32[4], f32[3], f32[3], f32[3], f32[]",
                  {{10, 20, 30, 99}, {1, 2, 3}, {1, 0, 1}, {1, 1, 0}, {0.5}})[0],
              {10 + 6 / 0.5, 22, 32, 6});
}

TEST(ByHand, Conv2dOfAThreeByThreeImage) {
  const Tensor image{1, 2, 3, 4, 5, 6, 7, 8, 9}, corner{1, 0, 0, 0, 0, 0, 0, 0, -1}, ones(9, 1);
  const std::string_view padded = "f32[1,3,3,1], f32[3,3,1,1] {pad=[1,1,1,1]}";
  expect_near(run("conv2d", "f32[1,3,3,1], f32[3,3,1,1]", {image, corner})[0], {1 - 9});
  expect_near(run("conv2d", padded, {image, ones})[0], {12, 21, 16, 27, 45, 33, 24, 39, 28});
  expect_near(run("conv2d", padded, {image, corner})[0], {-5, -6, 0, -8, 1 - 9, 2, 0, 4, 5});  // not flipped
  expect_near(run("conv2d", "f32[1,3,3,1], f32[2,2,1,1] {stride=[2,2], pad=[0,0,1,1]}", {image, {1, 10, 100, 1000}})[0],
              {1 + 20 + 400 + 5000, 3 + 600, 7 + 80, 9});
  expect_near(run("conv2d", "f32[1,3,3,1], f32[2,2,1,1] {dilation=[2,2]}", {image, {1, 10, 100, 1000}})[0],
              {1 + 30 + 700 + 9000});
  expect_near(run("conv2d", "f32[1,1,1,2], f32[1,1,1,4] {groups=2}", {{3, 5}, {1, 2, 10, 20}})[0], {3, 6, 50, 100});
}

TEST(ByHand, EpilogueAppliesInOrder) {
  const Tensors operands{{2}, {3, -3}, {1, 1}, {10, 10}};
  const std::string types = "f32[1,1], f32[1,2], f32[2], f32[1,2] ";
  expect_near(run("matmul", types + "{epilogue=\"bias+relu+residual\"}", operands)[0], {17, 10});
  expect_near(run("matmul", types + "{epilogue=\"bias+residual+relu6\"}", operands)[0], {6, 5});
  expect_near(run("matmul", "f32[1,1], f32[1,2], f32[1,2] {epilogue=\"mask\"}", {{2}, {3, -3}, {0, 1}})[0], {0, -6});
}

TEST(ByHand, MaxPoolTakesTheFirstMaximum) {
  const Tensor x{1, 5, 5, 2, 5, 0, 1, 1, -1, -1, -2, -1, -1, -1, -1, -3};
  const std::string_view geometry = "f32[1,4,4,1] {kernel=[2,2], stride=[2,2]}";
  expect_near(run("max_pool", geometry, {x})[0], {5, 5, -1, -1});
  expect_near(run("max_pool_grad", "f32[1,4,4,1], f32[1,2,2,1] {kernel=[2,2], stride=[2,2]}", {x, {1, 2, 3, 4}})[0],
              {0, 1, 2, 0, 0, 0, 0, 0, 3, 0, 0, 4, 0, 0, 0, 0});
  // Padding never wins, even over negative numbers.
  expect_near(run("max_pool", "f32[1,1,2,1] {kernel=[1,3], pad=[0,1,0,1]}", {{-4, -3}})[0], {-3, -3});
  expect_near(run("avg_pool", "f32[1,1,2,1] {kernel=[1,3], pad=[0,1,0,1]}", {{-4, -2}})[0], {-3, -3});
  expect_near(run("avg_pool", "f32[1,1,2,1] {kernel=[1,3], pad=[0,1,0,1], count_pad=1}", {{-4, -2}})[0], {-2, -2});
}

TEST(ByHand, SgdOverTwoSteps) {
  auto plain = [](std::string_view attrs, double w, double g) {
    return run("sgd", fmt::format("f32[], f32[1], f32[1] {}", attrs), {{0.1}, {w}, {g}})[0][0];
  };
  EXPECT_NEAR(plain("", 1, 0.5), 0.95, 1e-15);
  EXPECT_NEAR(plain("{decay=0.2}", 1, 0.5), 1 - 0.1 * 0.7, 1e-15);
  auto two_steps = [](std::string_view attrs) {
    const std::string types = fmt::format("f32[], f32[1], f32[1], f32[1] {}", attrs);
    const Tensors first = run("sgd", types, {{0.1}, {1}, {0.5}, {0}});
    return run("sgd", types, {{0.1}, first[0], {0.25}, first[1]});
  };
  const Tensors heavy = two_steps("{momentum=0.8}");  // m: 0.5, then 0.65; w: 0.95, then 0.885
  EXPECT_NEAR(heavy[1][0], 0.65, 1e-15);
  EXPECT_NEAR(heavy[0][0], 0.885, 1e-15);
  const Tensors nesterov = two_steps("{momentum=0.8, nesterov=1}");  // steps 0.5+0.4, 0.25+0.52
  EXPECT_NEAR(nesterov[0][0], 1 - 0.09 - 0.077, 1e-15);
  const Tensors decay = two_steps("{momentum=0.8, decay=0.5}");  // g: 1, w: 0.9; then g: 0.7, m: 1.5, w: 0.75
  EXPECT_NEAR(decay[1][0], 1.5, 1e-15);
  EXPECT_NEAR(decay[0][0], 0.75, 1e-15);
}

TEST(ByHand, AdamOverTwoSteps) {
  auto two_steps = [](double decay, int decoupled) {
    const std::string types = fmt::format(
        "f32[], f32[], f32[1], f32[1], f32[1], f32[1] {{beta1=0.5, beta2=0.75, eps=0.25, decay={:a}, decoupled={}}}",
        decay, decoupled);
    const Tensors first = run("adam", types, {{0.1}, {0}, {1}, {2}, {0}, {0}});
    return run("adam", types, {{0.1}, {1}, first[0], {-1}, first[1], first[2]});
  };
  // Step 1: m=1, v=1, corrected 2 and 4, step 0.1*2/2.25. Step 2: m=0, v=1: no move.
  const Tensors adam = two_steps(0, 0);
  EXPECT_NEAR(adam[1][0], 0, 1e-15);
  EXPECT_NEAR(adam[2][0], 1, 1e-15);
  EXPECT_NEAR(adam[0][0], 1 - 0.2 / 2.25, 1e-15);
  // AdamW: each step first shrinks w by 1 - 0.1*0.5.
  EXPECT_NEAR(two_steps(0.5, 1)[0][0], (0.95 - 0.2 / 2.25) * 0.95, 1e-15);
  // Coupled: g = 2.5, m = 1.25, v = 25/16, corrected 2.5 and 6.25, w = 1 - 0.25/2.75; then g = -1 + w/2.
  const double w1 = 1 - 0.25 / 2.75, g2 = -1 + w1 / 2, m2 = 0.625 + g2 / 2, v2 = 0.75 * 25 / 16 + g2 * g2 / 4;
  const Tensors coupled = two_steps(0.5, 0);
  EXPECT_NEAR(coupled[1][0], m2, 1e-15);
  EXPECT_NEAR(coupled[2][0], v2, 1e-15);
  EXPECT_NEAR(coupled[0][0], w1 - 0.1 * (m2 / 0.75) / (std::sqrt(v2 / 0.4375) + 0.25), 1e-15);
}

TEST(ByHand, DropoutKeepsAShareAndOneMask) {
  constexpr size_t kCount = 20000;
  auto dropped = [](double fill, double seed, double step, double micro, int stream) {
    return run("dropout", fmt::format("f32[20000], i32[], i32[], i32[] {{p=0.25, stream={}}}", stream),
               {Tensor(kCount, fill), {seed}, {step}, {micro}})[0];
  };
  const Tensor y = dropped(3, 1, 2, 3, 4), dx = dropped(-1, 1, 2, 3, 4);
  size_t kept = 0;
  for (size_t i = 0; i < kCount; ++i) {
    ASSERT_TRUE(y[i] == 0 || y[i] == 4);
    ASSERT_EQ(dx[i] != 0, y[i] != 0);
    kept += y[i] != 0;
  }
  EXPECT_NEAR(static_cast<double>(kept) / kCount, 0.75, 0.01);  // three standard deviations
  for (const Tensor& other :
       {dropped(3, 2, 2, 3, 4), dropped(3, 1, 3, 3, 4), dropped(3, 1, 2, 4, 4), dropped(3, 1, 2, 3, 5)}) {
    size_t same = 0;
    for (size_t i = 0; i < kCount; ++i) same += (other[i] != 0) == (y[i] != 0);
    EXPECT_NEAR(static_cast<double>(same) / kCount, 0.625, 0.012);  // independent masks agree so often
  }
}

TEST(ByHand, GatherAndOneHotIgnoreStrangeIds) {
  expect_near(run("gather", "f32[2,2], i32[4]", {{1, 2, 3, 4}, {1, 2, -1, 0}})[0], {3, 4, 0, 0, 0, 0, 1, 2});
  expect_near(run("gather_grad", "i32[4], f32[4,1] {rows=2}", {{1, 2, -1, 1}, {1, 10, 100, 1000}})[0], {0, 1001});
  expect_near(run("one_hot", "i32[3] {classes=2}", {{1, 2, -1}})[0], {0, 1, 0, 0, 0, 0});
}

TEST(ByHand, TiesInAMaximumShareItsGradient) {
  ir::Graph graph;
  const ir::Value x = graph.input("x", f32({4})), dy = graph.input("dy", f32({}));
  ops::emit(graph, "reduce", {x}, {{"kind", "max"}, {"axes", ops::Ints{0}}});
  ops::GradBuilder builder(graph, graph.nodes.back(), {dy}, {true});
  ops::get("reduce").grad(builder);
  const Tensors values = oracle::evaluate(graph, {{"x", {1, 3, 3, 2}}, {"dy", {8}}});
  expect_near(values[static_cast<size_t>(builder.dins()[0])], {0, 4, 4, 0});
}

}  // namespace
}  // namespace situ
