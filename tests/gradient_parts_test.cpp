// gradient_parts_test.cpp -- gradients that are left to their updates in rows, parts or factors
// (pass/gradient_parts.cpp), by their texts before and after.
#include <gtest/gtest.h>

#include "harness.h"
#include "pass/pass.h"

namespace situ::pass {
namespace {

using test::text_after;

// w[4,3] updated by a gradient in `parts`, summed before or in the update.
std::string split_update(int parts, bool summed, const std::string& sum_attrs = "", const std::string& more = "") {
  return fmt::format(
             "state w : f32[4,{1}]\n%0 = input {{name=\"lr\"}} : f32[]\n%1 = input {{name=\"parts\"}} : "
             "f32[{0},4,{1}]\n"
             "%2 = read {{state=\"w\"}} : f32[4,{1}]\n",
             parts, 3) +
         (summed ? "%3 = sum_splits(%1)" + sum_attrs + " : f32[4,3]\n%4 = sgd(%0, %2, %3) : f32[4,3]\n" + more +
                       "write(%4) {state=\"w\"}\n"
                 : "%3 = sgd(%0, %2, %1) : f32[4,3]\nwrite(%3) {state=\"w\"}\n");
}

TEST(GradientParts, AnUpdateAddsThemUp) {
  EXPECT_EQ(text_after(gradient_parts, split_update(5, true)), split_update(5, false));
}

TEST(GradientParts, WhatElseIsReadOrDoneStays) {
  const std::string activated = split_update(5, true, " {epilogue=\"relu\"}");
  EXPECT_EQ(text_after(gradient_parts, activated), activated);
  const std::string shared = split_update(5, true, "", "output(%3) {name=\"g\"}\n");
  EXPECT_EQ(text_after(gradient_parts, shared), shared);
}

// They would live until the update.
TEST(GradientParts, ManyAreSummedAtOnce) {
  EXPECT_EQ(text_after(gradient_parts, split_update(5461, true)), split_update(5461, false));  // 256 KiB
  EXPECT_EQ(text_after(gradient_parts, split_update(5462, true)), split_update(5462, true));
}

// b[3] updated by a sum of dy's rows, as %3, or by %1, which is dy.
std::string bias_update(int rows, const std::string& sum) {
  return fmt::format(
      "state b : f32[3]\n%0 = input {{name=\"lr\"}} : f32[]\n%1 = input {{name=\"dy\"}} : f32[{0},3]\n"
      "%2 = read {{state=\"b\"}} : f32[3]\n{1}%{2} = sgd(%0, %2, %{3}) : f32[3]\nwrite(%{2}) {{state=\"b\"}}\n",
      rows, sum, sum.empty() ? 3 : 4, sum.empty() ? 1 : 3);
}
TEST(GradientRows, FewRowsAreParts) {
  const std::string sum = "%3 = reduce(%1) {axes=[0], kind=\"sum\"} : f32[3]\n",
                    mean = "%3 = reduce(%1) {axes=[0], kind=\"mean\"} : f32[3]\n",
                    across = "%3 = reduce(%1) {axes=[1], kind=\"sum\"} : f32[3]\n";
  EXPECT_EQ(text_after(gradient_rows, bias_update(128, sum)), bias_update(128, ""));
  EXPECT_EQ(text_after(gradient_rows, bias_update(129, sum)), bias_update(129, sum));
  EXPECT_EQ(text_after(gradient_rows, bias_update(8, mean)), bias_update(8, mean));
  EXPECT_EQ(text_after(gradient_rows, bias_update(3, across)), bias_update(3, across));
}
TEST(GradientParts, TheSecondStepOfALongSumIsLeftToTheUpdate) {
  EXPECT_EQ(text_after(gradient_parts, bias_update(128, "%3 = reduce_cols(%1) {adds_parts=1} : f32[3]\n")),
            bias_update(128, ""));
  const std::string other = bias_update(8, "%3 = reduce_cols(%1) : f32[3]\n");
  EXPECT_EQ(text_after(gradient_parts, other), other);
}

// w[K,N] updated by a product of B samples, or by its factors; `rest`: what else reads the gradient, %5.
std::string product_update(int samples, int k, int n, bool factors, const std::string& rest = "",
                           const char* ta = "1") {
  const std::string w = fmt::format("f32[{},{}]", k, n);
  const std::string begin = fmt::format(
      "state w : {0}\n%0 = input {{name=\"lr\"}} : f32[]\n%1 = input {{name=\"x\"}} : f32[{1},{2}]\n"
      "%2 = input {{name=\"dy\"}} : f32[{1},{3}]\n%3 = read {{state=\"w\"}} : {0}\n",
      w, samples, k, n);
  const std::string gradient = factors ? fmt::format("%4 = concat(%1, %2) {{axis=1}} : f32[{},{}]\n", samples, k + n)
                                       : fmt::format("%4 = matmul(%1, %2) {{ta={}}} : {}\n", ta, w);
  return begin + gradient +
         fmt::format("%5 = {}(%0, %3, %4) : {}\nwrite(%5) {{state=\"w\"}}\n{}", factors ? "sgd_factors" : "sgd", w,
                     rest);
}
ir::Graph with_factors(const ir::Graph& graph) {
  device::Tuning tuning;
  tuning.set("update.samples", 8);
  return gradient_factors(graph, tuning);
}
TEST(GradientFactors, FewSamplesAreLeftToTheUpdate) {
  EXPECT_EQ(text_after(with_factors, product_update(8, 512, 512, false)), product_update(8, 512, 512, true));
  EXPECT_EQ(text_after(with_factors, product_update(9, 512, 512, false)), product_update(9, 512, 512, false));
  EXPECT_EQ(text_after(with_factors, product_update(8, 511, 512, false)), product_update(8, 511, 512, false));
}
TEST(GradientFactors, AGradientThatIsReadElsewhereIsMade) {
  const std::string read = product_update(8, 512, 512, false, "output(%4) {name=\"g\"}\n");
  EXPECT_EQ(text_after(with_factors, read), read);
}
TEST(GradientFactors, NoneWhereTheDeviceAsksForNone) {
  const auto without = [](const ir::Graph& graph) { return gradient_factors(graph, {}); };
  EXPECT_EQ(text_after(without, product_update(8, 512, 512, false)), product_update(8, 512, 512, false));
}
TEST(GradientFactors, ABiasFindsItsRowsThere) {
  const std::string begin =
      "state b : f32[512]\nstate w : f32[512,512]\n%0 = input {name=\"lr\"} : f32[]\n%1 = input {name=\"x\"} : "
      "f32[8,512]\n%2 = input {name=\"dy\"} : f32[8,512]\n%3 = read {state=\"w\"} : f32[512,512]\n%4 = read "
      "{state=\"b\"} : f32[512]\n";
  const std::string end = " : f32[512,512], f32[512]\nwrite(%6) {state=\"w\"}\nwrite(%7) {state=\"b\"}\n";
  EXPECT_EQ(text_after(with_factors,
                       begin + "%5 = matmul(%1, %2) {ta=1} : f32[512,512]\n%6, %7 = sgd(%0, %3, %5, %4, %2)" + end),
            begin + "%5 = concat(%1, %2) {axis=1} : f32[8,1024]\n%6, %7 = sgd_factors(%0, %3, %5, %4, %5)" + end);
}
TEST(GradientFactors, OtherProductsStay) {
  const std::string plain = product_update(512, 512, 512, false, "", "0");
  device::Tuning tuning;
  tuning.set("update.samples", 1000);
  EXPECT_EQ(text_after([&](const ir::Graph& graph) { return gradient_factors(graph, tuning); }, plain), plain);
}

}  // namespace
}  // namespace situ::pass
