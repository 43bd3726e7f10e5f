// metrics_test.cpp -- running totals of an evaluation and what they say, by numbers computed by hand.
#include "train/metrics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "oracle.h"

namespace situ::train {
namespace {

using Vector = std::vector<double>;

Vector run(std::string_view op, std::string_view text, const oracle::Tensors& inputs) {
  return oracle::run(oracle::single(ops::get(op), oracle::examples_from(op, text).at(0)).view(), inputs)[0];
}

// Labels 1, 2, 0, 3, 1; in the first row 2 and 2 are equal, the first comes first.
TEST(MetricOps, AccuracyOfTheBestFew) {
  const Vector logits{1, 2, 2, 0, 1, 2, 2, 0, 0, 1, 2, 3, 9, 9, 9, 9, 4, 1, 3, 2};
  const Vector labels{1, 2, 0, 3, 1}, weight{1, 2, 4, 8, 16};
  const char* const types = "f32[5,4], i32[5], f32[5]";
  EXPECT_EQ(run("accuracy", types, {logits, labels, weight}), (Vector{1, 0, 0, 0, 0}));
  auto top = [&](int k) { return run("accuracy", fmt::format("{} {{top={}}}", types, k), {logits, labels, weight}); };
  EXPECT_EQ(top(2), (Vector{1, 2, 0, 0, 0}));
  EXPECT_EQ(top(3), (Vector{1, 2, 0, 0, 0}));
  EXPECT_EQ(top(4), (Vector{1, 2, 4, 8, 16}));
  const double nan = std::nan("");
  EXPECT_EQ(run("accuracy", "f32[3,2], i32[3], f32[3] {top=2}", {{1, 2, nan, nan, 1, 2}, {2, 0, -1}, {1, 1, 1}}),
            (Vector{0, 0, 0}));
}

TEST(MetricOps, ConfusionCountsLabelsByAnswers) {
  EXPECT_EQ(run("confusion", "f32[2,2], f32[5,2], i32[5], f32[5]",
                {{10, 20, 30, 40}, {1, 0, 0, 1, 1, 1, 0, 1, 0, 1}, {0, 0, 1, 1, 2}, {1, 2, 4, 8, 16}}),
            (Vector{11, 22, 34, 48}));
}

TEST(MetricOps, RegressionAddsUpErrors) {
  EXPECT_EQ(run("regression_metrics", "f32[4], f32[3,2], f32[3,2], f32[3]",
                {{10, 20, 30, 40}, {1, 2, 3, 4, 5, 6}, {2, 2, 0, 4, 9, 9}, {1, 0.5, 0}}),
            (Vector{10 + 1 + 1.5, 20 + 1 + 4.5, 30 + 2 + 1, 40 - 1 + 1.5}));
}

// Labels by answers: 8 of 10 zeros right; 3 of 5 ones right; class 2 never occurs and is answered once.
TEST(ClassReports, ByHand) {
  const ClassReport r = class_report(Vector{8, 1, 1, 2, 3, 0, 0, 0, 0});
  EXPECT_DOUBLE_EQ(r.accuracy, 11.0 / 15);
  ASSERT_EQ(r.classes.size(), 3u);
  EXPECT_DOUBLE_EQ(r.classes[0].precision, 0.8);
  EXPECT_DOUBLE_EQ(r.classes[0].recall, 0.8);
  EXPECT_DOUBLE_EQ(r.classes[0].f1, 0.8);
  EXPECT_DOUBLE_EQ(r.classes[0].count, 10);
  EXPECT_DOUBLE_EQ(r.classes[1].precision, 0.75);
  EXPECT_DOUBLE_EQ(r.classes[1].recall, 0.6);
  EXPECT_DOUBLE_EQ(r.classes[1].f1, 2 * 0.75 * 0.6 / 1.35);
  EXPECT_EQ(r.classes[2].precision, 0);
  EXPECT_EQ(r.classes[2].recall, 0);
  EXPECT_EQ(r.classes[2].f1, 0);
  EXPECT_DOUBLE_EQ(r.macro.precision, 1.55 / 3);
  EXPECT_DOUBLE_EQ(r.macro.recall, 1.4 / 3);
  EXPECT_DOUBLE_EQ(r.macro.f1, (0.8 + 2 * 0.75 * 0.6 / 1.35) / 3);
  EXPECT_EQ(r.macro.count, 15);
}

TEST(ClassReports, NothingSeenIsNothing) {
  const ClassReport r = class_report(Vector(4, 0));
  EXPECT_EQ(r.accuracy, 0);
  EXPECT_EQ(r.macro.f1, 0);
}

TEST(ClassReports, AsATable) {
  const std::vector<std::string> names{"ankle boot"};
  EXPECT_EQ(to_table(class_report(Vector{3, 1, 0, 4}), names),
            "class       precision  recall      f1     count\n"
            "ankle boot     1.0000  0.7500  0.8571         4\n"
            "1              0.8000  1.0000  0.8889         4\n"
            "macro          0.9000  0.8750  0.8730         8\n"
            "accuracy       0.8750\n");
}

TEST(ErrorReports, ByHand) {
  const ErrorReport r = error_report(Vector{6, 18, 2, -1});
  EXPECT_DOUBLE_EQ(r.mean_absolute, 3);
  EXPECT_DOUBLE_EQ(r.root_mean_square, 3);
  EXPECT_DOUBLE_EQ(r.bias, -0.5);
  EXPECT_EQ(error_report(Vector(4, 0)).root_mean_square, 0);
  EXPECT_DOUBLE_EQ(perplexity(std::log(12.5)), 12.5);
}

}  // namespace
}  // namespace situ::train
