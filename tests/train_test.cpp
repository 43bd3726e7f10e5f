// train_test.cpp -- schedules by hand-computed values; training to the end on made-up data; weights in PyTorch's order.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numbers>

#include "base/error.h"
#include "harness.h"
#include "ir/text.h"
#include "model/init.h"
#include "train/evaluator.h"
#include "train/schedule.h"
#include "train/trainer.h"

namespace situ::train {
namespace {

TEST(Schedules, Constant) {
  const Schedule s{Schedule::constant, 0.5, 10, 0, 0.1};
  for (int64_t step : {0, 5, 9, 20}) EXPECT_EQ(rate_at(s, step), 0.5);
}
TEST(Schedules, StepFallsAtHalfAndThreeQuarters) {
  const Schedule s{Schedule::step, 1, 100, 0, 0.1};
  EXPECT_DOUBLE_EQ(rate_at(s, 49), 1);
  EXPECT_DOUBLE_EQ(rate_at(s, 50), 0.1);
  EXPECT_DOUBLE_EQ(rate_at(s, 74), 0.1);
  EXPECT_DOUBLE_EQ(rate_at(s, 75), 0.01);
}
TEST(Schedules, CosineFromFullToNothing) {
  const Schedule s{Schedule::cosine, 2, 100, 0, 0.1};
  EXPECT_DOUBLE_EQ(rate_at(s, 0), 2);
  EXPECT_NEAR(rate_at(s, 50), 1, 1e-12);
  EXPECT_NEAR(rate_at(s, 25), 1 + std::sqrt(0.5), 1e-12);
  EXPECT_NEAR(rate_at(s, 100), 0, 1e-12);
}
TEST(Schedules, LinearFromFullToNothing) {
  const Schedule s{Schedule::linear, 2, 110, 10, 0.1};
  EXPECT_DOUBLE_EQ(rate_at(s, 9), 2);
  EXPECT_DOUBLE_EQ(rate_at(s, 10), 2);
  EXPECT_DOUBLE_EQ(rate_at(s, 35), 1.5);
  EXPECT_NEAR(rate_at(s, 109), 0.02, 1e-15);
  EXPECT_EQ(rate_at(s, 110), 0);
  EXPECT_EQ(rate_at(s, 200), 0);
}
// PyTorch: OneCycleLR(max_lr=1, total_steps=20). The peak stands at step 5, the end at step 19.
TEST(Schedules, OneCycleRisesAndFalls) {
  const Schedule s{Schedule::one_cycle, 1, 20, 0, 0.1};
  EXPECT_NEAR(rate_at(s, 0), 0.04, 1e-15);
  EXPECT_NEAR(rate_at(s, 1), 0.04 + 0.96 * (1 - std::cos(0.2 * std::numbers::pi)) / 2, 1e-15);
  EXPECT_NEAR(rate_at(s, 5), 1, 1e-15);
  EXPECT_NEAR(rate_at(s, 12), (1 + 4e-6) / 2, 1e-12);
  EXPECT_NEAR(rate_at(s, 19), 4e-6, 1e-15);
  EXPECT_NEAR(rate_at(s, 30), 4e-6, 1e-15);
  // total_steps=12: the peak lies between two steps, at 2.6.
  const Schedule between{Schedule::one_cycle, 2, 17, 5, 0.1};
  EXPECT_DOUBLE_EQ(rate_at(between, 4), 2);
  EXPECT_NEAR(rate_at(between, 5), 0.08, 1e-15);
  EXPECT_NEAR(rate_at(between, 7), 0.08 + 1.92 * (1 - std::cos(std::numbers::pi * 2 / 2.6)) / 2, 1e-12);
  EXPECT_NEAR(rate_at(between, 8), 8e-6 + (2 - 8e-6) * (1 + std::cos(std::numbers::pi * 0.4 / 8.4)) / 2, 1e-12);
  EXPECT_NEAR(rate_at(between, 16), 8e-6, 1e-12);
}
TEST(Schedules, VeryShortRuns) {
  for (auto kind : {Schedule::constant, Schedule::step, Schedule::cosine, Schedule::linear, Schedule::one_cycle})
    for (int64_t total : {1, 2, 3, 4, 10})
      for (int64_t step = 0; step <= total; ++step) {
        const double rate = rate_at({kind, 1, total, 0, 0.1}, step);
        EXPECT_TRUE(rate >= 0 && rate <= 1) << name_of(kind) << " " << total << " " << step;
      }
}
TEST(Schedules, HaveNames) {
  for (const char* name : {"constant", "step", "cosine", "linear", "one-cycle"})
    EXPECT_EQ(name_of(parse_schedule(name)), name);
  EXPECT_THROW(parse_schedule("one_cycle"), Error);
}
TEST(Schedules, WarmUpRisesLinearlyAndTheRestFollows) {
  const Schedule s{Schedule::cosine, 1, 110, 10, 0.1};
  EXPECT_DOUBLE_EQ(rate_at(s, 0), 0.1);
  EXPECT_DOUBLE_EQ(rate_at(s, 4), 0.5);
  EXPECT_DOUBLE_EQ(rate_at(s, 9), 1.0);
  EXPECT_DOUBLE_EQ(rate_at(s, 10), 1.0);
  EXPECT_NEAR(rate_at(s, 60), 0.5, 1e-12);
}

Settings tiny_settings() {
  Settings s;
  s.model = "mlp:64-32-4";
  s.batch = 48;  // 640 is no multiple of it
  s.epochs = 3;
  s.schedule.lr = 0.1;
  return s;
}

// Every batch of an epoch reaches the device as it would be filled by hand, whatever runs meanwhile.
TEST(Loader, FillsWhatTheNextRunReads) {
  const auto data = data::load_dataset("synthetic:2x2x1:3:50").train;
  const data::Normalisation normalisation = data::measure_normalisation(data);
  for (const char* name : {"ref", "cpu", "opencl"}) {
    device::Device* device = test::device_under_test(name);
    if (!device) continue;
    step::Session session(*device, {ir::parse("program p\n%0 = input() {name=\"x\"} : f32[8,4]\n"
                                              "%1 = input() {name=\"weight\"} : f32[8]\n"
                                              "%2 = neg(%0) : f32[8,4]\n%3 = neg(%1) : f32[8]\n"
                                              "output(%2) {name=\"x\"}\noutput(%3) {name=\"weight\"}\n")});
    data::Batches batches(data, 8, normalisation, data::Order::shuffled, 3);
    data::Batches direct(data, 8, normalisation, data::Order::shuffled, 3);
    direct.start_epoch(2);
    int64_t index = 0;
    for (Loader loader(session, batches, 2); loader.next(); ++index) {
      std::vector<float> x(32), weights(8);
      std::vector<int32_t> labels(8);
      direct.fill(index, x.data(), labels.data(), weights.data());
      for (auto* list : {&x, &weights})
        for (float& v : *list) v = -v;
      EXPECT_EQ(loader.slot().index, index);
      session.run(0, loader.batch());
      EXPECT_EQ(session.output(0, "x"), x) << name << " " << index;
      EXPECT_EQ(session.output(0, "weight"), weights) << name << " " << index;
    }
    EXPECT_EQ(index, batches.count()) << name;
  }
}

TEST(Trainer, LearnsMadeUpDataAndCountsEveryImageOnce) {
  auto data = data::load_dataset("synthetic:8x8x1:4:640");
  Trainer trainer(*test::device_under_test("cpu"), data, tiny_settings());
  std::vector<Progress> epochs;
  trainer.fit([&](const Progress& p) {
    if (p.epoch_done) epochs.push_back(p);
  });
  ASSERT_EQ(epochs.size(), 3u);
  EXPECT_LT(epochs[2].loss, epochs[0].loss);
  EXPECT_GT(epochs[2].test.accuracy, 0.6);
  EXPECT_EQ(trainer.evaluate(data.test).count, 160);
  for (int64_t batch : {1, 7, 64, 500}) {
    Settings s = tiny_settings();
    s.batch = batch;
    Trainer other(*test::device_under_test("cpu"), data, s);
    EXPECT_EQ(other.evaluate(data.test).count, 160) << batch;
  }
}

TEST(Trainer, AccumulationTakesStepsOfTheSameSize) {
  auto data = data::load_dataset("synthetic:8x8x1:4:640");
  Settings s = tiny_settings();
  s.batch = 16;
  s.micro_batches = 3;  // 40 batches: the last step has one
  Trainer trainer(*test::device_under_test("cpu"), data, s);
  trainer.fit({});
  EXPECT_GT(trainer.evaluate(data.test).accuracy, 0.6);
}

// Parameters after training on the first `count` images of a made-up set.
std::map<std::string, std::vector<float>> trained(int64_t count, int64_t batch, int64_t micro_batches) {
  auto data = data::load_dataset(fmt::format("synthetic:8x8x1:4:{}", count));
  Settings s = tiny_settings();
  s.batch = batch;
  s.micro_batches = micro_batches;
  Trainer trainer(*test::device_under_test("cpu"), data, s);
  trainer.fit({});
  std::map<std::string, std::vector<float>> result;
  for (const ir::State& state : trainer.session().states())
    if (model::has_role(state, "parameter")) result[state.name] = trainer.session().get(state.name);
  return result;
}

void expect_near(const std::map<std::string, std::vector<float>>& a,
                 const std::map<std::string, std::vector<float>>& b) {
  for (const auto& [name, values] : a)
    for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], b.at(name)[i], 2e-6) << name << " " << i;
}

TEST(Trainer, APartialBatchWeighsWhatItHolds) { expect_near(trained(20, 20, 1), trained(20, 32, 1)); }
TEST(Trainer, MicroBatchesAddUpToTheBatch) { expect_near(trained(48, 48, 1), trained(48, 16, 3)); }

TEST(Trainer, AStepWithFewerMicroBatchesIsAppliedToo) { expect_near(trained(20, 16, 1), trained(20, 8, 2)); }

TEST(Trainer, ALossThatIsNoNumberStopsWithAdvice) {
  auto data = data::load_dataset("synthetic:8x8x1:4:640");
  Settings s = tiny_settings();
  s.schedule = {Schedule::constant, 1e30, 1, 0, 0.1};
  Trainer trainer(*test::device_under_test("cpu"), data, s);
  EXPECT_THROW(trainer.fit({}), Error);
}

TEST(FileOrder, IsPyTorchsAndBack) {
  ir::State state{"w", f32({2, 3}), {{"factors", ir::Ints{2, 3}}, {"perm", ir::Ints{1, 0}}, {"file", ir::Ints{3, 2}}}};
  const std::vector<double> ours = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(model::to_file_order(state, ours), (std::vector<double>{1, 4, 2, 5, 3, 6}));
  const std::vector<float> theirs = {1, 4, 2, 5, 3, 6};
  EXPECT_EQ(model::from_file_order(state, theirs), (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

}  // namespace
}  // namespace situ::train
