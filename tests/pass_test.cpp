// pass_test.cpp -- each pass by its text before and after; and all together keep what a program computes.
#include "pass/pass.h"

#include <gtest/gtest.h>

#include "backend/ref/device.h"
#include "harness.h"
#include "ir/dead_code.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "step/run.h"

namespace situ::pass {
namespace {

using test::text_after;

const std::string kX = "%0 = input {name=\"x\"} : f32[4,3]\n";

TEST(CommonSubexpressions, EqualNodesAreComputedOnce) {
  EXPECT_EQ(
      text_after(common_subexpressions, kX + "%1 = relu(%0) : f32[4,3]\n%2 = relu(%0) : f32[4,3]\n%3 = add(%1, %2) : "
                                             "f32[4,3]\noutput(%3) {name=\"y\"}\n"),
      kX + "%1 = relu(%0) : f32[4,3]\n%2 = add(%1, %1) : f32[4,3]\noutput(%2) {name=\"y\"}\n");
}

TEST(CommonSubexpressions, OtherAttributesStayApart) {
  const std::string text =
      kX + "%1 = reduce(%0) {axes=[0], kind=\"sum\"} : f32[3]\n%2 = reduce(%0) {axes=[0], kind=\"max\"} : f32[3]\n" +
      "%3 = add(%1, %2) : f32[3]\noutput(%3) {name=\"y\"}\n";
  EXPECT_EQ(text_after(common_subexpressions, text), text);
}

// Twice the relu of %0, which `source` gives, so many nodes apart, or once.
std::string two_relus(const std::string& source, const char* type, int between, bool joined) {
  std::string text = fmt::format("%0 = {0} : {1}\n%1 = relu(%0) : {1}\n", source, type);
  int last = 1;
  for (int i = 0; i < between; ++i, ++last)
    text += fmt::format("%{} = square(%{}) : {}\n", last + 1, i == 0 ? 0 : last, type);
  const int chain = last;
  if (!joined) text += fmt::format("%{} = relu(%0) : {}\n", ++last, type);
  text += fmt::format("%{0} = add(%1, %{1}) : {5}\n%{2} = add(%{3}, %{4}) : {5}\noutput(%{2}) {{name=\"y\"}}\n",
                      last + 1, joined ? 1 : last, last + 2, last + 1, chain, type);
  return text;
}
TEST(CommonLaunches, OnlyNearOnesAreJoined) {
  const auto program = [](int between, bool joined) {
    return "state s : f32[4,3]\n" + two_relus("read {state=\"s\"}", "f32[4,3]", between, joined);
  };
  EXPECT_EQ(text_after(common_launches, program(15, false)), program(15, true));
  EXPECT_EQ(text_after(common_launches, program(16, false)), program(16, false));
}
TEST(CommonLaunches, ASmallBatchIsRearrangedOnce) {
  const auto program = [](const char* type, bool joined) { return two_relus("input {name=\"x\"}", type, 40, joined); };
  EXPECT_EQ(text_after(common_launches, program("f32[131072]", false)), program("f32[131072]", true));  // 512 KiB
  EXPECT_EQ(text_after(common_launches, program("f32[131073]", false)), program("f32[131073]", false));
}

// dw of [in, out] and dx of a linear layer with `rows` samples, as dw comes first or last.
std::string two_gradients(int rows, bool weight_first) {
  const std::string dw = " = matmul(%0, %1) {ta=1} : f32[8,4]\n";
  const std::string dx = fmt::format(" = matmul(%1, %2) {{tb=1}} : f32[{},8]\n", rows);
  return fmt::format(
      "%0 = input {{name=\"x\"}} : f32[{0},8]\n%1 = input {{name=\"dy\"}} : f32[{0},4]\n"
      "%2 = input {{name=\"w\"}} : f32[8,4]\n%3{1}%4{2}output(%{3}) {{name=\"dw\"}}\noutput(%{4}) {{name=\"dx\"}}\n",
      rows, weight_first ? dw : dx, weight_first ? dx : dw, weight_first ? 3 : 4, weight_first ? 4 : 3);
}
TEST(GradientOrder, ALargeWeightsGradientWaits) {
  EXPECT_EQ(text_after(gradient_order, two_gradients(3, true)), two_gradients(3, false));
  EXPECT_EQ(text_after(gradient_order, two_gradients(4, true)), two_gradients(4, true)) << "the activation is as large";
  EXPECT_EQ(text_after(gradient_order, two_gradients(3, false)), two_gradients(3, false));
}
TEST(GradientOrder, NotPastItsReader) {
  const std::string text =
      "%0 = input {name=\"x\"} : f32[3,8]\n%1 = input {name=\"dy\"} : f32[3,4]\n%2 = matmul(%0, %1) {ta=1} : f32[8,4]\n"
      "%3 = square(%2) : f32[8,4]\n%4 = matmul(%1, %3) {tb=1} : f32[3,8]\noutput(%4) {name=\"y\"}\n";
  EXPECT_EQ(text_after(gradient_order, text), text);
}

TEST(ConstantFolding, FoldsSplatsAndDropsIdentities) {
  EXPECT_EQ(
      text_after(constant_folding, kX + "%1 = const {value=0x1p+0} : f32[4,1]\n%2 = const {value=0x1p+1} : f32[]\n" +
                                       "%3 = mul(%0, %1) : f32[4,3]\n%4 = add(%2, %2) : f32[]\n%5 = mul(%3, %4) : "
                                       "f32[4,3]\noutput(%5) {name=\"y\"}\n"),
      kX + "%1 = const {value=0x1p+2} : f32[]\n%2 = mul(%0, %1) : f32[4,3]\noutput(%2) {name=\"y\"}\n");
}

TEST(ConstantFolding, FoldsFusedExpressionsOfSplats) {
  EXPECT_EQ(text_after(constant_folding, kX +
                                             "%1 = const {value=0x1p+0} : f32[]\n%2 = fused(%1) {expr=\"t0 = mul(i0, "
                                             "0x1.8p+0)\", shape=[4,1]} : f32[4,1]\n" +
                                             "%3 = mul(%0, %2) : f32[4,3]\noutput(%3) {name=\"y\"}\n"),
            kX + "%1 = const {value=0x1.8p+0} : f32[4,1]\n%2 = mul(%0, %1) : f32[4,3]\noutput(%2) {name=\"y\"}\n");
}

TEST(ConstantFolding, AnIdentityThatBroadcastsStays) {
  const std::string text =
      "%0 = input {name=\"x\"} : f32[1,3]\n%1 = const {value=0x1p+0} : f32[4,3]\n%2 = mul(%0, %1) : "
      "f32[4,3]\noutput(%2) {name=\"y\"}\n";
  EXPECT_EQ(text_after(constant_folding, text), text);
}

TEST(ConstantFolding, ZeroIsNoIdentityOfASubtrahend) {
  const std::string text =
      kX + "%1 = const {value=0x0p+0} : f32[]\n%2 = sub(%1, %0) : f32[4,3]\noutput(%2) {name=\"y\"}\n";
  EXPECT_EQ(text_after(constant_folding, text), text);
}

TEST(TransposeFolding, BecomesAFlagOfMatmul) {
  EXPECT_EQ(
      text_after(
          transpose_folding,
          kX + "%1 = transpose(%0) {perm=[1,0]} : f32[3,4]\n%2 = matmul(%1, %0) : f32[3,3]\noutput(%2) {name=\"y\"}\n"),
      kX + "%1 = matmul(%0, %0) {ta=1} : f32[3,3]\noutput(%1) {name=\"y\"}\n");
}

TEST(TransposeFolding, ClearsAFlagThatIsSet) {
  EXPECT_EQ(text_after(transpose_folding, kX + "%1 = transpose(%0) {perm=[1,0]} : f32[3,4]\n%2 = matmul(%1, %0) {ta=1, "
                                               "tb=1} : f32[4,4]\noutput(%2) {name=\"y\"}\n"),
            kX + "%1 = matmul(%0, %0) {ta=0, tb=1} : f32[4,4]\noutput(%1) {name=\"y\"}\n");
}

TEST(TransposeFolding, TransposesOfThreeAxesCompose) {
  const std::string head = "%0 = input {name=\"x\"} : f32[2,3,4]\n";
  EXPECT_EQ(text_after(transpose_folding, head + "%1 = transpose(%0) {perm=[1,2,0]} : f32[3,4,2]\n%2 = transpose(%1) "
                                                 "{perm=[0,2,1]} : f32[3,2,4]\noutput(%2) {name=\"y\"}\n"),
            head + "%1 = transpose(%0) {perm=[1,0,2]} : f32[3,2,4]\noutput(%1) {name=\"y\"}\n");
}

TEST(TransposeFolding, TwiceIsNothingAndReshapesMerge) {
  EXPECT_EQ(
      text_after(transpose_folding,
                 kX + "%1 = transpose(%0) {perm=[1,0]} : f32[3,4]\n%2 = transpose(%1) {perm=[1,0]} : f32[4,3]\n" +
                     "%3 = reshape(%2) {shape=[12]} : f32[12]\n%4 = reshape(%3) {shape=[2,6]} : f32[2,6]\noutput(%4) "
                     "{name=\"y\"}\n"),
      kX + "%1 = reshape(%0) {shape=[2,6]} : f32[2,6]\noutput(%1) {name=\"y\"}\n");
}

const std::string kMatmul = kX + "%1 = input {name=\"w\"} : f32[3,2]\n%2 = input {name=\"b\"} : f32[2]\n";

TEST(EpilogueFusion, BiasAndReluMoveIntoTheMatmul) {
  EXPECT_EQ(text_after(epilogue_fusion, kMatmul + "%3 = matmul(%0, %1) : f32[4,2]\n%4 = bias(%3, %2) : f32[4,2]\n%5 = "
                                                  "relu(%4) : f32[4,2]\noutput(%5) {name=\"y\"}\n"),
            kMatmul + "%3 = matmul(%0, %1, %2) {epilogue=\"bias+relu\"} : f32[4,2]\noutput(%3) {name=\"y\"}\n");
}

TEST(EpilogueFusion, AnIntermediateWithAnotherUserStays) {
  const std::string text = kMatmul +
                           "%3 = matmul(%0, %1) : f32[4,2]\n%4 = bias(%3, %2) : f32[4,2]\noutput(%3) "
                           "{name=\"z\"}\noutput(%4) {name=\"y\"}\n";
  EXPECT_EQ(text_after(epilogue_fusion, text).find("epilogue"), std::string::npos);
}

TEST(EpilogueFusion, TheBackwardMaskMovesIn) {
  EXPECT_EQ(
      text_after(epilogue_fusion, kMatmul + "%3 = input {name=\"m\"} : f32[4,2]\n%4 = matmul(%0, %1) : f32[4,2]\n%5 = "
                                            "relu_mask(%4, %3) : f32[4,2]\noutput(%5) {name=\"y\"}\n"),
      kMatmul.substr(0, kMatmul.find("%2")) +
          "%2 = input {name=\"m\"} : f32[4,2]\n%3 = matmul(%0, %1, %2) {epilogue=\"mask\"} : "
          "f32[4,2]\noutput(%3) {name=\"y\"}\n");
}

TEST(EpilogueFusion, TheMaskOfRelu6MovesIn) {
  EXPECT_EQ(
      text_after(epilogue_fusion, kMatmul + "%3 = input {name=\"m\"} : f32[4,2]\n%4 = matmul(%0, %1) : f32[4,2]\n%5 = "
                                            "relu6_mask(%4, %3) : f32[4,2]\noutput(%5) {name=\"y\"}\n"),
      kMatmul.substr(0, kMatmul.find("%2")) +
          "%2 = input {name=\"m\"} : f32[4,2]\n%3 = matmul(%0, %1, %2) {epilogue=\"mask6\"} : "
          "f32[4,2]\noutput(%3) {name=\"y\"}\n");
}

TEST(EpilogueFusion, TheMaskBeforeAPoolingMovesIntoItsGradient) {
  const std::string inputs = "%0 = input {name=\"x\"} : f32[1,4,4,3]\n%1 = input {name=\"dy\"} : f32[1,2,2,3]\n";
  EXPECT_EQ(
      text_after(epilogue_fusion, inputs + "%2 = max_pool_grad(%0, %1) {kernel=[2,2], stride=[2,2]} : f32[1,4,4,3]\n"
                                           "%3 = relu_mask(%2, %0) : f32[1,4,4,3]\noutput(%3) {name=\"dx\"}\n"),
      inputs +
          "%2 = max_pool_grad(%0, %1, %0) {epilogue=\"mask\", kernel=[2,2], stride=[2,2]} : f32[1,4,4,3]\n"
          "output(%2) {name=\"dx\"}\n");
}

TEST(EpilogueFusion, AMaskThatBroadcastsStays) {
  const std::string text = kMatmul +
                           "%3 = matmul(%0, %1) : f32[4,2]\n%4 = relu_mask(%3, %2) : f32[4,2]\noutput(%4) "
                           "{name=\"y\"}\n";
  EXPECT_EQ(text_after(epilogue_fusion, text), text);
}

TEST(EpilogueFusion, HoldsFourStepsAndNoMore) {
  std::string text = kMatmul + "%3 = matmul(%0, %1) : f32[4,2]\n%4 = bias(%3, %2) : f32[4,2]\n";
  for (int i = 5; i < 10; ++i)
    text += "%" + std::to_string(i) + (i % 2 ? " = relu(%" : " = relu6(%") + std::to_string(i - 1) + ") : f32[4,2]\n";
  EXPECT_EQ(text_after(epilogue_fusion, text + "output(%9) {name=\"y\"}\n"),
            kMatmul +
                "%3 = matmul(%0, %1, %2) {epilogue=\"bias+relu+relu6+relu\"} : f32[4,2]\n%4 = relu6(%3) : "
                "f32[4,2]\n%5 = relu(%4) : f32[4,2]\noutput(%5) {name=\"y\"}\n");
}

TEST(PointwiseFusion, AChainBecomesOneNodeWithLiterals) {
  const std::string text = text_after(
      pointwise_fusion, kX + "%1 = const {value=0x1p+1} : f32[]\n%2 = mul(%0, %1) : f32[4,3]\n%3 = relu(%2) : "
                             "f32[4,3]\n%4 = add(%3, %0) : f32[4,3]\noutput(%4) {name=\"y\"}\n");
  EXPECT_NE(text.find("fused(%0)"), std::string::npos) << text;
  EXPECT_EQ(text.find("const"), std::string::npos) << text;
}

TEST(PointwiseFusion, WhatSomebodyElseReadsIsNotAbsorbed) {
  const std::string text = text_after(
      pointwise_fusion,
      kX + "%1 = relu(%0) : f32[4,3]\n%2 = exp(%1) : f32[4,3]\noutput(%1) {name=\"a\"}\noutput(%2) {name=\"b\"}\n");
  EXPECT_EQ(text.find("fused"), std::string::npos) << text;
}

TEST(PointwiseFusion, SmallerOperandsAreNotRecomputed) {
  const std::string text =
      text_after(pointwise_fusion, kX + "%1 = input {name=\"b\"} : f32[3]\n%2 = exp(%1) : f32[3]\n%3 = "
                                        "add(%0, %2) : f32[4,3]\noutput(%3) {name=\"y\"}\n");
  EXPECT_NE(text.find("exp(%1)"), std::string::npos) << text;
}

const std::string kUpdates =
    "state a : f32[2]\nstate b : f32[3]\n%0 = control {name=\"lr\"} : f32[]\n%1 = read {state=\"a\"} : f32[2]\n%2 = "
    "read {state=\"b\"} : f32[3]\n%3 = input {name=\"ga\"} : f32[2]\n%4 = input {name=\"gb\"} : f32[3]\n";

TEST(UpdateGrouping, OneNodePerSettings) {
  const std::string text = text_after(
      update_grouping, kUpdates +
                           "%5 = sgd(%0, %1, %3) {decay=0x0p+0, momentum=0x0p+0} : f32[2]\nwrite(%5) {state=\"a\"}\n"
                           "%6 = sgd(%0, %2, %4) {decay=0x0p+0, momentum=0x0p+0} : f32[3]\nwrite(%6) {state=\"b\"}\n");
  EXPECT_NE(text.find("sgd(%0, %1, %3, %2, %4)"), std::string::npos) << text;
  EXPECT_NE(text.find("write(%6) {state=\"b\"}"), std::string::npos) << text;
}

// Large gradients are used as soon as they are known, so that their memory can serve again: the update of b, whose
// gradient comes first, does not wait for a's. What belongs to no large group goes with the last one.
TEST(UpdateGrouping, LargeGradientsDoNotWaitForTheLastOne) {
  const std::string big = "f32[3000,1000]";
  const std::string text =
      text_after(update_grouping, "program p\nstate a : " + big + "\nstate b : " + big + "\nstate c : f32[2]\n" +
                                      "%0 = input {name=\"x\"} : " + big + "\n%1 = relu(%0) : " + big +
                                      "\n%2 = relu(%1) : " + big +
                                      "\n%3 = control {name=\"lr\"} : f32[]\n%4 = read {state=\"a\"} : " + big +
                                      "\n%5 = read {state=\"b\"} : " + big + "\n%6 = read {state=\"c\"} : f32[2]\n" +
                                      "%7 = sgd(%3, %4, %2) {decay=0x0p+0, momentum=0x0p+0} : " + big +
                                      "\n%8 = sgd(%3, %5, %1) {decay=0x0p+0, momentum=0x0p+0} : " + big +
                                      "\n%9 = sgd(%3, %6, %6) {decay=0x0p+0, momentum=0x0p+0} : f32[2]\n" +
                                      "write(%7) {state=\"a\"}\nwrite(%8) {state=\"b\"}\nwrite(%9) {state=\"c\"}\n");
  const size_t first = text.find("sgd("), second = text.find("sgd(", first + 1);
  EXPECT_LT(first, text.find("relu", text.find("relu") + 1)) << text;
  EXPECT_GT(second, text.rfind("relu")) << text;
  EXPECT_EQ(text.find("sgd(", second + 1), std::string::npos) << text;
}

TEST(UpdateGrouping, OtherSettingsStayApart) {
  const std::string text = kUpdates +
                           "%5 = sgd(%0, %1, %3) {decay=0x0p+0, momentum=0x0p+0} : f32[2]\n"
                           "%6 = sgd(%0, %2, %4) {decay=0x1p-4, momentum=0x0p+0} : f32[3]\n"
                           "write(%5) {state=\"a\"}\nwrite(%6) {state=\"b\"}\n";
  EXPECT_EQ(text_after(update_grouping, text), text);
}

TEST(UpdateGrouping, OtherRatesStayApart) {
  const std::string text = kUpdates +
                           "%5 = add(%0, %0) : f32[]\n%6 = sgd(%0, %1, %3) {decay=0x0p+0, momentum=0x0p+0} : f32[2]\n"
                           "%7 = sgd(%5, %2, %4) {decay=0x0p+0, momentum=0x0p+0} : f32[3]\n"
                           "write(%6) {state=\"a\"}\nwrite(%7) {state=\"b\"}\n";
  EXPECT_EQ(text_after(update_grouping, text), text);
}

// Were it moved to the last member's place, its reader would stand in front of it.
TEST(UpdateGrouping, AnUpdateThatIsReadKeepsItsPlace) {
  const std::string text = kUpdates +
                           "%5 = sgd(%0, %1, %3) {decay=0x0p+0, momentum=0x0p+0} : f32[2]\n%6 = relu(%5) : f32[2]\n"
                           "%7 = sgd(%0, %2, %4) {decay=0x0p+0, momentum=0x0p+0} : f32[3]\n"
                           "output(%6) {name=\"y\"}\nwrite(%5) {state=\"a\"}\nwrite(%7) {state=\"b\"}\n";
  EXPECT_EQ(text_after(update_grouping, text), text);
}

// Panels of two weights, made where each is needed or both at once, then used.
std::string two_packings(const char* first, const char* second, bool joined) {
  const std::string begin = "state v : f32[4,4]\nstate w : f32[4,4]\n%0 = read {state=\"w\"} : f32[4,4]\n",
                    v = "read {state=\"v\"} : f32[4,4]\n";
  if (joined)
    return begin + "%1 = " + v +
           fmt::format("%2, %3 = pack(%0, %1) {{joins=1, nv=[1,2]}} : {}, {}\n%4 = relu(%2) : {}\n%5 = relu(%3) : {}\n",
                       first, second, first, second) +
           "output(%4) {name=\"a\"}\noutput(%5) {name=\"b\"}\n";
  return begin +
         fmt::format(
             "%1 = pack(%0) {{joins=1, nv=[1]}} : {0}\n%2 = relu(%1) : {0}\n%3 = {2}"
             "%4 = pack(%3) {{joins=1, nv=[2]}} : {1}\n%5 = relu(%4) : {1}\n",
             first, second, v) +
         "output(%2) {name=\"a\"}\noutput(%5) {name=\"b\"}\n";
}
TEST(LaunchGroups, PanelsOfWeightsAreMadeTogether) {
  EXPECT_EQ(text_after(launch_groups, two_packings("f32[1,4,4]", "f32[1,4,8]", false)),
            two_packings("f32[1,4,4]", "f32[1,4,8]", true));
}
TEST(LaunchGroups, LargeOnesAreNot) {
  EXPECT_EQ(text_after(launch_groups, two_packings("f32[65536]", "f32[65536]", false)),
            two_packings("f32[65536]", "f32[65536]", true));  // 512 KiB
  const std::string large = two_packings("f32[65536]", "f32[65537]", false);
  const std::string apart = text_after(launch_groups, large);
  EXPECT_EQ(apart.find("pack(%0, "), std::string::npos) << apart;
}
TEST(LaunchGroups, WhatTheProgramComputesIsNotWaitedFor) {
  const std::string text =
      "state w : f32[4,4]\n%0 = read {state=\"w\"} : f32[4,4]\n%1 = pack(%0) {joins=1, nv=[1]} : f32[4,4]\n"
      "%2 = relu(%1) : f32[4,4]\n%3 = pack(%2) {joins=1, nv=[1]} : f32[4,4]\noutput(%3) {name=\"y\"}\n";
  EXPECT_EQ(text_after(launch_groups, text), text);
}
TEST(LaunchGroups, FourAtATime) {
  std::string text = "state w : f32[4,4]\n%0 = read {state=\"w\"} : f32[4,4]\n";
  for (int i = 1; i <= 5; ++i) text += fmt::format("%{0} = pack(%0) {{joins=1, nv=[{0}]}} : f32[4,4]\n", i);
  for (int i = 1; i <= 5; ++i) text += fmt::format("output(%{0}) {{name=\"y{0}\"}}\n", i);
  const std::string grouped = text_after(launch_groups, text);
  EXPECT_NE(grouped.find("pack(%0, %0, %0, %0) {joins=1, nv=[1,2,3,4]}"), std::string::npos) << grouped;
  EXPECT_NE(grouped.find("pack(%0) {joins=1, nv=[5]}"), std::string::npos) << grouped;
}

// The gradient of a first layer: %3 its results, pooled in %4, %6 the gradient of those; four images to a sheaf.
std::string first_layer(const std::string& between, const std::string& after) {
  return "%0 = input {name=\"x\"} : f32[2,8,8,4]\n%1 = input {name=\"w\"} : f32[5,5,1,6]\n"
         "%2 = input {name=\"g\"} : f32[2,4,4,64]\n" +
         between + after;
}
TEST(ImageSheaves, StayBetweenLaunchesWhoseLanesAreImages) {
  EXPECT_EQ(
      text_after(image_sheaves,
                 first_layer("%3 = conv(%0, %1) {sheaves=0} : f32[8,8,8,6]\n%4 = max_pool(%3) : f32[8,4,4,6]\n"
                             "%5 = conv(%2, %1) {sheaves=0} : f32[8,4,4,6]\n"
                             "%6 = max_pool_grad(%3, %5) : f32[8,8,8,6]\n"
                             "%7 = interleave_images(%6) {before=[0,0]} : f32[2,8,8,24]\n"
                             "%8 = dw(%0, %7) {splits=3, sums=0} : f32[3,5,5,1,6]\n"
                             "%9 = sum(%6) {first=0, kind=\"sum\", last=3, scale=0x1p+0} : f32[1,7,1,6]\n",
                             "%10 = input {name=\"lr\"} : f32[]\n%11 = input {name=\"b\"} : f32[6]\n"
                             "%12 = sgd(%10, %11, %9) : f32[6]\noutput(%4) {name=\"p\"}\noutput(%8) {name=\"dw\"}\n"
                             "output(%12) {name=\"b\"}\n")),
      first_layer("%3 = conv(%0, %1) {sheaves=1} : f32[2,8,8,24]\n%4 = max_pool(%3) : f32[2,4,4,24]\n"
                  "%5 = spread_images(%4) : f32[8,4,4,6]\n"
                  "%6 = conv(%2, %1) {sheaves=1} : f32[2,4,4,24]\n"
                  "%7 = max_pool_grad(%3, %6) : f32[2,8,8,24]\n"
                  "%8, %9 = dw(%0, %7) {splits=3, sums=1} : f32[3,5,5,1,6], f32[3,6]\n",
                  "%10 = input {name=\"lr\"} : f32[]\n%11 = input {name=\"b\"} : f32[6]\n"
                  "%12 = sgd(%10, %11, %9) : f32[6]\noutput(%5) {name=\"p\"}\noutput(%8) {name=\"dw\"}\n"
                  "output(%12) {name=\"b\"}\n"));
}
// A launch that makes nothing but sheaves, and a gradient that comes as images: only what is small is moved.
TEST(ImageSheaves, WhatIsSpreadStaysAndWhatIsMissingIsInterleaved) {
  const std::string outputs = "output(%9) {name=\"dw\"}\n";
  EXPECT_EQ(
      text_after(image_sheaves, first_layer("%3 = tiles(%0, %1) : f32[2,8,8,24]\n"
                                            "%4 = spread_images(%3) : f32[8,8,8,6]\n%5 = max_pool(%4) : f32[8,4,4,6]\n"
                                            "%6 = relu(%2) : f32[8,4,4,6]\n%7 = max_pool_grad(%4, %6) : f32[8,8,8,6]\n"
                                            "%8 = interleave_images(%7) {before=[0,0]} : f32[2,8,8,24]\n"
                                            "%9 = dw(%0, %8) : f32[5,5,1,6]\n",
                                            outputs + "output(%5) {name=\"p\"}\n")),
      first_layer("%3 = tiles(%0, %1) : f32[2,8,8,24]\n%4 = max_pool(%3) : f32[2,4,4,24]\n"
                  "%5 = spread_images(%4) : f32[8,4,4,6]\n%6 = relu(%2) : f32[8,4,4,6]\n"
                  "%7 = interleave_images(%6) {before=[0,0]} : f32[2,4,4,24]\n"
                  "%8 = max_pool_grad(%3, %7) : f32[2,8,8,24]\n%9 = dw(%0, %8) : f32[5,5,1,6]\n",
                  outputs + "output(%5) {name=\"p\"}\n"));
}
// What is read as images, too, is spread as before; of other lanes, it is interleaved anew.
TEST(ImageSheaves, WhatIsSpreadForOthers) {
  const std::string spread = "%3 = tiles(%0, %1) : f32[2,8,8,24]\n%4 = spread_images(%3) : f32[8,8,8,6]\n",
                    outputs = "output(%4) {name=\"y\"}\noutput(%2) {name=\"g\"}\n";
  EXPECT_EQ(text_after(image_sheaves, first_layer(spread + "%5 = interleave_images(%4) {before=[0,0]} : f32[2,8,8,24]\n"
                                                           "%6 = dw(%0, %5) : f32[5,5,1,6]\noutput(%6) {name=\"dw\"}\n",
                                                  outputs)),
            first_layer(spread + "%5 = dw(%0, %3) : f32[5,5,1,6]\noutput(%5) {name=\"dw\"}\n", outputs));
  const std::string other = first_layer(spread +
                                            "%5 = interleave_images(%4) {before=[0,0]} : f32[1,8,8,48]\n"
                                            "%6 = dw(%0, %5) : f32[5,5,1,6]\noutput(%6) {name=\"dw\"}\n",
                                        outputs);
  EXPECT_EQ(text_after(image_sheaves, other), other);
}
TEST(ImageSheaves, WhatOthersReadStaysAsItIs) {
  const std::string pooled =
      "%3 = conv(%0, %1) {sheaves=0} : f32[8,8,8,6]\n%4 = conv(%2, %1) {sheaves=0} : f32[8,4,4,6]\n"
      "%5 = max_pool_grad(%3, %4) : f32[8,8,8,6]\n";
  const std::string interleaved = "%6 = interleave_images(%5) {before=[0,0]} : f32[2,8,8,24]\n",
                    dw = "%7 = dw(%0, %6) {splits=3, sums=0} : f32[3,5,5,1,6]\noutput(%7) {name=\"dw\"}\n";
  for (const std::string& text : {
           // the gradient itself, its sum for others than updates, a mean
           first_layer(pooled + interleaved + dw, "output(%5) {name=\"dy\"}\n"),
           first_layer(pooled + interleaved + dw,
                       "%8 = sum(%5) {first=0, kind=\"sum\", last=3, scale=0x1p+0} : f32[6]\noutput(%8) "
                       "{name=\"db\"}\n"),
           first_layer(pooled + interleaved + dw,
                       "%8 = sum(%5) {first=0, kind=\"mean\", last=3, scale=0x1p+0} : f32[6]\n"
                       "%9 = sgd(%8, %8, %8) : f32[6]\noutput(%9) {name=\"b\"}\n"),
           // with a margin of zeros; from a launch that makes no sheaves
           first_layer(pooled + "%6 = interleave_images(%5) {before=[1,1]} : f32[2,10,10,24]\n" + dw, ""),
           first_layer("%3 = relu(%0, %1) : f32[8,8,8,6]\n%4 = relu(%2) : f32[8,4,4,6]\n"
                       "%5 = max_pool_grad(%3, %4) : f32[8,8,8,6]\n" +
                           interleaved + dw,
                       ""),
       })
    EXPECT_EQ(text_after(image_sheaves, text), text);
}

// What the passes do must not change what is computed: a little of everything, on the oracle.
TEST(Pipeline, KeepsTheResult) {
  const std::string text =
      "program p\n" + kMatmul +
      "%3 = matmul(%0, %1) : f32[4,2]\n%4 = bias(%3, %2) : f32[4,2]\n%5 = relu(%4) : f32[4,2]\n"
      "%6 = const {value=0x1.8p+0} : f32[]\n%7 = mul(%5, %6) : f32[4,2]\n%8 = tanh(%7) : f32[4,2]\n"
      "%9 = transpose(%8) {perm=[1,0]} : f32[2,4]\n%10 = matmul(%9, %0) : f32[2,3]\n"
      "%11 = add(%10, %10) : f32[2,3]\noutput(%11) {name=\"y\"}\noutput(%5) {name=\"h\"}\n";
  step::Tensors inputs;
  for (auto [name, count] : {std::pair{"x", 12}, {"w", 6}, {"b", 2}})
    for (int i = 0; i < count; ++i) inputs[name].push_back(0.25 * ((i * 7) % 11) - 1);
  const auto device = ref::make_device();
  step::SessionOptions plain;
  plain.compile.fuse = false;
  const auto expected = step::run_once(*device, ir::parse(text), inputs, plain),
             got = step::run_once(*device, ir::parse(text), inputs);
  for (const auto& [name, values] : expected)
    for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(got.at(name)[i], values[i], 1e-12) << name << " " << i;
}

}  // namespace
}  // namespace situ::pass
