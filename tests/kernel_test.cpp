// kernel_test.cpp -- every op on every device against the oracle, over its examples. A new op needs no test of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>

#include "harness.h"
#include "ir/text.h"
#include "pass/pass.h"
#include "plan/plan.h"
#include "step/devices.h"
#include "step/run.h"
#include "step/self_test.h"

namespace situ::test {
namespace {

using step::Layout;

struct Case {
  std::string device;
  const ops::OpDef* op;
  Layout layout;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.device << " " << c.op->name; }

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const char* device : {"cpu", "opencl"})
    for (const ops::OpDef* op : ops::all_ops())
      for (Layout layout : {Layout::dense, Layout::pitched}) list.push_back({device, op, layout});
  return list;
}

bool holds_halves(const ir::Graph& graph, const device::Device& device) {
  const auto types = plan::lower(pass::expansion(graph, device), device).types;
  return std::ranges::any_of(types, [](const Type& type) { return type.dtype == DType::f16; });
}

class Kernels : public testing::TestWithParam<Case> {};

TEST_P(Kernels, AgreeWithTheOracle) {
  const Case& c = GetParam();
  device::Device* device = device_under_test(c.device);
  if (!device) GTEST_SKIP() << c.device << " is left out by SITU_TEST_DEVICES";
  for (const ops::Example& example : ops::examples(*c.op))
    for (uint64_t seed : {1u, 2u}) {
      SCOPED_TRACE(std::string(c.op->name) + " " + example.text + " seed " + std::to_string(seed));
      std::string where;
      EXPECT_LE(step::error_in_tolerances(*device, *c.op, example, c.layout, seed, &where), 1) << where;
    }
}

// The estimate takes the best candidate for a shape; a tuner may take any that accepts it, so all must be right.
TEST_P(Kernels, AgreeWithTheOracleByCandidatesThatAreNotTheFirstChoice) {
  const Case& c = GetParam();
  device::Device* device = device_under_test(c.device);
  if (!device) GTEST_SKIP() << c.device << " is left out by SITU_TEST_DEVICES";
  for (const ops::Example& example : ops::examples(*c.op)) {
    const ir::Graph graph = step::single_op_graph(*c.op, example, c.layout);
    const ops::OpView view = ops::view_of(graph, node_of(graph, c.op->name));
    const auto candidates = plan::candidates_for(*device, view);
    for (size_t i = 1; i < candidates.size(); ++i) {
      SCOPED_TRACE(fmt::format("{} {} by `{}`", c.op->name, example.text, candidates[i]->name));
      device->choices = {{device::node_key(view), std::string(candidates[i]->name)}};
      std::string where;
      EXPECT_LE(step::error_in_tolerances(*device, *c.op, example, c.layout, 1, &where), 1) << where;
      device->choices.clear();
    }
  }
}

// Operands that a kernel may find stored as half are: the oracle sees them rounded, and a result may be half a spacing
// of halves off besides. Each way to run an op is tried on a few of its examples, since a driver compiles each form of
// each epilogue anew; on all of them with SITU_SWEEP=1.
TEST_P(Kernels, AgreeWithTheOracleOnHalves) {
  const Case& c = GetParam();
  if (c.device != "opencl") GTEST_SKIP() << "only OpenCL stores halves";
  device::Device* device = device_under_test(c.device);
  if (!device) GTEST_SKIP() << c.device << " is left out by SITU_TEST_DEVICES";
  if (runs_parts_of(*device, *c.op))
    GTEST_SKIP() << "this device runs the parts of " << c.op->name << ", and stores what lies between them";
  const StoringHalves storing(*device);
  const int most = std::getenv("SITU_SWEEP") ? std::numeric_limits<int>::max() : 3;
  std::map<std::string, int> tried;
  for (const ops::Example& example : ops::examples(*c.op)) {
    const ir::Graph graph = step::single_op_graph(*c.op, example, c.layout, step::copies_of(*c.op, example, *device));
    const ir::Node& node = step::op_node(graph, *c.op);
    const auto candidates = plan::candidates_for(*device, ops::view_of(graph, node));
    for (size_t i = 0; i < std::max<size_t>(1, candidates.size()); ++i) {
      const std::string name(i < candidates.size() ? candidates[i]->name : "its own kernel");
      if (i > 0) device->choices = {{device::node_key(ops::view_of(graph, node)), name}};
      if (tried[name] < most && holds_halves(graph, *device)) {
        ++tried[name];
        SCOPED_TRACE(fmt::format("{} {} by `{}`", c.op->name, example.text, name));
        std::string where;
        EXPECT_LE(step::error_in_tolerances(*device, *c.op, example, c.layout, 1, &where), 1) << where;
      }
      device->choices.clear();
    }
  }
}

// An id beyond the table gives zeros even where the table is a slice and other rows follow it in memory.
TEST(StrangeIds, AreNotFollowedOutOfASlice) {
  for (const char* name : {"cpu", "opencl"}) {
    device::Device* device = device_under_test(name);
    if (!device) continue;
    const ir::Graph graph = ir::parse(
        "program p\n%0 = input {name=\"t\"} : f32[8,3]\n%1 = input {name=\"i\"} : i32[8]\n"
        "%2, %3 = split(%0) {axis=0, sizes=[4,4]} : f32[4,3], f32[4,3]\n"
        "%4 = gather(%2, %1) : f32[8,3]\noutput(%4) {name=\"y\"}\n");
    const auto y =
        step::run_once(*device, graph, {{"t", std::vector<double>(24, 5)}, {"i", {0, 1, 2, 3, 4, 5, 6, 7}}}).at("y");
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], i < 12 ? 5 : 0) << name << " " << i;
  }
}

// A NaN stays one, so that a training that has failed shows it; beyond the range of exp functions reach their limits.
TEST(StrangeNumbers, ThroughActivations) {
  const std::vector<double> x = {std::nan(""), INFINITY, -INFINITY, 1e30,  -1e30, 90,   -90,        -104, 88.5,  -87.5,
                                 1e-30,        -1e-38,   0,         -0.75, 0.625, -0.6, 0.62499994, 9.25, -17.5, 44};
  for (const char* op : {"tanh", "sigmoid", "exp", "relu"}) {
    const ir::Graph graph = ir::parse(fmt::format(
        "program p\n%0 = input {{name=\"x\"}} : f32[{0}]\n%1 = {1}(%0) : f32[{0}]\noutput(%1) {{name=\"y\"}}\n",
        x.size(), op));
    device::Device* ref = device_under_test("ref");
    if (!ref) GTEST_SKIP();
    const auto expected = step::run_once(*ref, graph, {{"x", x}}).at("y");
    for (const char* name : {"cpu", "opencl"}) {
      device::Device* device = device_under_test(name);
      if (!device) continue;
      const auto y = step::run_once(*device, graph, {{"x", x}}).at("y");
      for (size_t i = 0; i < x.size(); ++i) {
        const double limit = expected[i] > 3.4e38 ? INFINITY : expected[i];  // of a float
        const bool same = (std::isnan(y[i]) && std::isnan(limit)) || y[i] == limit;
        EXPECT_TRUE(same || std::fabs(y[i] - limit) <= 4e-7 * std::fabs(limit) + 1e-37)
            << name << " " << op << " of " << x[i] << ": " << y[i] << " instead of " << limit;
      }
    }
  }
}

// A pooling behind a relu is masked by the very tensor it pools, which kernels may use to read it once.
TEST(MaskedPooling, ByWhatItPools) {
  for (const int64_t channels : {1, 6, 16, 19})
    for (const char* window : {"kernel=[2,2], stride=[2,2]", "kernel=[3,3], stride=[2,2], pad=[1,1,1,1]"}) {
      const std::string x = fmt::format("f32[2,6,10,{}]", channels), y = fmt::format("f32[2,3,5,{}]", channels);
      const ir::Graph graph = ir::parse(
          fmt::format("program p\n%0 = input {{name=\"x\"}} : {}\n%1 = input {{name=\"dy\"}} : {}\n"
                      "%2 = max_pool_grad(%0, %1, %0) {{epilogue=\"mask\", {}}} : {}\noutput(%2) {{name=\"dx\"}}\n",
                      x, y, window, x));
      step::Tensors inputs{{"x", std::vector<double>(static_cast<size_t>(120 * channels))},
                           {"dy", std::vector<double>(static_cast<size_t>(30 * channels))}};
      for (size_t i = 0; i < inputs["x"].size(); ++i) inputs["x"][i] = static_cast<double>(i * i * 7 % 23) - 15;
      for (size_t i = 0; i < inputs["dy"].size(); ++i) inputs["dy"][i] = static_cast<double>(i % 11) - 5;
      device::Device* ref = device_under_test("ref");
      if (!ref) GTEST_SKIP();
      const auto expected = step::run_once(*ref, graph, inputs);
      for (const char* name : {"cpu", "opencl"}) {
        device::Device* device = device_under_test(name);
        if (!device) continue;
        EXPECT_EQ(step::run_once(*device, graph, inputs), expected) << name << " " << x << " " << window;
      }
    }
}

// A sum of very many terms of one sign, as in the gradient that comes back from a large vocabulary: its error is that
// of a few roundings, not one that grows with each term.
TEST(LongSums, AreExactToAFewRoundings) {
  constexpr int64_t m = 32, n = 70, k = 40000;  // enough results that no candidate splits K for the sake of parallelism
  const ir::Graph graph = ir::parse(
      fmt::format("program p\n%0 = input {{name=\"a\"}} : f32[{},{}]\n%1 = input {{name=\"b\"}} : f32[{},{}]\n"
                  "%2 = matmul(%0, %1) : f32[{},{}]\noutput(%2) {{name=\"y\"}}\n",
                  m, k, k, n, m, n));
  std::vector<double> a(m * k), b(k * n, 1.0);
  uint32_t word = 5;
  for (double& v : a) v = 1 + static_cast<double>((word = word * 1664525u + 1013904223u) >> 9) * 0x1p-23;
  for (const char* name : {"cpu", "opencl"}) {
    device::Device* device = device_under_test(name);
    if (!device) continue;
    const auto y = step::run_once(*device, graph, {{"a", a}, {"b", b}}).at("y");
    double worst = 0;
    for (int64_t i = 0; i < m; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < k; ++j) sum += a[static_cast<size_t>(i * k + j)];
      for (int64_t j = 0; j < n; ++j) worst = std::max(worst, std::fabs(y[static_cast<size_t>(i * n + j)] / sum - 1));
    }
    EXPECT_LE(worst, 8 * 0x1p-24) << name;
  }
}

// Winograd's tiles round the most at the image's corners, where the fewest terms meet. Sums over channels in one piece
// would exceed the tolerance with every other seed, at any number of channels.
TEST(WinogradSums, AreExactEnoughAtCorners) {
  ops::OpDef op = ops::get("conv2d");
  op.examples = "f32[2,8,8,65], f32[3,3,65,16] {pad=[1,1,1,1]}; f32[1,7,6,192], f32[3,3,192,5] {pad=[1,1,1,1]}";
  for (const char* name : {"cpu", "opencl"}) {
    if (!device_under_test(name)) continue;
    device::DeviceOptions options;
    if (name == std::string_view("cpu"))
      options.tuning.set("winograd.depth", 192);  // all channels are transformed before they are multiplied
    const auto device = step::open_device(name, options);
    for (const ops::Example& example : ops::examples(op)) {
      const ir::Graph graph = step::single_op_graph(op, example, Layout::dense);
      device->choices = {{device::node_key(ops::view_of(graph, step::op_node(graph, op))), "winograd4"}};
      for (uint64_t seed = 1; seed <= 8; ++seed) {
        std::string where;
        EXPECT_LE(step::error_in_tolerances(*device, op, example, Layout::dense, seed, &where), 1) << name << where;
      }
    }
  }
}

// F(2x2, 5x5) with the fewest terms it is offered for, over many numbers: forward and its gradients, borders and all.
TEST(WinogradSums, OfFiveByFiveAreExactEnough) {
  device::Device* device = device_under_test("cpu");
  if (!device) GTEST_SKIP();
  const std::pair<const char*, const char*> cases[] = {
      {"conv2d",
       "f32[33,8,7,6], f32[5,5,6,5]; f32[3,9,7,8], f32[5,5,8,3] {pad=[1,1,1,1]}; "
       "f32[2,9,7,19], f32[5,5,19,3] {pad=[2,2,2,2]}"},
      {"conv2d_dx",
       "f32[33,4,6,16], f32[5,5,6,16] {size=[8,10]}; "
       "f32[3,8,6,16], f32[5,5,3,16] {pad=[1,1,1,1], size=[10,8]}; "
       "f32[3,10,8,16], f32[5,5,3,16] {pad=[2,2,2,2], size=[10,8]}"},
      {"conv2d_dw", "f32[22,8,7,6], f32[22,4,3,5] {kernel=[5,5]}; f32[40,34,34,3], f32[40,30,30,5] {kernel=[5,5]}"}};
  for (const auto& [name, examples] : cases) {
    ops::OpDef op = ops::get(name);
    op.examples = examples;
    for (const ops::Example& example : ops::examples(op)) {
      const ir::Graph graph = step::single_op_graph(op, example, Layout::dense);
      const ops::OpView view = ops::view_of(graph, step::op_node(graph, op));
      int tried = 0;
      for (const device::Candidate* candidate : plan::candidates_for(*device, view)) {
        if (!candidate->name.starts_with("winograd")) continue;
        ++tried;
        device->choices = {{device::node_key(view), std::string(candidate->name)}};
        for (uint64_t seed = 1; seed <= 40; ++seed) {
          std::string where;
          EXPECT_LE(step::error_in_tolerances(*device, op, example, Layout::dense, seed, &where), 1)
              << example.text << " by " << candidate->name << ": " << where;
        }
      }
      EXPECT_GT(tried, 0) << example.text;
      device->choices.clear();
    }
  }
}

std::string name_of(const testing::TestParamInfo<Case>& instance) {
  return instance.param.device + "_" + std::string(instance.param.op->name) +
         (instance.param.layout == Layout::pitched ? "_pitched" : "");
}
INSTANTIATE_TEST_SUITE_P(AllOps, Kernels, testing::ValuesIn(cases()), name_of);

}  // namespace
}  // namespace situ::test
