// memory_test.cpp -- what whole models must not cost: a score matrix, a launch per time step, a copy.
#include <gtest/gtest.h>

#include "harness.h"
#include "step/programs.h"
#include "step/session.h"

namespace situ::test {
namespace {

step::Program train_step(const std::string& model_name, int64_t batch) {
  const model::Model model = model::find_model(model_name);
  return step::compile({step::train_program({model, batch, {}})}, *device_under_test("cpu"), {}).programs[0];
}

int64_t copies(const step::Program& program) {
  int64_t count = 0;
  for (const device::LaunchSpec& launch : program.launches) count += launch.node.op == "copy";
  return count;
}

TEST(WholeModels, AttentionsMemoryGrowsLinearlyWithTheLength) {
  if (!device_under_test("cpu")) GTEST_SKIP();
  const auto bytes = [](int64_t length) {
    return static_cast<double>(train_step("gpt-mini@" + std::to_string(length), 1).plan.arena_bytes());
  };
  const double shortest = bytes(128);
  for (int64_t times : {2, 4, 8})
    EXPECT_LT(bytes(128 * times), 1.05 * static_cast<double>(times) * shortest) << 128 * times;
}

// From 64 rows on: below, a product of few rows needs no second launch to add up its parts.
TEST(WholeModels, AnLstmsLaunchesDoNotDependOnTheLength) {
  if (!device_under_test("cpu")) GTEST_SKIP();
  EXPECT_EQ(train_step("char-lstm@32", 2).launches.size(), train_step("char-lstm@512", 2).launches.size());
}

TEST(WholeModels, ConcatsAndStridedGradientsCostNoCopy) {
  if (!device_under_test("cpu")) GTEST_SKIP();
  EXPECT_EQ(copies(train_step("squeezenet1.1@64", 2)), 0);
  EXPECT_EQ(copies(train_step("resnet20", 2)), 0);
  EXPECT_EQ(copies(train_step("resnet18@64", 2)), 0);
}

}  // namespace
}  // namespace situ::test
