// simd_test.cpp -- the instruction set the CPU's kernels run with: who chooses it, and that training is the same on
// all.
//
// ctest runs the kernel suite with each of them (simd.*), scripts/test --arch on other processors.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "backend/cpu/simd_info.h"
#include "data/batches.h"
#include "harness.h"
#include "ir/text.h"
#include "model/init.h"
#include "step/devices.h"
#include "step/programs.h"
#include "step/run.h"

namespace situ::test {
namespace {

// SITU_SIMD for a while. What it chose goes with it: the set belongs to the process, and other tests' devices live on.
class ForcedSimd {
 public:
  explicit ForcedSimd(const std::string& name) {
    const char* old = std::getenv("SITU_SIMD");
    old_ = old ? old : "";
    setenv("SITU_SIMD", name.c_str(), 1);
  }
  ~ForcedSimd() {
    setenv("SITU_SIMD", old_.c_str(), 1);
    try {
      cpu::simd_info();
    } catch (const Error&) {  // the name from outside is none of this processor's: the tests have said so
    }
  }

 private:
  std::string old_;
};

// SITU_TEST_SIMD="NEON 4" is what a script knows of the machine: the set, and the floats of its vectors.
TEST(Simd, IsTheOneThisMachineShouldHave) {
  const cpu::SimdInfo info = cpu::simd_info();
  fmt::print("simd: {}, {} floats\n", info.name, info.lanes);
  const std::string name = device_under_test("cpu")->target().name;
  EXPECT_NE(name.find("(" + info.name + ")"), std::string::npos) << name;
  const char *forced = std::getenv("SITU_SIMD"), *expected = std::getenv("SITU_TEST_SIMD");
  if (forced && *forced) {
    EXPECT_STRCASEEQ(info.name.c_str(), forced);
  }
  if (!expected) GTEST_SKIP() << "SITU_TEST_SIMD does not say which";
  EXPECT_EQ(fmt::format("{} {}", info.name, info.lanes), expected);
}

TEST(Simd, EverySetOfThisProcessorIsChosenByItsName) {
  const std::vector<std::string> sets = cpu::simd_sets();
  ASSERT_FALSE(sets.empty());
  for (std::string name : sets) {
    const ForcedSimd simd(name);
    EXPECT_NE(step::open_device("cpu")->target().name.find("(" + name + ")"), std::string::npos) << name;
    for (char& c : name) c = static_cast<char>(std::tolower(c));
    setenv("SITU_SIMD", name.c_str(), 1);
    EXPECT_EQ(cpu::simd_info().lanes, step::open_device("cpu")->target().tuning.get("simd.lanes", 0)) << name;
  }
  const ForcedSimd simd("");
  EXPECT_EQ(cpu::simd_info().name, sets[0]);
}

TEST(Simd, AnUnknownNameIsRefusedWithTheNamesThereAre) {
  const std::vector<std::string> sets = cpu::simd_sets();
  const ForcedSimd simd("mmx");
  expect_error([] { step::open_device("cpu"); },
               "`mmx` is no instruction set of this processor: use one of " + sets[0]);
}

// Training must not hide a number that went wrong. Instruction sets differ in what the larger of 0 and NaN is.
TEST(Simd, ANaNPassesReluAndClipping) {
  device::Device* device = device_under_test("cpu");
  if (!device) GTEST_SKIP() << "cpu is left out by SITU_TEST_DEVICES";
  const ir::Graph graph = ir::parse(
      "program p\n%0 = input {name=\"x\"} : f32[1,40]\n%1 = input {name=\"lr\"} : f32[]\n"
      "%2 = relu(%0) : f32[1,40]\n%3 = relu6(%0) : f32[1,40]\n"
      "%4 = sgd(%1, %0, %0) {clip_value=0.5} : f32[1,40]\n%5 = input {name=\"one\"} : f32[1,1]\n"
      "%6 = matmul(%5, %0) {epilogue=\"relu\"} : f32[1,40]\n"
      "output(%2) {name=\"relu\"}\noutput(%3) {name=\"relu6\"}\noutput(%4) {name=\"sgd\"}\n"
      "output(%6) {name=\"product\"}\n");
  std::vector<double> x(40, -1.0);
  x[3] = x[38] = std::nan("");  // in a whole vector, and in what is left of a row
  const step::Tensors results = step::run_once(*device, graph, {{"x", x}, {"lr", {0.5}}, {"one", {1}}});
  EXPECT_EQ(results.size(), 4u);
  for (const auto& [name, values] : results)
    for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(std::isnan(values[i]), std::isnan(x[i])) << name << " " << i;
}

std::vector<double> lenet5_losses(int steps) {
  constexpr int64_t rows = 16;
  device::Device& device = *device_under_test("cpu");
  const model::Model model = model::find_model("lenet5");
  step::Session session(device, {step::train_program({model, rows, {}})});
  for (const ir::State& state : session.states())
    if (!state.attrs.flag("derived")) session.set(state.name, model::initial_values(state, 1));
  const data::DatasetPair data = data::load_dataset("synthetic:28x28x1:10:320");
  data::Batches batches(data.train, rows, data::measure_normalisation(data.train), data::Order::shuffled, 1);
  batches.start_epoch(0);
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    step::Batch& batch = session.next_batch();
    batches.fill(step, batch.f32("x").data(), batch.i32("labels").data(), batch.f32("weight").data());
    batch.set("lr", 0.2f);
    batch.set("scale", 1.0f / rows);
    session.run(0, batch);
    losses.push_back(session.get_double(step::kTrainMetrics)[3]);
  }
  return losses;
}

// Recorded on x86-64 with AVX-512 (SITU_UPDATE_GOLDEN=1 writes them anew): every processor and instruction set begins
// with the same numbers and stays by them.
TEST(Simd, LeNet5TrainsAsRecorded) {
  if (!device_under_test("cpu")) GTEST_SKIP() << "cpu is left out by SITU_TEST_DEVICES";
  const auto path = std::filesystem::path(SITU_SOURCE_DIR) / "tests" / "golden" / "lenet5.losses";
  const std::vector<double> losses = lenet5_losses(20);
  if (std::getenv("SITU_UPDATE_GOLDEN")) {
    std::ofstream file(path);
    for (double loss : losses) file << fmt::format("{:.9g}\n", loss);
  }
  std::ifstream file(path);
  double recorded = 0, worst = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    ASSERT_TRUE(file >> recorded) << path;
    const double error = std::fabs(losses[i] / recorded - 1);
    EXPECT_LE(error, i == 0 ? 1e-5 : 1e-3) << "step " << i + 1 << ": " << losses[i] << ", recorded " << recorded;
    if (i == 0) fmt::print("lenet5: loss {:.9g} at step 1, off by {:.1e}; ", losses[0], error);
    worst = std::max(worst, error);
  }
  fmt::print("{:.9g} at step {}, the worst off by {:.1e}\n", losses.back(), losses.size(), worst);
  EXPECT_LT(losses.back(), losses.front());
}

}  // namespace
}  // namespace situ::test
