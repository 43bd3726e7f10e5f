// launch_list_test.cpp -- passes over launch lists keep what a program computes, on every device: sums of rows that
// updates take over, packings that share a launch, images that stay side by side, both gradients of a layer at once.
#include <gtest/gtest.h>

#include <algorithm>

#include "harness.h"
#include "ir/text.h"
#include "ops/op.h"
#include "plan/plan.h"
#include "step/compile.h"
#include "step/run.h"

namespace situ::test {
namespace {

class OnDevices : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!device_under_test(GetParam())) GTEST_SKIP() << GetParam() << " is left out by SITU_TEST_DEVICES";
  }

  // Every input is a few small numbers, so that all sums are exact.
  static step::Tensors inputs_of(const ir::Graph& graph) {
    step::Tensors inputs;
    for (const ir::Node& node : graph.nodes)
      if (node.op == "input")
        for (int64_t i = 0; i < graph.type(node.outputs[0]).count(); ++i)
          inputs[node.attrs.text("name")].push_back(
              static_cast<double>((i * 7 + static_cast<int64_t>(inputs.size())) % 9) - 4);
    return inputs;
  }

  static void expect_as_written(const std::string& text) {
    const ir::Graph graph = ir::parse(text);
    step::SessionOptions plain;
    plain.compile.fuse = false;
    const step::Tensors inputs = inputs_of(graph);
    EXPECT_EQ(step::run_once(*device_under_test(GetParam()), graph, inputs),
              step::run_once(*device_under_test("ref"), graph, inputs, plain));
  }

  static int64_t launches(const std::string& text, std::string_view op) {
    const step::Compiled compiled = step::compile({ir::parse(text)}, *device_under_test(GetParam()), {});
    return std::ranges::count(compiled.programs[0].launches, op,
                              [](const device::LaunchSpec& launch) { return launch.node.op; });
  }
};

class GradientPartsOnDevices : public OnDevices {
 protected:
  static std::string update_by(const char* dy, const char* b, const std::string& reduce) {
    return fmt::format(
        "program p\n%0 = input {{name=\"lr\"}} : f32[]\n%1 = input {{name=\"dy\"}} : {0}\n%2 = input {{name=\"b\"}} : "
        "{1}\n"
        "%3 = reduce(%1) {{{2}}} : {1}\n%4 = sgd(%0, %2, %3) : {1}\noutput(%4) {{name=\"b\"}}\n",
        dy, b, reduce);
  }
};
TEST_P(GradientPartsOnDevices, SumsOfFewRows) {
  const std::string rows = update_by("f32[9,20]", "f32[20]", "axes=[0], kind=\"sum\""),
                    images = update_by("f32[2,3,4,5]", "f32[5]", "axes=[0,1,2], kind=\"sum\"");
  for (const std::string& text : {rows, images}) {
    expect_as_written(text);
    for (const char* op : {"reduce", "reduce_cols", "reduce_partial"}) EXPECT_EQ(launches(text, op), 0) << text;
  }
}
TEST_P(GradientPartsOnDevices, SumsOfManyRows) {
  const std::string text = update_by("f32[64,16,16,6]", "f32[6]", "axes=[0,1,2], kind=\"sum\"");
  expect_as_written(text);
  EXPECT_EQ(launches(text, "reduce_cols") + launches(text, "reduce_partial"), 1)
      << "in two steps, one of them the update";
  EXPECT_EQ(launches(text, "reduce_final"), 0);
}
TEST_P(GradientPartsOnDevices, OtherSumsStay) {
  expect_as_written(update_by("f32[4,4,3]", "f32[4,3]", "axes=[1], kind=\"sum\""));
  expect_as_written(update_by("f32[4,4]", "f32[4]", "axes=[1], kind=\"sum\""));
  expect_as_written(update_by("f32[8,20]", "f32[20]", "axes=[0], kind=\"mean\""));
  expect_as_written(update_by("f32[8,20]", "f32[20]", "axes=[0], kind=\"max\""));
  expect_as_written(update_by("f32[64,32,32,4]", "f32[4]", "axes=[0,1,2], kind=\"mean\""));
  expect_as_written(update_by("f32[64,32,32,4]", "f32[4]", "axes=[0,1,2], kind=\"max\""));
}

class PackedGroups : public OnDevices {};
TEST_P(PackedGroups, MatricesOfDifferentShapesAndTaps) {
  const std::string text =
      "program p\n%0 = input {name=\"a\"} : f32[40,30]\n%1 = input {name=\"w\"} : f32[70,30]\n"
      "%2 = matmul(%0, %1) {tb=1} : f32[40,70]\n"
      "%3 = input {name=\"dy\"} : f32[2,5,6,10]\n%4 = input {name=\"k\"} : f32[3,3,7,10]\n"
      "%5 = conv2d_dx(%3, %4) {pad=[1,1,1,1], size=[5,6], stride=[1,1]} : f32[2,5,6,7]\n"
      "%6 = input {name=\"g\"} : f32[3,3,4,12]\n%7 = input {name=\"dz\"} : f32[2,5,6,12]\n"
      "%8 = conv2d_dx(%7, %6) {groups=2, pad=[1,1,1,1], size=[5,6], stride=[1,1]} : f32[2,5,6,8]\n"
      "output(%2) {name=\"y\"}\noutput(%5) {name=\"dx\"}\noutput(%8) {name=\"dxg\"}\n";
  expect_as_written(text);
  EXPECT_EQ(launches(text, "pack_cols"), GetParam() == "opencl" ? 1 : 0);
}

// The first layers of a small network: few filters, which images in the lanes suit, pooling, and their gradients. The
// second layer's window has no tiles (winograd_images.cpp), whose sums of whole numbers are rounded.
class SheavesOnDevices : public OnDevices {
 protected:
  // The rate comes first: the inputs' numbers would make it 0 later. `reader`: one more node that reads the gradient
  // %12 of the first layer's results or the bias's %13, or nothing.
  static std::string first_layers(int64_t images, const char* pool, const std::string& reader = "") {
    const bool max = std::string_view(pool) == "max_pool";
    return fmt::format(
        "program p\n%0 = input {{name=\"lr\"}} : f32[]\n%1 = input {{name=\"w\"}} : f32[5,5,1,6]\n"
        "%2 = input {{name=\"b\"}} : f32[6]\n%3 = input {{name=\"x\"}} : f32[{0},12,10,1]\n"
        "%4 = conv2d(%3, %1) {{pad=[2,2,2,2], stride=[1,1]}} : f32[{0},12,10,6]\n%5 = bias(%4, %2) : f32[{0},12,10,6]\n"
        "%6 = relu(%5) : f32[{0},12,10,6]\n"
        "%7 = {1}(%6) {{kernel=[2,2], stride=[2,2]}} : f32[{0},6,5,6]\n"
        "%8 = input {{name=\"dz\"}} : f32[{0},2,2,16]\n%9 = input {{name=\"v\"}} : f32[5,4,6,16]\n"
        "%10 = conv2d_dx(%8, %9) {{pad=[0,0,0,0], size=[6,5], stride=[1,1]}} : f32[{0},6,5,6]\n"
        "%11 = {1}_grad({2}%10) {{kernel=[2,2], stride=[2,2]{3}}} : f32[{0},12,10,6]\n"
        "%12 = relu_mask(%11, %6) : f32[{0},12,10,6]\n"
        "%13 = reduce(%12) {{axes=[0,1,2], kind=\"sum\"}} : f32[6]\n"
        "%14 = conv2d_dw(%3, %12) {{kernel=[5,5], pad=[2,2,2,2], stride=[1,1]}} : f32[5,5,1,6]\n"
        "%15, %16 = sgd(%0, %1, %14, %2, %13) : f32[5,5,1,6], f32[6]\n"
        "%17 = conv2d(%7, %9) {{pad=[0,0,0,0], stride=[1,1]}} : f32[{0},2,2,16]\n{4}"
        "output(%15) {{name=\"w\"}}\noutput(%16) {{name=\"b\"}}\noutput(%17) {{name=\"z\"}}\n",
        images, pool, max ? "%6, " : "", max ? "" : ", size=[12,10]", reader);
  }
  template <typename Counts>
  static int64_t launches_that(const Counts& counts, const std::string& text) {
    const step::Compiled compiled = step::compile({ir::parse(text)}, *device_under_test(GetParam()), {});
    return std::ranges::count_if(compiled.programs[0].launches, counts);
  }
  static int64_t sheaf_launches(const std::string& text) {
    return launches_that(
        [](const device::LaunchSpec& launch) {
          return launch.node.attrs.flag("sheaves") || launch.node.attrs.flag("sums");
        },
        text);
  }
  // Whether the device takes the first layer, its weight gradient and the second one's data gradient with images in the
  // lanes: results of 12 and of 6 lines, and dw.
  static bool lanes_are_images(const std::string& text) {
    const auto takes = [](const device::LaunchSpec& launch) {
      const Shape& y = launch.out[0].shape();
      return launch.node.op.starts_with("conv") && launch.node.op.ends_with("_images") &&
             (launch.node.op.find("dw") != std::string::npos || y[1] == 12 || y[1] == 6);
    };
    return launches_that(takes, text) == 3;
  }
};
TEST_P(SheavesOnDevices, GradientsOfFirstLayers) {
  for (int64_t images : {64, 37, 3})
    for (const char* pool : {"max_pool", "avg_pool"}) {
      SCOPED_TRACE(fmt::format("{} images, {}", images, pool));
      expect_as_written(first_layers(images, pool));
    }
}
// A gradient that others read as images is interleaved beside it, as before.
TEST_P(SheavesOnDevices, GradientsThatOthersRead) {
  const std::string shown = "output(%12) {name=\"dy\"}\n";
  expect_as_written(first_layers(64, "max_pool", shown));
  EXPECT_EQ(sheaf_launches(first_layers(64, "max_pool", shown)), 0);
}
// A sum that is no update's alone keeps its shape.
TEST_P(SheavesOnDevices, SumsThatOthersRead) {
  expect_as_written(first_layers(64, "max_pool", "output(%13) {name=\"db\"}\n"));
}
// A convolution by tiles between poolings, and its gradients: images side by side throughout. (Maxima would do for
// averages if rounding could not choose between equal ones.)
TEST_P(SheavesOnDevices, TilesOfImages) {
  for (int64_t images : {64, 37}) {
    const ir::Graph graph = ir::parse(fmt::format(
        "program p\n%0 = input {{name=\"x\"}} : f32[{0},14,12,6]\n%1 = input {{name=\"w\"}} : f32[5,5,6,16]\n"
        "%2 = input {{name=\"b\"}} : f32[16]\n%3 = max_pool(%0) {{kernel=[1,1], stride=[1,1]}} : f32[{0},14,12,6]\n"
        "%4 = conv2d(%3, %1, %2) {{epilogue=\"bias+relu\"}} : f32[{0},10,8,16]\n"
        "%5 = avg_pool(%4) {{kernel=[2,2], stride=[2,2]}} : f32[{0},5,4,16]\n"
        "%6 = input {{name=\"g\"}} : f32[{0},5,4,16]\n"
        "%7 = avg_pool_grad(%6) {{kernel=[2,2], size=[10,8], stride=[2,2]}} : f32[{0},10,8,16]\n"
        "%8 = conv2d_dx(%7, %1) {{size=[14,12]}} : f32[{0},14,12,6]\n"
        "%9 = conv2d_dw(%3, %7) {{kernel=[5,5]}} : f32[5,5,6,16]\n"
        "output(%5) {{name=\"y\"}}\noutput(%8) {{name=\"dx\"}}\noutput(%9) {{name=\"dw\"}}\n",
        images));
    const step::Tensors inputs = inputs_of(graph);
    step::SessionOptions plain;
    plain.compile.fuse = false;
    const auto got = step::run_once(*device_under_test(GetParam()), graph, inputs),
               expected = step::run_once(*device_under_test("ref"), graph, inputs, plain);
    for (const auto& [name, values] : expected)
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_NEAR(got.at(name)[i], values[i], name == "dw" ? 0.02 : 1e-3) << images << " " << name << " " << i;
  }
}
TEST_P(SheavesOnDevices, StayWhereLanesAreImages) {
  if (!lanes_are_images(first_layers(64, "max_pool"))) GTEST_SKIP() << "other kernels suit this device better";
  EXPECT_EQ(sheaf_launches(first_layers(64, "max_pool")), 3) << "forward, data gradient, and the bias's sum";
}

TEST_P(SheavesOnDevices, NotForKernelsThatFailTheirSelfTest) {
  if (GetParam() != "opencl") GTEST_SKIP() << "no driver compiles the CPU's kernels";
  const auto device = device_under_test("opencl");
  const std::string text = first_layers(64, "max_pool");
  const step::Compiled compiled = step::compile({ir::parse(text)}, *device, {});
  const ir::Graph& graph = compiled.programs[0].graph;
  const auto pool = std::ranges::find(graph.nodes, "max_pool", &ir::Node::op);
  ASSERT_NE(pool, graph.nodes.end());
  if (graph.type(pool->outputs[0]).shape[3] == 6) GTEST_SKIP() << "no sheaves here";
  const auto known = device->left_out;
  device->left_out[plan::unit_of(*device, ops::view_of(graph, *pool), nullptr)] = "wrong";
  EXPECT_EQ(sheaf_launches(text), 0);
  device->left_out = known;
}

class JointGradientsOnDevices : public OnDevices {
 protected:
  // Both gradients of a depthwise convolution of x[2,h,w,c]; dx is masked by input `mask`. `between` comes after the
  // first of them.
  static std::string gradients(const std::string& x, const std::string& dy, int64_t channels, const std::string& window,
                               const std::string& size, const char* mask, bool dw_first = true,
                               const std::string& between = "") {
    const std::string dw =
        fmt::format("%4 = conv2d_dw(%0, %1) {{groups={0}, kernel=[3,3], {1}}} : f32[3,3,1,{0}]\n", channels, window);
    const std::string dx =
        fmt::format("%5 = conv2d_dx(%1, %2, {3}) {{epilogue=\"mask6\", groups={0}, size={1}, {2}}} : {4}\n", channels,
                    size, window, mask, x);
    return fmt::format(
        "program p\n%0 = input {{name=\"x\"}} : {0}\n%1 = input {{name=\"dy\"}} : {1}\n%2 = input {{name=\"w\"}} : "
        "f32[3,3,1,{2}]\n%3 = input {{name=\"mask\"}} : {0}\n{3}{4}{5}"
        "%8 = reduce(%3) {{axes=[0,1,2], kind=\"sum\"}} : f32[{2}]\noutput(%8) {{name=\"mask\"}}\noutput(%4) "
        "{{name=\"dw\"}}\noutput(%5) "
        "{{name=\"dx\"}}\n",
        x, dy, channels, dw_first ? dw : dx, between, dw_first ? dx : dw);
  }
  static void expect_joined(const std::string& text, bool joined = true) {
    expect_as_written(text);
    EXPECT_EQ(launches(text, "conv2d_depthwise3_grads"), joined) << text;
    EXPECT_EQ(launches(text, "conv2d_depthwise3_dx") + launches(text, "conv2d_depthwise3_dw"), joined ? 0 : 2) << text;
  }
};
TEST_P(JointGradientsOnDevices, OfEveryWindow) {
  for (const int64_t c : {3, 16, 21, 40})
    for (const char* mask : {"%0", "%3"}) {
      const auto image = [&](int64_t h, int64_t w) { return fmt::format("f32[2,{},{},{}]", h, w, c); };
      expect_joined(gradients(image(5, 7), image(5, 7), c, "pad=[1,1,1,1]", "[5,7]", mask));
      expect_joined(gradients(image(1, 37), image(1, 37), c, "pad=[1,1,1,1]", "[1,37]", mask));
      expect_joined(gradients(image(6, 4), image(4, 4), c, "pad=[0,2,0,0]", "[6,4]", mask));
      expect_joined(gradients(image(4, 5), image(6, 3), c, "pad=[2,0,2,0]", "[4,5]", mask));
      expect_joined(gradients(image(7, 9), image(4, 5), c, "pad=[1,1,1,1], stride=[2,2]", "[7,9]", mask));
      expect_joined(gradients(image(8, 70), image(4, 35), c, "pad=[1,1,1,1], stride=[2,2]", "[8,70]", mask));
      expect_joined(gradients(image(8, 6), image(3, 2), c, "pad=[0,0,0,0], stride=[2,2]", "[8,6]", mask));
      expect_joined(gradients(image(5, 6), image(3, 4), c, "pad=[2,2,0,2], stride=[2,2]", "[5,6]", mask));
    }
}
TEST_P(JointGradientsOnDevices, InParts) {
  expect_joined(gradients("f32[2,40,40,64]", "f32[2,40,40,64]", 64, "pad=[1,1,1,1]", "[40,40]", "%0"));
}
TEST_P(JointGradientsOnDevices, InEitherOrder) {
  const std::string x = "f32[2,5,7,16]", window = "pad=[1,1,1,1]";
  expect_joined(gradients(x, x, 16, window, "[5,7]", "%0", false));
}
// What the second reads is made from the first's result, or only after it while the first's result is asked for.
TEST_P(JointGradientsOnDevices, UnlessOneWaitsForTheOther) {
  const std::string x = "f32[2,5,7,16]", window = "pad=[1,1,1,1]";
  expect_joined(gradients(x, x, 16, window, "[5,7]", "%7", true,
                          "%6 = reduce(%4) {axes=[0,1,2], kind=\"sum\"} : f32[16]\n"
                          "%7 = bias(%3, %6) : f32[2,5,7,16]\n"),
                false);
  expect_joined(gradients(x, x, 16, window, "[5,7]", "%6", true, "%6 = square(%3) : f32[2,5,7,16]\n"));
}

// Branches that are added up share dy: the weights' gradient of one and the data's of the other, with another window.
TEST_P(JointGradientsOnDevices, OfOneWindowOnly) {
  const std::string text =
      "program p\n%0 = input {name=\"x\"} : f32[2,5,7,16]\n%1 = input {name=\"dy\"} : f32[2,5,7,16]\n"
      "%2 = input {name=\"w\"} : f32[3,3,1,16]\n"
      "%3 = conv2d_dw(%0, %1) {groups=16, kernel=[3,3], pad=[1,1,1,1]} : f32[3,3,1,16]\n"
      "%4 = conv2d_dx(%1, %2) {groups=16, pad=[0,0,2,2], size=[5,7]} : f32[2,5,7,16]\n"
      "output(%3) {name=\"dw\"}\noutput(%4) {name=\"dx\"}\n";
  expect_joined(text, false);
}

const auto kNames = [](const auto& p) { return p.param; };
INSTANTIATE_TEST_SUITE_P(, GradientPartsOnDevices, testing::Values("cpu", "opencl"), kNames);
INSTANTIATE_TEST_SUITE_P(, SheavesOnDevices, testing::Values("cpu", "opencl"), kNames);
INSTANTIATE_TEST_SUITE_P(, PackedGroups, testing::Values("cpu", "opencl"), kNames);
INSTANTIATE_TEST_SUITE_P(, JointGradientsOnDevices, testing::Values("cpu"), kNames);  // no other has a kernel for both

}  // namespace
}  // namespace situ::test
