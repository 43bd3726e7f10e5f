// conv_chain_test.cpp -- chains of convolutions: which become one node (pass/conv_chains.cpp), and what one launch
// makes of them, whatever the number of threads and the form of its products.
#include <gtest/gtest.h>

#include <map>

#include "harness.h"
#include "ops/examples.h"
#include "pass/pass.h"
#include "plan/plan.h"
#include "step/devices.h"
#include "step/run.h"
#include "step/self_test.h"

namespace situ::test {
namespace {

std::string after(const device::Tuning& tuning, const std::string& text) {
  return text_after([&](const ir::Graph& graph) { return pass::conv_chains(graph, tuning); }, text);
}
device::Tuning chains_of(int64_t weights, int64_t pixels = 1) {
  device::Tuning tuning;
  tuning.set("chain.weights", weights);
  tuning.set("chain.pixels", pixels);
  return tuning;
}

// A block of six channels between two of two; `more`: what else the program does with %5, the expanded image.
std::string block(const char* depthwise = "epilogue=\"relu6\", groups=6, pad=[1,1,1,1]", const char* more = "") {
  return fmt::format(
      "%0 = input {{name=\"x\"}} : f32[1,4,5,2]\n%1 = input {{name=\"v\"}} : f32[1,1,2,6]\n"
      "%2 = input {{name=\"b\"}} : f32[6]\n%3 = input {{name=\"w\"}} : f32[3,3,1,6]\n"
      "%4 = input {{name=\"u\"}} : f32[1,1,6,2]\n"
      "%5 = conv2d(%0, %1, %2) {{epilogue=\"bias+relu6\"}} : f32[1,4,5,6]\n"
      "%6 = conv2d(%5, %3) {{{0}}} : f32[1,4,5,6]\n"
      "%7 = conv2d(%6, %4, %0) {{epilogue=\"residual\"}} : f32[1,4,5,2]\n{1}output(%7) {{name=\"y\"}}\n",
      depthwise, more);
}
const std::string kInputs = block().substr(0, block().find("%5 ="));

TEST(ConvChains, ThreeConvolutionsAreOneNode) {
  EXPECT_EQ(after(chains_of(24), block()),
            kInputs +
                "%5 = conv_chain(%0, %1, %2, %3, %4, %0) {depthwise=\"relu6\", expand=\"bias+relu6\", "
                "pad=[1,1,1,1], project=\"residual\"} : f32[1,4,5,2]\noutput(%5) {name=\"y\"}\n");
}
TEST(ConvChains, AsManyAsTheWeightsAllow) {
  EXPECT_EQ(after(chains_of(23), block()),
            kInputs +
                "%5 = conv_chain(%0, %1, %2, %3) {depthwise=\"relu6\", expand=\"bias+relu6\", pad=[1,1,1,1]} : "
                "f32[1,4,5,6]\n%6 = conv2d(%5, %4, %0) {epilogue=\"residual\"} : f32[1,4,5,2]\n"
                "output(%6) {name=\"y\"}\n");
  EXPECT_EQ(after(chains_of(11), block()), block());
}
TEST(ConvChains, NoneWhereTheDeviceAsksForNone) { EXPECT_EQ(after({}, block()), block()); }
TEST(ConvChains, SmallImagesStayApart) {
  EXPECT_NE(after(chains_of(24, 20), block()), block());
  EXPECT_EQ(after(chains_of(24, 21), block()), block());
}
TEST(ConvChains, FewPixelsOfAllImagesAreCutByChannels) {
  const auto tuning = [](int64_t weights, int64_t together) {
    device::Tuning few = chains_of(weights, 21);
    few.set("chain.together", together);
    return few;
  };
  EXPECT_EQ(after(tuning(11, 20), block()), after(chains_of(23), block()));
  EXPECT_EQ(after(tuning(11, 19), block()), block());
  EXPECT_EQ(after(tuning(0, 20), block()), block());
  std::string wide = block();  // a row of more terms than are packed in one piece
  wide.replace(wide.find("f32[1,4,5,2]"), 12, "f32[1,4,5,257]");
  wide.replace(wide.find("f32[1,1,2,6]"), 12, "f32[1,1,257,6]");
  wide.replace(wide.find(", %4, %0) {epilogue=\"residual\"}"), 31, ", %4)");
  EXPECT_EQ(after(tuning(11, 20), wide), wide);
}
TEST(ConvChains, WhatIsReadElsewhereIsMade) {
  const std::string read = block("groups=6, pad=[1,1,1,1]", "output(%5) {name=\"a\"}\n");
  EXPECT_EQ(after(chains_of(24), read),
            kInputs +
                "%5 = conv2d(%0, %1, %2) {epilogue=\"bias+relu6\"} : f32[1,4,5,6]\n"
                "%6 = conv_chain(%5, %3, %4, %0) {depthwise=\"\", pad=[1,1,1,1], project=\"residual\"} : "
                "f32[1,4,5,2]\noutput(%5) {name=\"a\"}\noutput(%6) {name=\"y\"}\n");
}
TEST(ConvChains, OtherWindowsAndEpiloguesStayApart) {
  for (const char* other : {"dilation=[2,2], groups=6, pad=[2,2,2,2]", "groups=2, pad=[1,1,1,1]"}) {
    std::string text = block(other);
    if (std::string(other).find("groups=2") != std::string::npos)
      text.replace(text.find("f32[3,3,1,6]"), 12, "f32[3,3,3,6]");
    EXPECT_EQ(after(chains_of(1000), text), text) << other;
  }
  std::string masked = block("epilogue=\"mask\", groups=6, pad=[1,1,1,1]");
  masked.replace(masked.find("conv2d(%5, %3)"), 14, "conv2d(%5, %3, %5)");
  EXPECT_EQ(after(chains_of(1000), masked), masked);
}
// As in MobileNetV1: what ends one chain cannot begin the next, which then begins with its depthwise convolution.
TEST(ConvChains, FollowEachOther) {
  const std::string inputs =
      "%0 = input {name=\"x\"} : f32[1,4,5,2]\n%1 = input {name=\"w\"} : f32[3,3,1,2]\n"
      "%2 = input {name=\"u\"} : f32[1,1,2,2]\n";
  const std::string pad = "pad=[1,1,1,1]", type = " : f32[1,4,5,2]\n";
  EXPECT_EQ(after(chains_of(1000), inputs + "%3 = conv2d(%0, %1) {groups=2, " + pad + "}" + type +
                                       "%4 = conv2d(%3, %2)" + type + "%5 = conv2d(%4, %1) {groups=2, " + pad + "}" +
                                       type + "%6 = conv2d(%5, %2)" + type + "output(%6) {name=\"y\"}\n"),
            inputs + "%3 = conv_chain(%0, %1, %2) {depthwise=\"\", " + pad + ", project=\"\"}" + type +
                "%4 = conv_chain(%3, %1, %2) {depthwise=\"\", " + pad + ", project=\"\"}" + type +
                "output(%4) {name=\"y\"}\n");
}
TEST(ConvChains, MayBeginWithAFirstConvolution) {
  const std::string inputs =
      "%0 = input {name=\"x\"} : f32[1,9,9,3]\n%1 = input {name=\"v\"} : f32[3,3,3,8]\n"
      "%2 = input {name=\"w\"} : f32[3,3,1,8]\n";
  EXPECT_EQ(after(chains_of(1000), inputs + "%3 = conv2d(%0, %1) {pad=[1,1,1,1], stride=[2,2]} : f32[1,5,5,8]\n"
                                            "%4 = conv2d(%3, %2) {groups=8} : f32[1,3,3,8]\noutput(%4) {name=\"y\"}\n"),
            inputs +
                "%3 = conv_chain(%0, %1, %2) {depthwise=\"\", expand=\"\", expand_pad=[1,1,1,1], "
                "expand_stride=[2,2]} : f32[1,3,3,8]\noutput(%3) {name=\"y\"}\n");
}

// One and a half vectors have a tile of their own where they are one panel, not where panels are narrower.
TEST(Tiles, TwentyFourColumnsInPanelsOfAnyWidth) {
  if (!device_under_test("cpu")) GTEST_SKIP();
  ops::OpDef op = ops::get("conv2d");
  op.examples =
      "f32[2,5,7,9], f32[1,1,9,24], f32[24], f32[2,5,7,24] {epilogue=\"bias+residual+relu6\"}; f32[1,9,5,6], "
      "f32[3,3,6,24], f32[1,7,3,24]*8 {epilogue=\"mask6\"}; f32[1,3,3,80], f32[1,1,80,24], f32[1,3,3,24] "
      "{epilogue=\"relu+mask\"}";
  for (int64_t columns : {8, 16, 24, 32, 64}) {
    device::DeviceOptions options;
    options.tuning.set("gemm.TN", columns);
    options.tuning.set("gemm.halves", 1);
    const auto device = step::open_device("cpu", options);
    for (const ops::Example& example : ops::examples(op))
      for (const step::Layout layout : {step::Layout::dense, step::Layout::pitched}) {
        const ir::Graph graph = step::single_op_graph(op, example, layout);
        const ops::OpView view = ops::view_of(graph, step::op_node(graph, op));
        for (const device::Candidate* candidate : plan::candidates_for(*device, view)) {
          SCOPED_TRACE(fmt::format("panels of {} columns, {} by {}", columns, example.text, candidate->name));
          device->choices = {{device::node_key(view), std::string(candidate->name)}};
          std::string where;
          EXPECT_LE(step::error_in_tolerances(*device, op, example, layout, 1, &where), 1) << where;
        }
        device->choices.clear();
      }
  }
}

// More images than tasks, fewer, and images cut by tasks: rows that two tasks expand, rings that go round. Small
// images, whole ones in a ring, whose windows stick out on any side.
constexpr std::string_view kMore =
    "f32[7,5,6,40], f32[1,1,40,130], f32[130], f32[3,3,1,130], f32[1,1,130,70] {pad=[1,1,1,1], expand=\"bias+relu6\", "
    "depthwise=\"relu6\", project=\"\"}; "
    "f32[5,4,6,100], f32[1,1,100,130], f32[130], f32[3,3,1,130], f32[1,1,130,96], f32[96] {pad=[1,1,1,1], "
    "expand=\"bias+relu6\", depthwise=\"relu6\", project=\"bias\"}; "
    "f32[3,23,24,24], f32[1,1,24,96], f32[3,3,1,96], f32[96], f32[1,1,96,24], f32[24] {stride=[2,2], pad=[1,1,1,1], "
    "expand=\"relu6\", depthwise=\"bias+relu6\", project=\"bias\"}; "
    "f32[5,8,7,30], f32[1,1,30,70], f32[3,3,1,70], f32[70], f32[1,1,70,33] {pad=[1,1,1,1], expand=\"relu6\", "
    "depthwise=\"bias+relu6\", project=\"\"}; "
    "f32[3,9,8,3], f32[3,3,3,40], f32[3,3,1,40], f32[40], f32[1,1,40,16] {expand_pad=[1,1,1,1], pad=[0,2,1,1], "
    "expand=\"relu6\", depthwise=\"bias\", project=\"\"}; "
    "f32[2,10,48,40], f32[1,1,40,70], f32[3,3,1,70], f32[70] {pad=[1,0,1,2], expand=\"\", depthwise=\"bias+relu\"}; "
    "f32[8,3,3,40], f32[1,1,40,130], f32[130], f32[3,3,1,130], f32[130] {pad=[1,1,1,1], expand=\"bias+relu6\", "
    "depthwise=\"bias+relu6\"}; "
    "f32[11,2,3,30], f32[1,1,30,85], f32[3,3,1,85] {pad=[1,1,1,1], expand=\"relu6\", depthwise=\"\"}; "
    "f32[5,1,4,70], f32[1,1,70,64], f32[3,3,1,64] {pad=[1,1,1,1], expand=\"\", depthwise=\"relu\"}; "
    "f32[6,4,2,24], f32[1,1,24,64], f32[3,3,1,64] {pad=[0,2,1,0], expand=\"relu\", depthwise=\"relu6\"}; "
    "f32[9,5,5,24], f32[1,1,24,100], f32[3,3,1,100] {stride=[2,2], pad=[1,1,1,1], expand=\"relu6\", "
    "depthwise=\"relu6\"}; "
    "f32[3,11,9,16], f32[1,1,16,32], f32[32], f32[3,3,1,32], f32[1,1,32,24] {pad=[1,1,1,1], expand=\"bias+relu6\", "
    "depthwise=\"relu6\", project=\"\"}; "
    "f32[3,19,8,3], f32[3,3,3,32], f32[32], f32[3,3,1,32], f32[1,1,32,16] {expand_pad=[1,1,1,1], expand_stride=[2,2], "
    "pad=[1,1,1,1], expand=\"bias+relu6\", depthwise=\"relu\", project=\"\"}; "
    "f32[1,9,120,30], f32[1,1,30,64], f32[3,3,1,64], f32[1,1,64,200] {pad=[0,2,0,1], expand=\"relu\", "
    "depthwise=\"relu\", project=\"relu\"}";

TEST(ConvChainRows, AreTheSameOnAnyNumberOfThreadsAndNearTheOracle) {
  if (!device_under_test("cpu")) GTEST_SKIP();
  ops::OpDef op = ops::get("conv_chain");
  const std::string examples = std::string(op.examples) + ";" + std::string(kMore);
  op.examples = examples;
  for (const std::string_view form : {"plain", "paired", "pieces"}) {
    std::map<std::string, std::vector<double>> first;
    for (const auto& [threads, together] : {std::pair(2, 0), {1, 0}, {3, 0}, {5, 0}, {1, 1000}, {2, 1000}, {3, 1000}}) {
      device::DeviceOptions options;
      options.threads = threads;
      options.tuning.set("chain.together", together);
      options.tuning.set("gemm.paired", form == "paired");
      options.tuning.set("gemm.halves", form == "paired");
      options.tuning.set("chain.pairs", form == "paired");
      options.tuning.set("gemm.pieces", form == "pieces");
      const auto device = step::open_device("cpu", options);
      for (const ops::Example& example : ops::examples(op)) {
        SCOPED_TRACE(fmt::format("{} threads, {}, {} together: {}", threads, form, together, example.text));
        std::string where;
        EXPECT_LE(step::error_in_tolerances(*device, op, example, step::Layout::dense, 3, &where), 1) << where;
        const ir::Graph graph = step::single_op_graph(op, example, step::Layout::dense);
        std::map<std::string, std::vector<double>> inputs;
        for (const ir::Node& node : graph.nodes)
          if (node.op == "input") {
            const auto index = inputs.size();
            inputs[node.attrs.text("name")] = ops::example_values(example.inputs[index], 7);
          }
        std::vector<double> y;
        for (const auto& [name, values] : step::run_once(*device, graph, inputs))
          y.insert(y.end(), values.begin(), values.end());
        const auto [it, fresh] = first.try_emplace(example.text, y);
        if (!fresh) {
          EXPECT_EQ(it->second, y);
        }
      }
    }
  }
}

}  // namespace
}  // namespace situ::test
