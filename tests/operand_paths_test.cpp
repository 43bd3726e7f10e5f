// operand_paths_test.cpp -- the same kernels with operands read through images, and with rows shared by the work-items
// of a group and combined by a tree or by sub-groups: by every candidate that takes such a path, as phones' records
// select them.
#include <gtest/gtest.h>

#include <map>

#include "backend/opencl/device.h"
#include "harness.h"
#include "icd/opencl_fixture.h"
#include "ir/text.h"
#include "plan/plan.h"
#include "step/devices.h"
#include "step/run.h"
#include "step/self_test.h"

namespace situ::test {
namespace {

using opencl::test::Environment;
using step::Layout;

std::unique_ptr<device::Device> device_with(std::initializer_list<std::pair<const char*, int64_t>> values) {
  device::DeviceOptions options;
  options.cache_folder = scratch_folder() + "/cache";
  options.self_test = false;
  // A phone's tile, small to compile, and rows that several work-items share.
  for (const auto& [key, value] : std::initializer_list<std::pair<const char*, int64_t>>{{"gemm.VW", 4},
                                                                                         {"gemm.TM", 3},
                                                                                         {"gemm.NV", 2},
                                                                                         {"gemm.TM1", 2},
                                                                                         {"dw.TM", 3},
                                                                                         {"dw.NV", 2},
                                                                                         {"vector.VW", 2}})
    options.tuning.set(key, value);
  for (const auto& [key, value] : values) options.tuning.set(key, value);
  return step::open_device("opencl", options);
}

// The macros of each program that a graph takes on a device.
std::vector<std::string> program_list(const device::Device& device, const ir::Graph& graph) {
  const ir::Graph lowered = plan::lower(graph, device).graph;
  std::vector<std::string> texts;
  for (const ir::Node& node : lowered.nodes)
    if (plan::is_launch(node)) texts.push_back(device.program_of(plan::dense_launch(ops::view_of(lowered, node))));
  return texts;
}
std::string programs_of(const device::Device& device, const ir::Graph& graph) {
  std::string all;
  for (const std::string& text : program_list(device, graph)) all += text;
  return all;
}

// The examples of an op; of those with an epilogue one, for it knows nothing of how operands are read.
std::vector<ops::Example> examples_of(const ops::OpDef& op) {
  std::vector<ops::Example> examples;
  int epilogues = 0;
  for (const ops::Example& example : ops::examples(op))
    if (!example.attrs.has("epilogue") || ++epilogues == 1) examples.push_back(example);
  return examples;
}

// Runs what takes a path, known by a macro: the rest is kernel_test's. A few small examples by each candidate, since
// runtimes on CPUs read images slowly. How often the path was taken: a test that no longer takes it must fail.
int expect_right(device::Device& device, std::initializer_list<const char*> names, const std::string& macro) {
  constexpr double kMostFlops = 2e5;
  constexpr int kEach = 4;
  int taken = 0;
  const auto run = [&](const ops::OpDef& op, const ops::Example& example, Layout layout, const std::string& way) {
    SCOPED_TRACE(fmt::format("{} {} {} by `{}`", macro, op.name, example.text, way));
    std::string where;
    EXPECT_LE(step::error_in_tolerances(device, op, example, layout, 1, &where), 1) << where;
    ++taken;
  };
  for (const char* name : names) {
    const ops::OpDef& op = ops::get(name);
    std::map<std::pair<Layout, std::string>, int> runs;  // by candidate
    for (Layout layout : {Layout::dense, Layout::pitched})
      for (const ops::Example& example : examples_of(op)) {
        const ir::Graph graph = step::single_op_graph(op, example, layout);
        const ops::OpView view = ops::view_of(graph, node_of(graph, op.name));
        if (ops::cost_of(view).flops > kMostFlops) continue;
        std::vector<std::string> ways;
        for (const auto* candidate : plan::candidates_for(device, view)) ways.emplace_back(candidate->name);
        if (ways.empty()) ways = {""};  // a kernel of its own
        for (const std::string& way : ways) {
          device.choices.clear();
          if (!way.empty()) device.choices = {{device::node_key(view), way}};
          if (programs_of(device, graph).find(macro) == std::string::npos) continue;
          if (++runs[{layout, way}] <= kEach) run(op, example, layout, way);
        }
      }
  }
  device.choices.clear();
  return taken;
}

#define NEEDS_OPENCL \
  if (!device_under_test("opencl")) GTEST_SKIP() << "opencl is left out by SITU_TEST_DEVICES"

bool has(const device::Device& device, const char* feature) { return device.target().tuning.get(feature, 0) != 0; }
bool has(const char* feature) {  // the device the tests use, as it stands under SITU_LIMITS
  return has(*device_under_test("opencl"), feature);
}

// --- images ---------------------------------------------------------------------------------------------------------
TEST(OperandPaths, RightOperandsThroughImagesAgreeWithTheOracle) {
  NEEDS_OPENCL;
  const auto device = device_with({{"gemm.IMAGE", 1}});
  const int taken = expect_right(*device, {"matmul", "conv2d", "conv2d_dx", "conv2d_dw"}, "B_IMAGE=1");
  EXPECT_GT(taken, has("image.line") ? 20 : -1);
}

TEST(OperandPaths, BothOperandsThroughImagesAgreeWithTheOracle) {
  NEEDS_OPENCL;
  const auto device =
      device_with({{"gemm.IMAGE", 1}, {"gemm.IMAGE_A", 1}, {"gemm.VW", 8}, {"gemm.TM", 2}, {"gemm.NV", 1}});
  const int taken = expect_right(*device, {"matmul", "conv2d", "conv2d_dx"}, "A_IMAGE=1");
  EXPECT_GT(taken, has("image.line") ? 5 : -1);
}

ir::Graph product(int64_t m, int64_t k, int64_t n) {
  return ir::parse(
      fmt::format("program p\n%0 = input {{name=\"a\"}} : f32[{},{}]\n%1 = input {{name=\"b\"}} : f32[{},{}]\n"
                  "%2 = matmul(%0, %1) : f32[{},{}]\noutput(%2) {{name=\"y\"}}\n",
                  m, k, k, n, m, n));
}
device::Choices by(const ir::Graph& graph, const char* candidate) {
  return {{device::node_key(ops::view_of(graph, node_of(graph, "matmul"))), candidate}};
}
// Small whole numbers, so that any order of sums gives the same bits.
std::vector<double> numbers(int64_t count, uint32_t word) {
  std::vector<double> values(static_cast<size_t>(count));
  for (double& v : values) v = static_cast<double>((word = word * 1664525u + 1013904223u) >> 29) - 3;
  return values;
}
void expect_product(device::Device& device, int64_t m, int64_t k, int64_t n, const char* candidate) {
  const ir::Graph graph = product(m, k, n);
  const step::Tensors inputs{{"a", numbers(m * k, 1)}, {"b", numbers(k * n, 2)}};
  device.choices = by(graph, candidate);
  const auto y = step::run_once(device, graph, inputs).at("y");
  EXPECT_EQ(y, step::run_once(*step::open_device("ref"), graph, inputs).at("y")) << candidate;
  device.choices.clear();
}

// A matrix whose rows lie as far apart as an image's lines must is read as a plane; others as a line.
TEST(OperandPaths, PlanesAreReadWhereThePitchFits) {
  NEEDS_OPENCL;
  const auto device = device_with({{"gemm.IMAGE", 2}});
  const ir::Graph fits = product(7, 40, 512), narrow = product(7, 40, 36);
  device->choices = by(fits, "in_place");
  device->choices.merge(by(narrow, "in_place"));
  const std::string wide = programs_of(*device, fits), other = programs_of(*device, narrow);
  const bool planes = has("image.pitch") && has("image.line");
  EXPECT_EQ(wide.find("B_IMAGE=2") != std::string::npos, planes);
  EXPECT_EQ(other.find("B_IMAGE=2"), std::string::npos);
  EXPECT_EQ(other.find("B_IMAGE=1") != std::string::npos, has("image.line"));
  for (const char* candidate : {"in_place", "packed"}) {
    expect_product(*device, 7, 40, 512, candidate);
    expect_product(*device, 7, 40, 36, candidate);
  }
  expect_right(*device, {"matmul", "conv2d_dw"}, "B_IMAGE=2");
}

// A row shorter than a vector is read from before its start, where an image has no texels.
TEST(OperandPaths, NarrowMatricesInPlaceAreReadFromTheSlab) {
  NEEDS_OPENCL;
  const auto device = device_with({{"gemm.IMAGE", 1}, {"gemm.VW", 8}});
  device->choices = by(product(7, 40, 4), "in_place");
  EXPECT_EQ(programs_of(*device, product(7, 40, 4)).find("B_IMAGE"), std::string::npos);
  for (int64_t n : {1, 3, 4, 7}) expect_product(*device, 7, 40, n, "in_place");
}

TEST(OperandPaths, LimitsDecideBetweenImagesAndBuffers) {
  NEEDS_OPENCL;
  const ir::Graph small = product(5, 64, 64), large = product(5, 600, 600);  // 1024 and 90000 texels
  const auto images_in = [](const device::Device& device, const ir::Graph& graph) {
    return programs_of(device, graph).find("B_IMAGE") != std::string::npos;
  };
  {
    const Environment limits("SITU_LIMITS", "texels=64K");
    const auto device = device_with({{"gemm.IMAGE", 1}});
    EXPECT_EQ(images_in(*device, small), has(*device, "image.line"));
    EXPECT_FALSE(images_in(*device, large));
    expect_product(*device, 5, 64, 64, "packed");
    expect_product(*device, 5, 600, 600, "packed");    // its slab is longer than an image may be
    expect_product(*device, 2000, 400, 40, "packed");  // a short operand in such a slab
  }
  const Environment limits("SITU_LIMITS", "images=0");
  const auto device = device_with({{"gemm.IMAGE", 2}, {"gemm.IMAGE_A", 1}});
  EXPECT_EQ(programs_of(*device, small).find("_IMAGE"), std::string::npos);
  expect_product(*device, 5, 64, 64, "packed");
}

// Images are of floats: a half operand is read from its buffer, whatever is tuned, and no sub-group shares it.
TEST(OperandPaths, HalvesAreReadFromBuffers) {
  NEEDS_OPENCL;
  const auto device = device_with({{"gemm.IMAGE", 1}, {"gemm.IMAGE_A", 1}, {"gemm.SUB", 1}});
  device->activations = DType::f16;
  int halves = 0;
  for (const char* name : {"matmul", "conv2d"}) {
    const ops::OpDef& op = ops::get(name);
    std::vector<ops::Example> examples = examples_of(op);
    examples.resize(std::min<size_t>(examples.size(), 3));
    for (const ops::Example& example : examples) {
      SCOPED_TRACE(fmt::format("{} {}", name, example.text));
      const ir::Graph graph = step::single_op_graph(op, example, Layout::dense, step::copies_of(op, example, *device));
      for (const std::string& text : program_list(*device, graph)) {
        const auto with = [&](const char* macro) { return text.find(macro) != std::string::npos; };
        EXPECT_FALSE(with("A_T=half") && (with("A_IMAGE") || with("SUB=1"))) << text;
        EXPECT_FALSE(with("B_T=half") && (with("B_IMAGE") || with("SUB=1"))) << text;
        halves += with("A_T=half") || with("B_T=half");
      }
      std::string where;
      EXPECT_LE(step::error_in_tolerances(*device, op, example, Layout::dense, 1, &where), 1) << where;
    }
  }
  EXPECT_GT(halves, 3);
}

// An operand in slab 0 has an image for each feed.
TEST(OperandPaths, EachFeedHasItsImage) {
  NEEDS_OPENCL;
  constexpr int kFeeds = 3, kM = 2, kK = 8, kN = 16;
  const auto device = device_with({{"gemm.IMAGE", 1}, {"gemm.IMAGE_A", 1}});
  const ir::Graph graph = product(kM, kK, kN);
  device->choices = by(graph, "in_place");
  const ir::Graph lowered = plan::lower(graph, *device).graph;
  device::LaunchSpec launch = plan::dense_launch(ops::view_of(lowered, node_of(lowered, "gemm")));
  EXPECT_EQ(device->program_of(launch).find("B_IMAGE=1") != std::string::npos, has("image.line"));
  const int64_t x = launch.in[1].offset, b_bytes = kK * kN * sizeof(float);  // b in the feeds, the rest elsewhere
  launch.in[0].slab = launch.out[0].slab = 1;
  launch.out[0].offset += 4096;
  const auto storage = device->allocate({1 << 16, 1 << 16}, kFeeds);
  const auto executable = device->bind(std::span(&launch, 1), *storage);
  const std::vector<float> ones(kM * kK, 1.0F);
  device->write(*storage, 1, launch.in[0].offset, ones.data(), kM * kK * sizeof(float));
  for (int feed = 0; feed < kFeeds; ++feed) {
    auto* room = reinterpret_cast<float*>(device->map(*storage, feed, x, b_bytes));
    device->wait(device->submit());
    std::fill(room, room + kK * kN, static_cast<float>(feed + 1));
    device->unmap(*storage, feed, b_bytes);
  }
  for (int feed = 0; feed < kFeeds; ++feed) {
    executable->enqueue(feed);
    std::vector<float> y(kM * kN);
    device->read(*storage, 1, launch.out[0].offset, y.data(), kM * kN * sizeof(float));
    EXPECT_EQ(y, std::vector<float>(kM * kN, static_cast<float>(kK * (feed + 1)))) << feed;
  }
}

// --- sub-groups that share a left operand ---------------------------------------------------------------------------
TEST(OperandPaths, LeftOperandsSharedBySubGroupsAgreeWithTheOracle) {
  NEEDS_OPENCL;
  if (!has("device.sub_groups")) GTEST_SKIP() << "the device has no sub-groups";
  const auto device = device_with({{"gemm.SUB", 1}, {"gemm.WX", 8}, {"gemm.WY", 4}});
  EXPECT_GT(expect_right(*device, {"matmul"}, "SUB=1"), 10);
  // The sums run in the same order, so sharing changes no bit.
  const auto plain = device_with({{"gemm.WX", 8}, {"gemm.WY", 4}});
  const ir::Graph graph = product(37, 1100, 90);
  step::Tensors inputs{{"a", numbers(37 * 1100, 4)}, {"b", numbers(1100 * 90, 5)}};
  for (double& v : inputs.at("a")) v *= 0.1;
  for (const char* candidate : {"packed", "in_place"}) {
    plain->choices = device->choices = by(graph, candidate);
    EXPECT_EQ(step::run_once(*device, graph, inputs), step::run_once(*plain, graph, inputs)) << candidate;
  }
}

// --- rows -----------------------------------------------------------------------------------------------------------
constexpr std::initializer_list<const char*> kRowOps = {
    "softmax",    "softmax_grad",  "softmax_xent", "softmax_soft_xent", "accuracy",
    "layer_norm", "layer_norm_dx", "rms_norm",     "rms_norm_dx",       "reduce"};

TEST(OperandPaths, RowsSharedByAGroupAgreeWithTheOracle) {
  NEEDS_OPENCL;
  const auto device = device_with({{"rows.ITEMS", 8}});
  EXPECT_GT(expect_right(*device, kRowOps, "ROW_ITEMS=8"), 5);
}

TEST(OperandPaths, RowsCombinedBySubGroupsAgreeWithTheOracle) {
  NEEDS_OPENCL;
  if (!has("device.sub_groups")) GTEST_SKIP() << "the device has no sub-groups";
  const auto device = device_with({{"rows.ITEMS", 64}, {"rows.SUB", 1}, {"vector.VW", 1}});
  EXPECT_GT(expect_right(*device, kRowOps, "SUB=1"), 5);
}

// Same device, same tuning, same bits; and all ways agree where sums are exact.
TEST(OperandPaths, RowsAreReproducible) {
  NEEDS_OPENCL;
  const ir::Graph graph = ir::parse(
      "program p\n%0 = input {name=\"x\"} : f32[5,1001]\n%1 = softmax(%0) : f32[5,1001]\n"
      "%2 = reduce(%0) {axes=[1], kind=\"sum\"} : f32[5]\noutput(%1) {name=\"y\"}\noutput(%2) {name=\"s\"}\n");
  const step::Tensors inputs{{"x", numbers(5 * 1001, 3)}};
  const auto sums = step::run_once(*step::open_device("ref"), graph, inputs).at("s");
  for (int64_t sub : {0, 1}) {
    if (sub != 0 && !has("device.sub_groups")) continue;
    const auto first = device_with({{"rows.ITEMS", 16}, {"rows.SUB", sub}}),
               second = device_with({{"rows.ITEMS", 16}, {"rows.SUB", sub}});
    const auto a = step::run_once(*first, graph, inputs), b = step::run_once(*second, graph, inputs);
    EXPECT_EQ(a, b) << sub;
    EXPECT_EQ(a.at("s"), sums) << sub;
  }
}

TEST(OperandPaths, SubGroupsAreLeftOutWhereThereAreNone) {
  NEEDS_OPENCL;
  const Environment limits("SITU_LIMITS", "subgroups=0");
  const auto device = device_with({{"rows.ITEMS", 8}, {"rows.SUB", 1}, {"gemm.SUB", 1}});
  EXPECT_EQ(programs_of(*device, product(5, 64, 64)).find("SUB=1"), std::string::npos);
  const ops::OpDef& op = ops::get("softmax");
  const std::string programs = programs_of(*device, step::single_op_graph(op, ops::examples(op)[0], Layout::dense));
  EXPECT_EQ(programs.find("SUB=1"), std::string::npos);
}

}  // namespace
}  // namespace situ::test
