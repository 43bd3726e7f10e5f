// fast_product_test.cpp -- products of paired terms and of pieces (backend/cpu/fast_product.h), on every instruction
// set: the processors that gain by them are few, the code is there for all.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "harness.h"
#include "ir/text.h"
#include "plan/plan.h"
#include "step/devices.h"
#include "step/run.h"
#include "step/self_test.h"

namespace situ::test {
namespace {

// Two threads: how many columns make a product pack b on the way follows their number, what comes out does not.
std::unique_ptr<device::Device> fast_device(int threads = 2) {
  device::DeviceOptions options;
  options.threads = threads;
  options.tuning.set("gemm.paired", 1);
  options.tuning.set("gemm.pieces", 1);
  return step::open_device("cpu", options);
}

using Numbers = std::vector<double>;

// a[m,k] b[k,n] by the candidate of that name.
Numbers product(device::Device& device, std::string_view candidate, int64_t m, int64_t n, int64_t k, const Numbers& a,
                const Numbers& b) {
  const ir::Graph graph = ir::parse(
      fmt::format("program p\n%0 = input {{name=\"a\"}} : f32[{},{}]\n%1 = input {{name=\"b\"}} : f32[{},{}]\n"
                  "%2 = matmul(%0, %1) : f32[{},{}]\noutput(%2) {{name=\"y\"}}\n",
                  m, k, k, n, m, n));
  device.choices = {{device::node_key(ops::view_of(graph, node_of(graph, "matmul"))), std::string(candidate)}};
  return step::run_once(device, graph, {{"a", a}, {"b", b}}).at("y");
}

Numbers numbers(int64_t count, uint32_t seed, double (*shape)(double)) {
  std::mt19937 random(seed);
  Numbers list(static_cast<size_t>(count));
  for (double& v : list) v = static_cast<float>(shape(static_cast<double>(random()) * 0x1p-31 - 1));
  return list;
}
double even(double x) { return x; }

// The parameter is a candidate's name.
class FastProducts : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Forms, FastProducts, testing::Values("paired", "pieces"),
                         [](const auto& form) { return form.param; });

TEST_P(FastProducts, AgreeWithTheOracle) {
  const auto device = fast_device();
  const std::pair<const char*, const char*> cases[] = {
      {"matmul",
       "f32[9,32], f32[32,17]; f32[70,259], f32[259,97], f32[97] {epilogue=\"bias+relu\"}; "
       "f32[128,21], f32[128,40] {ta=1}; f32[130,21], f32[130,270] {ta=1}; f32[17,290], f32[300,290], f32[17,300] "
       "{tb=1, epilogue=\"mask\"}; f32[521,19], f32[521,33] {ta=1}; "
       "f32[17,40], f32[70,40], f32[17,70] {tb=1, epilogue=\"mask\"}; f32[150,9], f32[33,150] {ta=1, tb=1}; "
       "f32[48,1100], f32[1100,64], f32[64] {epilogue=\"bias+relu\"}; f32[33,600], f32[600,33], f32[33] "
       "{epilogue=\"bias\"}; f32[32,64], f32[64,96], f32[96] {epilogue=\"bias\"}"},
      {"conv2d",
       "f32[2,5,7,37], f32[1,1,37,50], f32[50], f32[2,5,7,50] {epilogue=\"bias+residual+relu6\"}; "
       "f32[2,4,4,40], f32[1,1,40,32], f32[2,4,4,32] {epilogue=\"residual+relu\"}"},
      {"conv2d_dx", "f32[2,5,7,50], f32[1,1,37,50] {size=[5,7]}"},
      {"conv2d_dw", "f32[4,6,7,19], f32[4,6,7,35] {kernel=[1,1]}"},
      {"lstm", ""},
      {"lstm_grad", ""},
      {"gru", ""},
      {"gru_grad", ""}};
  for (const auto& [name, more] : cases) {
    ops::OpDef op = ops::get(name);
    const std::string examples = std::string(op.examples) + (*more ? ";" : "") + more;
    op.examples = examples;
    int tried = 0;
    for (const ops::Example& example : ops::examples(op))
      for (const step::Layout layout : {step::Layout::dense, step::Layout::pitched}) {
        const ir::Graph graph = step::single_op_graph(op, example, layout);
        const ops::OpView view = ops::view_of(graph, step::op_node(graph, op));
        for (const device::Candidate* candidate : plan::candidates_for(*device, view)) {
          if (candidate->name != GetParam()) continue;
          ++tried;
          device->choices = {{device::node_key(view), GetParam()}};
          for (uint64_t seed = 1; seed <= 3; ++seed) {
            std::string where;
            EXPECT_LE(step::error_in_tolerances(*device, op, example, layout, seed, &where), 1)
                << name << " " << example.text << ": " << where;
          }
        }
        device->choices.clear();
      }
    EXPECT_GE(tried, 2) << name;
  }
}

// Scales are powers of two, so a row of a or a column of b may be of any size: the same bits come out, shifted.
TEST_P(FastProducts, OfRowsAndColumnsOfAnySize) {
  const auto device = fast_device();
  constexpr int64_t m = 19, n = 45, k = 300;
  Numbers a = numbers(m * k, 1, even), b = numbers(k * n, 2, even);
  const Numbers plain = product(*device, GetParam(), m, n, k, a, b);
  const auto shift_of = [](int64_t i) { return static_cast<int>(i * 7 % 101) - 50; };
  for (int64_t i = 0; i < m * k; ++i)
    a[static_cast<size_t>(i)] = std::ldexp(a[static_cast<size_t>(i)], shift_of(i / k));
  for (int64_t i = 0; i < k * n; ++i)
    b[static_cast<size_t>(i)] = std::ldexp(b[static_cast<size_t>(i)], -shift_of(3 * (i % n)));
  const Numbers shifted = product(*device, GetParam(), m, n, k, a, b);
  for (int64_t i = 0; i < m * n; ++i) {
    const double value = plain[static_cast<size_t>(i)];
    EXPECT_EQ(shifted[static_cast<size_t>(i)], std::ldexp(value, shift_of(i / n) - shift_of(3 * (i % n)))) << i;
  }
}

// What a and b contribute alone cancels only to rounding; where one of them is nothing, so is the product.
TEST_P(FastProducts, OfZerosAreZeros) {
  const auto device = fast_device();
  constexpr int64_t m = 11, n = 40, k = 64, row = 3, column = 37;
  Numbers a = numbers(m * k, 3, even), b = numbers(k * n, 4, even);
  for (double& v : b) v = std::ldexp(v, 60);  // so that nothing times it would show
  for (int64_t i = 0; i < k; ++i) a[static_cast<size_t>(row * k + i)] = b[static_cast<size_t>(i * n + column)] = 0;
  const Numbers y = product(*device, GetParam(), m, n, k, a, b);
  for (int64_t i = 0; i < m * n; ++i) EXPECT_EQ(y[static_cast<size_t>(i)] == 0, i / n == row || i % n == column) << i;
}

TEST_P(FastProducts, ShowWhatIsNoNumber) {
  const auto device = fast_device();
  constexpr int64_t m = 10, n = 34, k = 96;
  for (const double strange : {std::nan(""), static_cast<double>(INFINITY)}) {
    Numbers a = numbers(m * k, 5, even), b = numbers(k * n, 6, even);
    a[4 * k + 50] = strange;
    b[7 * n + 33] = -strange;
    const Numbers y = product(*device, GetParam(), m, n, k, a, b);
    for (int64_t i = 0; i < m * n; ++i)
      EXPECT_EQ(std::isfinite(y[static_cast<size_t>(i)]), i / n != 4 && i % n != 33) << strange << " " << i;
  }
}

// Cut into a grid, into strips that begin and end inside a panel of rows, and into strips shorter than one.
TEST_P(FastProducts, DoNotDependOnThreads) {
  constexpr int64_t shapes[][3] = {{150, 200, 96}, {72, 160, 40}, {71, 310, 24}, {40, 97, 520}, {13, 330, 32}};
  for (const auto& [m, n, k] : shapes) {
    const Numbers a = numbers(m * k, 7, even), b = numbers(k * n, 8, even);
    const Numbers alone = product(*fast_device(1), GetParam(), m, n, k, a, b);
    for (const int threads : {2, 3, 5, 7})
      EXPECT_EQ(product(*fast_device(threads), GetParam(), m, n, k, a, b), alone)
          << m << " x " << n << " x " << k << ", " << threads << " threads";
  }
}

// About as exact as plain sums, or more, for values as networks have them: even, with few that are large, cut off at
// zero, mostly zero, far from zero. In units of what a plain product is off, both as root mean squares. A plain sum of
// few values that are not zero is rounded as often as there are values; one of pairs is rounded in every pair.
TEST_P(FastProducts, AreAboutAsExactAsPlainOnes) {
  const auto device = fast_device();
  constexpr int64_t m = 48, n = 64, k = 258;
  static const char* const mostly_zero = "mostly zero";
  const std::pair<const char*, double (*)(double)> shapes[] = {
      {"even", even},
      {"few large", [](double x) { return x * x * x * x * x; }},
      {"cut off", [](double x) { return std::max(x, 0.0); }},
      {mostly_zero, [](double x) { return std::max(x - 0.9, 0.0); }},
      {"far away", [](double x) { return 10 + x; }}};
  for (const auto& [name_a, shape_a] : shapes)
    for (const auto& [name_b, shape_b] : shapes) {
      const Numbers a = numbers(m * k, 9, shape_a), b = numbers(k * n, 10, shape_b);
      const Numbers plain = product(*device, "packed", m, n, k, a, b),
                    fast = product(*device, GetParam(), m, n, k, a, b);
      double plain_error = 0, fast_error = 0;
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          double exact = 0;
          for (int64_t l = 0; l < k; ++l)
            exact += a[static_cast<size_t>(i * k + l)] * b[static_cast<size_t>(l * n + j)];
          plain_error += std::pow(plain[static_cast<size_t>(i * n + j)] - exact, 2);
          fast_error += std::pow(fast[static_cast<size_t>(i * n + j)] - exact, 2);
        }
      const double ratio = std::sqrt(fast_error / plain_error);
      RecordProperty(fmt::format("{} by {}", name_a, name_b), fmt::format("{:.2f}", ratio));
      const bool few_terms = name_a == mostly_zero || name_b == mostly_zero;
      const bool paired = GetParam() == "paired";
      EXPECT_LE(ratio, few_terms ? (paired ? 6 : 2) : (paired ? 2 : 1)) << name_a << " by " << name_b;
    }
}

// --- twins ----------------------------------------------------------------------------------------------------------
// Lines of whole tiles, lines that share tiles with their padding, and images of less than a tile; strides and phases
// without taps, dilation, padding on one side, more of it than taps reach; channels and results that fill no vector;
// one, two and three panels of results; every word of an epilogue; images that are cut into tasks.
constexpr std::string_view kTwinForward =
    "f32[2,5,32,16], f32[3,3,16,16] {pad=[1,1,1,1]}; "
    "f32[2,7,16,32], f32[3,3,32,32], f32[32] {pad=[1,1,1,1], epilogue=\"bias+relu\"}; "
    "f32[3,6,9,24], f32[3,3,24,40], f32[40], f32[3,6,9,40] {pad=[1,1,1,1], epilogue=\"bias+residual+relu6\"}; "
    "f32[1,9,16,16], f32[3,3,16,48], f32[1,9,16,48]*8 {pad=[1,1,1,1], epilogue=\"residual+relu\"}; "
    "f32[2,9,33,16], f32[3,3,16,32] {stride=[2,2], pad=[1,1,1,1]}; f32[2,8,32,20], f32[1,1,20,16] {stride=[2,2]}; "
    "f32[1,8,11,17], f32[2,4,17,18] {stride=[3,2], pad=[2,0,0,3]}; f32[1,12,13,16], f32[3,3,16,16] {dilation=[2,3], "
    "pad=[4,1,0,5]}; f32[2,2,3,16], f32[5,5,16,16] {pad=[2,2,2,2]}; f32[1,3,4,16], f32[1,1,16,16] {pad=[1,2,3,0]}; "
    "f32[1,21,16,32], f32[3,3,32,16], f32[16] {pad=[1,1,1,1], epilogue=\"bias\"}; "
    "f32[1,6,6,16], f32[3,3,16,16], f32[1,6,6,16]*8 {pad=[1,1,1,1], epilogue=\"mask\"}; "
    "f32[2,4,48,16], f32[1,1,16,32], f32[2,4,48,32]*8 {epilogue=\"mask6\"}";
constexpr std::string_view kTwinBackward =
    "f32[2,5,32,16], f32[3,3,16,16] {size=[5,32], pad=[1,1,1,1]}; "
    "f32[2,7,16,32], f32[3,3,16,32], f32[2,7,16,16], f32[2,7,16,16]*8 {size=[7,16], pad=[1,1,1,1], "
    "epilogue=\"residual+mask\"}; "
    "f32[2,8,16,32], f32[3,3,16,32], f32[2,16,32,16]*8 {size=[16,32], stride=[2,2], pad=[1,1,1,1], epilogue=\"mask\"}; "
    "f32[2,4,5,24], f32[1,1,16,24] {size=[8,9], stride=[2,2]}; f32[1,3,6,18], f32[2,4,17,18] {size=[8,11], "
    "stride=[3,2], pad=[2,0,0,3]}; f32[1,12,13,16], f32[3,3,16,16] {size=[12,13], dilation=[2,3], pad=[4,1,0,5]}; "
    "f32[1,2,2,16], f32[3,3,48,16] {size=[9,8], stride=[4,4], pad=[0,0,0,0]}";

TEST(Twins, AgreeWithTheOracleOnAnyNumberOfThreads) {
  if (!device_under_test("cpu")) GTEST_SKIP();
  const std::pair<const char*, std::string_view> cases[] = {{"conv2d", kTwinForward}, {"conv2d_dx", kTwinBackward}};
  for (const auto& [name, examples] : cases) {
    ops::OpDef op = ops::get(name);
    op.examples = examples;
    for (const ops::Example& example : ops::examples(op))
      for (const step::Layout layout : {step::Layout::dense, step::Layout::pitched}) {
        SCOPED_TRACE(fmt::format("{} {}", name, example.text));
        const ir::Graph graph = step::single_op_graph(op, example, layout);
        const std::string key = device::node_key(ops::view_of(graph, step::op_node(graph, op)));
        std::map<std::string, Numbers> inputs, alone;
        for (const ir::Node& node : graph.nodes)
          if (node.op == "input") {
            const auto index = inputs.size();
            inputs[node.attrs.text("name")] = ops::example_values(example.inputs[index], 7);
          }
        for (const int threads : {1, 2, 5}) {
          const auto device = fast_device(threads);
          device->choices = {{key, "twins"}};
          const ir::Graph lowered = plan::lower(graph, *device).graph;
          EXPECT_TRUE(std::ranges::any_of(
              lowered.nodes, [](const ir::Node& node) { return node.op.find("_twins") != std::string::npos; }));
          std::string where;
          EXPECT_LE(step::error_in_tolerances(*device, op, example, layout, 3, &where), 1) << where;
          const auto results = step::run_once(*device, graph, inputs);
          if (alone.empty()) alone = {results.begin(), results.end()};
          EXPECT_TRUE(std::ranges::equal(alone, results)) << threads;
        }
      }
  }
}

// Convolutions by twins round less than plain ones, as products of pieces do.
TEST(Twins, AreAsExactAsPlainSums) {
  if (!device_under_test("cpu")) GTEST_SKIP();
  const auto device = fast_device();
  const ir::Graph graph = ir::parse(
      "program p\n%0 = input {name=\"x\"} : f32[1,12,16,32]\n%1 = input {name=\"w\"} : f32[3,3,32,16]\n"
      "%2 = conv2d(%0, %1) : f32[1,10,14,16]\noutput(%2) {name=\"y\"}\n");
  const std::map<std::string, Numbers> inputs{{"x", numbers(12 * 16 * 32, 11, even)},
                                              {"w", numbers(9 * 32 * 16, 12, even)}};
  const std::string key = device::node_key(ops::view_of(graph, node_of(graph, "conv2d")));
  const auto exact = step::run_once(*step::open_device("ref", {}), graph, inputs).at("y");
  const auto error_by = [&](const char* candidate) {
    device->choices = {{key, candidate}};
    const Numbers y = step::run_once(*device, graph, inputs).at("y");
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += std::pow(y[i] - exact[i], 2);
    return std::sqrt(sum);
  };
  EXPECT_LE(error_by("twins"), error_by("in_place"));
}

}  // namespace
}  // namespace situ::test
