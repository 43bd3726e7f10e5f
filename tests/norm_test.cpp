// norm_test.cpp -- norms, slices and upsampling by hand, and what their parts fuse into.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "grad/reverse.h"
#include "harness.h"
#include "model/model_file.h"
#include "model/partial.h"
#include "oracle.h"
#include "step/compile.h"
#include "step/programs.h"
#include "step/run.h"

namespace situ::test {
namespace {

using oracle::Tensor;
using oracle::Tensors;

Tensors run(std::string_view op, std::string_view text, const Tensors& inputs) {
  const auto examples = oracle::examples_from(op, text);
  return oracle::run(oracle::single(ops::get(op), examples.at(0)).view(), inputs);
}
void expect_near(const Tensor& found, const Tensor& expected, double tolerance = 1e-12) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], tolerance) << "element " << i;
}

// --- values ---

TEST(NormsByHand, StatisticsBelongToColumnsRowsOrGroups) {
  const double s = 1;  // variances of 0.25: rstd = 1
  const Tensors batch = run("batch_norm", "f32[2,2], f32[2], f32[2] {eps=0.75}", {{1, 5, 2, 6}, {2, 4}, {10, 20}});
  expect_near(batch[0], {10 - s, 20 - 2 * s, 10 + s, 20 + 2 * s});
  expect_near(batch[1], {1.5, 5.5});
  expect_near(batch[2], {0.5, 0.5});  // of a sample of two: twice the biased one
  const Tensors layer = run("layer_norm", "f32[2,2], f32[2], f32[2] {eps=0.75}", {{1, 2, 5, 6}, {2, 4}, {10, 20}});
  expect_near(layer[0], {10 - s, 20 + 2 * s, 10 - s, 20 + 2 * s});
  expect_near(layer[1], {1.5, 5.5});
  const Tensors rms = run("rms_norm", "f32[1,2], f32[2] {eps=3.5}", {{3, 4}, {1, 10}});  // mean of squares 12.5
  expect_near(rms[0], {3.0 / 4, 40.0 / 4});
  const Tensors group = run("group_norm", "f32[1,2,4], f32[4], f32[4] {groups=2, eps=0.75}",
                            {{1, 2, 5, 5, 2, 1, 6, 6}, {1, 1, 1, 2}, {0, 0, 0, 0}});
  expect_near(group[0], {-0.5, 0.5, -0.5, -1, 0.5, -0.5, 0.5, 1});
  expect_near(group[1], {1.5, 5.5});
}

TEST(NormsByHand, Upsample) {
  expect_near(run("upsample", "f32[1,1,3,1] {factor=[1,2], mode=\"bilinear\"}", {{1, 2, 4}})[0],
              {1, 1.25, 1.75, 2.5, 3.5, 4});
  expect_near(run("upsample", "f32[1,2,1,1] {factor=[3,1], mode=\"nearest\"}", {{1, 2}})[0], {1, 1, 1, 2, 2, 2});
  expect_near(run("upsample_grad", "f32[1,1,4,1] {factor=[1,2], mode=\"bilinear\"}", {{1, 10, 100, 1000}})[0],
              {1 + 7.5 + 25, 2.5 + 75 + 1000});
}

TEST(NormsByHand, PadAndSlice) {
  expect_near(run("pad", "f32[1,2] {before=[1,0], after=[0,1]}", {{1, 2}})[0], {0, 0, 0, 1, 2, 0});
  expect_near(run("slice", "f32[2,3] {begin=[1,1], size=[1,2]}", {{1, 2, 3, 4, 5, 6}})[0], {5, 6});
}

// --- a norm that goes into the weights before it ---

double wave(size_t i, double step) { return std::sin(step * static_cast<double>(i) + 0.3) + 0.2; }
Tensor waves(size_t count, double step) {
  Tensor t(count);
  for (size_t i = 0; i < count; ++i) t[i] = wave(i, step);
  return t;
}

// A norm behind a 1x1 convolution, as it is or by way of x's covariance: y, the running statistics' fresh values and
// all gradients of a loss that weighs every element of y differently, as outputs.
struct Product {
  int64_t images = 2, side = 5, inner = 3, cols = 14;
  int64_t pixels() const { return images * side * side; }
};
constexpr const char* kOutputs[] = {"y", "mean", "var", "dx", "dw", "dgamma", "dbeta"};

ir::Graph normalized_product(const Product& p, bool by_statistics_of_x) {
  ir::Graph graph;
  const ir::Value x = graph.input("x", f32({p.images, p.side, p.side, p.inner}));
  const ir::Value w = graph.input("w", f32({1, 1, p.inner, p.cols}));
  const ir::Value gamma = graph.input("gamma", f32({p.cols})), beta = graph.input("beta", f32({p.cols}));
  const ir::Value weigh = graph.input("weigh", f32({p.images, p.side, p.side, p.cols}));
  ir::Value y, mean, var;
  if (by_statistics_of_x) {
    const ir::Values of_x = ops::emit_all(graph, "covariance", {x});
    const ir::Values into =
        ops::emit_all(graph, "norm_weights", {of_x[0], of_x[1], w, gamma, beta}, {{"eps", 1e-3}, {"rows", p.pixels()}});
    y = ops::emit(graph, "bias", {ops::emit(graph, "conv2d", {x, into[0]}), into[1]});
    mean = into[2], var = into[3];
  } else {
    const ir::Values all =
        ops::emit_all(graph, "batch_norm", {ops::emit(graph, "conv2d", {x, w}), gamma, beta}, {{"eps", 1e-3}});
    y = all[0], mean = all[1], var = all[2];
  }
  const ir::Value loss = ops::emit(graph, "reduce", {ops::emit(graph, "mul", {ops::emit(graph, "square", {y}), weigh})},
                                   {{"kind", "sum"}, {"axes", ir::Ints{0, 1, 2, 3}}});
  const ir::Values d = grad::gradients(graph, loss, {x, w, gamma, beta});
  const ir::Values outputs = {y, mean, var, d[0], d[1], d[2], d[3]};
  for (size_t i = 0; i < outputs.size(); ++i) graph.output(kOutputs[i], outputs[i]);
  return graph;
}

std::map<std::string, Tensor> operands_of(const Product& p) {
  const auto count = [](int64_t n) { return static_cast<size_t>(n); };
  return {{"x", waves(count(p.pixels() * p.inner), 1.7)},
          {"w", waves(count(p.inner * p.cols), 0.9)},
          {"gamma", waves(count(p.cols), 0.4)},
          {"beta", waves(count(p.cols), 2.3)},
          {"weigh", waves(count(p.pixels() * p.cols), 0.11)}};
}

TEST(NormIntoWeights, IsTheSameNorm) {
  const Product p;
  device::Device* oracle = device_under_test("ref");
  if (!oracle) GTEST_SKIP() << "ref is left out by SITU_TEST_DEVICES";
  const auto expected = step::run_once(*oracle, normalized_product(p, false), operands_of(p));
  const auto found = step::run_once(*oracle, normalized_product(p, true), operands_of(p));
  for (const char* name : kOutputs) {
    SCOPED_TRACE(name);
    expect_near(found.at(name), expected.at(name), 1e-9);
  }
}

double norm(const Tensor& t) {
  double sum = 0;
  for (double v : t) sum += v * v;
  return std::sqrt(sum);
}

// In f32, far from 0, with the first pixel farther still: of sums about it, or about 0, few digits would be left. The
// gradients' terms cancel more than those of a norm that sees the product: 70 times its error was seen for dw.
class NormIntoWeightsOn : public testing::TestWithParam<const char*> {};
TEST_P(NormIntoWeightsOn, IsExactFarFromZero) {
  device::Device *device = device_under_test(GetParam()), *oracle = device_under_test("ref");
  if (!device || !oracle) GTEST_SKIP() << GetParam() << " is left out by SITU_TEST_DEVICES";
  const Product p{.images = 3, .side = 24, .inner = 17, .cols = 70};
  std::map<std::string, Tensor> operands = operands_of(p);
  Tensor& x = operands["x"];
  for (double& v : x) v = static_cast<float>(v + 10);
  for (size_t i = 0; i < static_cast<size_t>(p.inner); ++i) x[i] = static_cast<float>(-100 + 10 * wave(i, 1));
  const auto expected = step::run_once(*oracle, normalized_product(p, false), operands);
  const auto plain = step::run_once(*device, normalized_product(p, false), operands);
  const auto found = step::run_once(*device, normalized_product(p, true), operands);
  for (const char* name : kOutputs) {
    const auto error = [&](const Tensor& t) {
      Tensor difference = t;
      for (size_t i = 0; i < t.size(); ++i) difference[i] -= expected.at(name)[i];
      return norm(difference) / norm(expected.at(name));
    };
    const bool gradient = name[0] == 'd';
    EXPECT_LT(error(found.at(name)), (gradient ? 100 : 6) * error(plain.at(name)) + 1e-6) << name;
  }
}
INSTANTIATE_TEST_SUITE_P(Devices, NormIntoWeightsOn, testing::Values("cpu", "opencl"));

// A product that does not vary may seem to vary by less than nothing; running statistics must not learn that.
TEST_P(NormIntoWeightsOn, KeepsNoNegativeVariance) {
  device::Device* device = device_under_test(GetParam());
  if (!device) GTEST_SKIP() << GetParam() << " is left out by SITU_TEST_DEVICES";
  ir::Graph graph;
  const ir::Value mean = graph.input("m", f32({2})), cov = graph.input("c", f32({2, 2}));
  const ir::Value w = graph.input("w", f32({2, 1})), one = graph.input("one", f32({1}));
  const ir::Values into =
      ops::emit_all(graph, "norm_weights", {mean, cov, w, one, one}, {{"eps", 0.25}, {"rows", int64_t{8}}});
  graph.output("var", into[3]);
  graph.output("rstd", into[4]);
  const auto found =
      step::run_once(*device, graph, {{"m", {0, 0}}, {"c", {1, 1.001, 1.001, 1}}, {"w", {1, -1}}, {"one", {1}}});
  EXPECT_EQ(found.at("var"), Tensor{0});
  EXPECT_EQ(found.at("rstd"), Tensor{2});
}

// A model of an image of 8 x 8, a convolution, a norm and a mean.
struct ConvNorm {
  int64_t channels = 8, results = 40;
  std::string conv = R"("kernel": 1, "bias": 0)";
  int64_t batch = 2;
  std::string train = "all";
};
bool looks_at_the_product(const ConvNorm& c) {
  const std::string text = fmt::format(
      R"({{"input": [8, 8, {}], "classes": {}, "layers": [{{"name": "conv", "kind": "conv", "channels": {}, {}}},)"
      R"({{"name": "bn", "kind": "batch_norm"}}, {{"kind": "global_pool"}}]}})",
      c.channels, c.results, c.results, c.conv);
  const model::Model model = model::parse_model(text, "test");
  const ir::Graph graph = step::train_program({model, c.batch, {}, model::parse_partial(model, c.train)});
  const auto has = [&](std::string_view op) {
    return std::ranges::any_of(graph.nodes, [&](const ir::Node& node) { return node.op == op; });
  };
  EXPECT_NE(has("batch_norm"), has("norm_weights"));
  return has("batch_norm");
}

TEST(NormIntoWeights, OnlyWhereAnImageIsNarrowAndLarge) {
  EXPECT_FALSE(looks_at_the_product({}));  // 128 pixels, 8 to 40 channels
  EXPECT_TRUE(looks_at_the_product({.batch = 1}));
  EXPECT_FALSE(looks_at_the_product({.results = 32}));
  EXPECT_TRUE(looks_at_the_product({.results = 31}));
  EXPECT_FALSE(looks_at_the_product({.channels = 64, .results = 256, .batch = 16}));
  EXPECT_TRUE(looks_at_the_product({.channels = 65, .results = 260, .batch = 32}));
}

TEST(NormIntoWeights, OnlyBehindATrained1x1ConvolutionOfEveryPixel) {
  for (const char* conv :
       {R"("kernel": 3, "bias": 0)", R"("kernel": 1, "stride": 2, "bias": 0)", R"("kernel": 1, "groups": 2, "bias": 0)",
        R"("kernel": 1, "pad": 1, "bias": 0)", R"("kernel": 1, "bias": 1)"})
    EXPECT_TRUE(looks_at_the_product({.conv = conv, .batch = 16})) << conv;
  EXPECT_TRUE(looks_at_the_product({.train = "bn.*"}));  // it would need the gradient of the weights
  EXPECT_FALSE(looks_at_the_product({.train = "conv.*,bn.*"}));
}

// --- launches ---

std::vector<std::string> launches(const ir::Graph& graph) {
  std::vector<std::string> names;
  const step::Compiled compiled = step::compile({graph}, *device_under_test("cpu"), {});
  for (const device::LaunchSpec& launch : compiled.programs[0].launches) names.push_back(launch.node.op);
  return names;
}
using Names = std::vector<std::string>;

// relu(batch_norm(x) + residual), x given a gradient: the pointwise halves take in what stands around them.
TEST(NormFusion, BatchNormTakesInItsNeighbours) {
  if (!device_under_test("cpu")) GTEST_SKIP() << "cpu is left out by SITU_TEST_DEVICES";
  ir::Graph graph;
  const Type image = f32({4, 8, 8, 16}), channels = f32({16});
  const ir::Value x = graph.input("x", image), residual = graph.input("r", image);
  const ir::Value gamma = graph.input("gamma", channels), beta = graph.input("beta", channels);
  const ir::Value normal = ops::emit(graph, "batch_norm", {x, gamma, beta}, {{"eps", 1e-5}});
  graph.output("y", ops::emit(graph, "relu", {ops::emit(graph, "add", {normal, residual})}));
  EXPECT_EQ(launches(graph), (Names{"moments", "fused"}));
}

TEST(NormFusion, BatchNormGradientIsTwoLaunches) {
  if (!device_under_test("cpu")) GTEST_SKIP() << "cpu is left out by SITU_TEST_DEVICES";
  for (const bool wants_dx : {true, false}) {
    ir::Graph graph;
    const Type image = f32({4, 8, 8, 16}), channels = f32({16});
    ir::Values in{graph.input("x", image), graph.input("dy", image)};
    for (const char* name : {"mean", "rstd", "gamma"}) in.push_back(graph.input(name, channels));
    const ir::Values d = ops::emit_all(graph, "batch_norm_grad", in);
    if (wants_dx) graph.output("dx", ops::emit(graph, "mul", {d[0], graph.constant(2, f32({}))}));
    graph.output("dgamma", d[1]);
    EXPECT_EQ(launches(graph), wants_dx ? (Names{"norm_sums", "fused"}) : (Names{"norm_sums"}));
  }
}

// What OpenCL makes of the graph before it is lowered: ops alone.
std::vector<std::string> rewritten(const ir::Graph& graph) {
  std::vector<std::string> names;
  for (const ir::Node& node : step::rewritten(graph, *device_under_test("opencl"), {}).nodes)
    if (ops::find(node.op)) names.push_back(node.op);
  return names;
}

struct Moments {
  ir::Graph graph;
  ir::Value x = graph.input("x", f32({4, 64})), other = graph.input("other", f32({4, 64}));
  ir::Values statistics = ops::emit_all(graph, "moments", {x}, {{"eps", 1e-5}});
  ir::Value centred() { return ops::emit(graph, "sub", {x, statistics[0]}); }
};

TEST(NormFusion, StatisticsAndTheirReaderAreOneNodeOnOpenCl) {
  if (!device_under_test("opencl")) GTEST_SKIP() << "opencl is left out by SITU_TEST_DEVICES";
  Moments m;
  m.graph.output("y", ops::emit(m.graph, "mul", {m.centred(), m.statistics[2]}));
  m.graph.output("var", m.statistics[1]);
  EXPECT_EQ(rewritten(m.graph), (Names{"moments_fused"}));
}

// The joined node stands where the function stood: behind this reader.
TEST(NormFusion, StatisticsReadBeforeStayApart) {
  if (!device_under_test("opencl")) GTEST_SKIP() << "opencl is left out by SITU_TEST_DEVICES";
  for (const size_t read : {size_t{0}, size_t{2}}) {
    Moments m;
    const ir::Value scale =
        ops::emit(m.graph, "reduce", {m.statistics[read]}, {{"axes", ir::Ints{0}}, {"kind", "sum"}});
    const ir::Value normal = ops::emit(m.graph, "mul", {m.centred(), m.statistics[2]});
    m.graph.output("y", ops::emit(m.graph, "mul", {normal, scale}));
    EXPECT_EQ(rewritten(m.graph), (Names{"moments", "reduce", "fused"})) << read;
  }
}

TEST(NormFusion, AVarianceInTheFunctionStaysApart) {
  if (!device_under_test("opencl")) GTEST_SKIP() << "opencl is left out by SITU_TEST_DEVICES";
  Moments m;
  m.graph.output("y", ops::emit(m.graph, "mul", {m.centred(), m.statistics[1]}));
  EXPECT_EQ(rewritten(m.graph), (Names{"moments", "fused"}));
}

TEST(NormFusion, AFunctionOfOtherImagesStaysApart) {
  if (!device_under_test("opencl")) GTEST_SKIP() << "opencl is left out by SITU_TEST_DEVICES";
  Moments m;
  m.graph.output("y", ops::emit(m.graph, "mul", {m.other, m.statistics[2]}));
  EXPECT_EQ(rewritten(m.graph), (Names{"moments", "mul"}));
}

TEST(NormFusion, ABatchNormOfEnoughColumnsIsOneLaunchOnOpenCl) {
  device::Device* device = device_under_test("opencl");
  if (!device) GTEST_SKIP() << "opencl is left out by SITU_TEST_DEVICES";
  const int64_t columns = 16 * device->target().tuning.get("columns.ITEMS", 1024);
  for (const bool enough : {true, false}) {
    ir::Graph graph;
    const Type image = f32({600, enough ? columns : 1}), channels = f32({image.shape.cols()});
    const ir::Value x = graph.input("x", image), gamma = graph.input("gamma", channels),
                    beta = graph.input("beta", channels);
    const ir::Values y = ops::emit_all(graph, "batch_norm", {x, gamma, beta}, {{"eps", 1e-5}});
    graph.output("y", ops::emit(graph, "relu", {y[0]}));
    Names names;
    const step::Compiled compiled = step::compile({graph}, *device, {});
    for (const device::LaunchSpec& launch : compiled.programs[0].launches) names.push_back(launch.node.op);
    EXPECT_EQ(names, enough ? (Names{"moments_fused"}) : (Names{"moments", "fused"}));
  }
}

TEST(NormFusion, GeluGradientIsOneLaunch) {
  if (!device_under_test("cpu")) GTEST_SKIP() << "cpu is left out by SITU_TEST_DEVICES";
  for (const char* op : {"gelu", "gelu_tanh", "softplus", "hard_sigmoid", "hard_swish", "erf"}) {
    ir::Graph graph;
    const ir::Value x = graph.input("x", f32({4, 16})), dy = graph.input("dy", f32({4, 16}));
    const ir::Value y = ops::emit(graph, op, {x});
    ops::GradBuilder builder(graph, ir::Node(graph.producer(y)), {dy}, {true});
    ops::get(op).grad(builder);
    graph.output("dx", builder.dins()[0]);
    EXPECT_EQ(launches(graph).back(), "fused") << op;
    EXPECT_LE(launches(graph).size(), 2u) << op;  // the second is y itself, where the rule reads it
  }
}

TEST(NormFusion, ASliceOfRowsOrColumnsIsAView) {
  if (!device_under_test("cpu")) GTEST_SKIP() << "cpu is left out by SITU_TEST_DEVICES";
  const auto sliced = [](const ir::Ints& begin, const ir::Ints& size) {
    ir::Graph graph;
    const ir::Value x = ops::emit(graph, "exp", {graph.input("x", f32({6, 5, 8}))});
    const ir::Value part = ops::emit(graph, "slice", {x}, {{"begin", begin}, {"size", size}});
    graph.output("y", ops::emit(graph, "exp", {part}));
    return launches(graph);
  };
  EXPECT_EQ(sliced({2, 0, 0}, {3, 5, 8}), (Names{"exp", "exp"}));
  EXPECT_EQ(sliced({0, 0, 1}, {6, 5, 4}), (Names{"exp", "exp"}));
  EXPECT_EQ(sliced({2, 0, 1}, {3, 5, 4}), (Names{"exp", "exp"}));
  EXPECT_EQ(sliced({2, 1, 1}, {1, 2, 4}), (Names{"exp", "exp"}));
  EXPECT_EQ(sliced({2, 1, 1}, {2, 2, 4}), (Names{"exp", "window", "exp"}));
}

}  // namespace
}  // namespace situ::test
