// op_values_test.cpp -- results of the ops' references computed by hand. A reference and its gradient can agree and
// both be wrong; these numbers say what each formula means.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "oracle.h"

namespace situ {
namespace {

using oracle::Tensor;
using oracle::Tensors;

// Runs an op on given operands; `text` describes their types and the attributes.
Tensors run(std::string_view op, std::string_view text, const Tensors& inputs) {
  const auto examples = oracle::examples_from(op, text);
  return oracle::run(oracle::single(ops::get(op), examples.at(0)).view(), inputs);
}

void expect_near(const Tensor& found, const Tensor& expected, double tolerance = 1e-12) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], tolerance) << "element " << i;
}

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

TEST(ByHand, PointwiseFunctions) {
  const struct {
    const char* op;
    std::vector<double> args;
    double expected;
  } cases[] = {{"neg", {2}, -2},
               {"exp", {1}, 2.718281828459045},
               {"log", {8}, 2.0794415416798357},
               {"sqrt", {9}, 3},
               {"rsqrt", {4}, 0.5},
               {"reciprocal", {-4}, -0.25},
               {"abs", {-3}, 3},
               {"square", {-3}, 9},
               {"relu", {-1}, 0},
               {"relu", {2}, 2},
               {"relu6", {-1}, 0},
               {"relu6", {7}, 6},
               {"relu6", {5}, 5},
               {"sigmoid", {0}, 0.5},
               {"sigmoid", {1}, 0.7310585786300049},
               {"tanh", {1}, 0.7615941559557649},
               {"silu", {1}, 0.7310585786300049},
               {"erf", {1}, 0.8427007929497149},
               {"gelu", {1}, 0.8413447460685429},
               {"gelu", {-1}, -0.15865525393145705},
               {"gelu_slope", {1}, 1.0833154705876864},
               {"gelu_tanh", {1}, 0.8411919906082767},
               {"gelu_tanh_slope", {1}, 1.0829640838457826},
               {"softplus", {1}, 1.3132616875182228},
               {"softplus", {800}, 800},
               {"hard_sigmoid", {1.5}, 0.75},
               {"hard_sigmoid", {-4}, 0},
               {"hard_swish", {-1.5}, -0.375},
               {"hard_swish", {5}, 5},
               {"hard_swish_slope", {1.5}, 1},
               {"hard_swish_slope", {-4}, 0},
               {"hard_swish_slope", {4}, 1},
               {"add", {2, 3}, 5},
               {"sub", {2, 3}, -1},
               {"mul", {2, 3}, 6},
               {"div", {3, 2}, 1.5},
               {"max", {2, 3}, 3},
               {"min", {2, 3}, 2},
               {"greater", {3, 2}, 1},
               {"greater", {2, 2}, 0},
               {"equal", {2, 2}, 1},
               {"equal", {3, 2}, 0},
               {"relu_mask", {5, 1}, 5},
               {"relu_mask", {5, 0}, 0},
               {"relu6_mask", {5, 3}, 5},
               {"relu6_mask", {5, 6}, 0},
               {"relu6_mask", {5, 0}, 0},
               {"select", {-1, 2, 3}, 2},
               {"select", {0, 2, 3}, 3},
               {"leaky_relu", {-2, 0.25}, -0.5},
               {"leaky_relu", {3, 0.25}, 3},
               {"elu", {-1, 2}, -1.2642411176571153},
               {"elu", {3, 2}, 3},
               {"normalize", {7, 3, 0.5, 2, 10}, 14},
               {"norm_dx", {5, 7, 3, 0.5, 2, 4, 6, 0.25}, 1.5}};
  std::set<std::string_view> covered;
  for (const auto& c : cases) {
    SCOPED_TRACE(c.op);
    EXPECT_NEAR(ops::get(c.op).scalar(c.args.data()), c.expected, 1e-15);
    covered.insert(c.op);
  }
  for (const ops::OpDef* op : ops::all_ops()) EXPECT_TRUE(!op->scalar || covered.contains(op->name)) << op->name;
}

TEST(ByHand, MatmulTransposesWhatItIsTold) {
  const Tensor a{1, 2, 3, 4, 5, 6}, b{1, 10, 100, 1000, 10000, 100000};
  expect_near(run("matmul", "f32[2,3], f32[3,1]", {a, {1, 100, 10000}})[0], {30201, 60504});
  expect_near(run("matmul", "f32[2,3], f32[3,2]", {a, b})[0],
              {1 + 200 + 30000, 10 + 2000 + 300000, 4 + 500 + 60000, 40 + 5000 + 600000});
  expect_near(run("matmul", "f32[2,3], f32[2,3] {tb=1}", {a, b})[0], {321, 321000, 654, 654000});
  expect_near(run("matmul", "f32[3,2], f32[3,2] {ta=1}", {a, b})[0], {50301, 503010, 60402, 604020});
  expect_near(run("matmul", "f32[3,2], f32[2,3] {ta=1, tb=1}", {a, b})[0], {531, 531000, 642, 642000});
}

TEST(ByHand, ShapesAndAxes) {
  const Tensor x{1, 2, 3, 4, 5, 6};
  expect_near(run("bias", "f32[2,3], f32[3]", {x, {10, 20, 30}})[0], {11, 22, 33, 14, 25, 36});
  expect_near(run("transpose", "f32[2,3] {perm=[1,0]}", {x})[0], {1, 4, 2, 5, 3, 6});
  expect_near(run("transpose", "f32[1,2,3] {perm=[2,0,1]}", {x})[0], {1, 4, 2, 5, 3, 6});
  expect_near(run("transpose", "f32[3,1,2] {perm=[2,0,1]}", {x})[0], {1, 3, 5, 2, 4, 6});
  expect_near(run("concat", "f32[2,1], f32[2,2] {axis=1}", {{1, 4}, {2, 3, 5, 6}})[0], x);
  const Tensors parts = run("split", "f32[2,3] {axis=1, sizes=[1,2]}", {x});
  expect_near(parts[0], {1, 4});
  expect_near(parts[1], {2, 3, 5, 6});
  expect_near(run("reduce", "f32[2,3] {kind=\"sum\", axes=[0]}", {x})[0], {5, 7, 9});
  expect_near(run("reduce", "f32[2,3] {kind=\"sum\", axes=[1]}", {x})[0], {6, 15});
  expect_near(run("reduce", "f32[2,3] {kind=\"mean\", axes=[0,1]}", {x})[0], {3.5});
  expect_near(run("reduce", "f32[2,3] {kind=\"max\", axes=[-1], keep=1}", {x})[0], {3, 6});
  expect_near(run("add", "f32[2,1], f32[3]", {{10, 20}, {1, 2, 3}})[0], {11, 12, 13, 21, 22, 23});
  expect_near(run("fused", "f32[2,1], f32[3] {expr=\"t0 = mul(i0, i1); t1 = sub(t0, i1)\", shape=[2,3]}",
                  {{2, 3}, {1, 2, 3}})[0],
              {1, 2, 3, 2, 4, 6});
}

TEST(ByHand, Softmax) {
  const double a = std::log(1.0), b = std::log(2.0), c = std::log(5.0);
  expect_near(run("softmax", "f32[2,3]", {{a, b, c, 900 + c, 900 + c, 900 + c}})[0],
              {1.0 / 8, 2.0 / 8, 5.0 / 8, 1.0 / 3, 1.0 / 3, 1.0 / 3});
  // sum(y * dy) = 0.5 * 2 + 0.5 * 4 = 3
  expect_near(run("softmax_grad", "f32[1,2], f32[1,2]", {{0.5, 0.5}, {2, 4}})[0], {-0.5, 0.5});
}

TEST(ByHand, EpilogueAppliesInOrder) {
  const Tensors operands{{2}, {3, -3}, {1, 1}, {10, 10}};
  const std::string types = "f32[1,1], f32[1,2], f32[2], f32[1,2] ";
  expect_near(run("matmul", types + "{epilogue=\"bias+relu+residual\"}", operands)[0], {17, 10});
  expect_near(run("matmul", types + "{epilogue=\"bias+residual+relu6\"}", operands)[0], {6, 5});
  expect_near(run("matmul", "f32[1,1], f32[1,4], f32[1,4] {epilogue=\"mask6\"}", {{2}, {3, 4, 5, 6}, {0, 1, 5, 6}})[0],
              {0, 8, 10, 0});
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
