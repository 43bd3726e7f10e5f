// lessons_test.cpp -- `situ lessons`: each stage takes away exactly the launches, waits and bytes it says. Never a
// time.
#include "prof/lessons.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "device/study.h"
#include "harness.h"
#include "prof/profile.h"
#include "step/devices.h"
#include "step/programs.h"

namespace situ::prof {
namespace {

constexpr int64_t kBatch = 32;

std::unique_ptr<device::Device> open_opencl(bool plain, DType activations) {
  device::DeviceOptions options;
  if (plain) options.tuning = device::tuning_for("opencl/plain", "");
  options.activations = activations;
  return step::open_device("opencl", options);
}

class LessonsTaken : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!test::device_under_test("opencl") || !test::device_under_test("cpu")) return;
    const auto cpu = step::open_device("cpu"), plain = open_opencl(true, DType::f32),
               tiled = open_opencl(false, DType::f32), half = open_opencl(false, DType::f16);
    Lab lab{cpu.get(), plain.get(), tiled.get(), half.get(), {}, {}};
    cpu->choices = tiled->choices = {{"some", "choice"}};
    lab.tune = [](device::Device& device, const ir::Graph&) {
      tuned_.push_back(device.target().backend);
      return device::Choices{};
    };
    lab.progress = [](const LessonProgress& p) { progress_.push_back(p); };
    taken_ = new Lessons(take_lessons(lab, {{"mlp:16-16", "mlp:20-12-10-5"}, kBatch, 0, 2}));
    kept_ =
        cpu->choices == device::Choices{{"some", "choice"}} && tiled->choices == cpu->choices && plain->choices.empty();
  }
  static void TearDownTestSuite() {
    delete taken_;
    taken_ = nullptr;
  }
  void SetUp() override {
    if (!taken_) GTEST_SKIP() << "needs the devices cpu and opencl";
  }
  static const device::Counters& counted(const Lesson& lesson, std::string_view stage, bool opencl) {
    return lesson.find(stage, opencl)->m.counted;
  }
  inline static Lessons* taken_ = nullptr;
  inline static bool kept_ = false;
  inline static std::vector<std::string> tuned_;
  inline static std::vector<LessonProgress> progress_;
};

TEST_F(LessonsTaken, CountWhatTheLedgerSays) {
  for (const Lesson& lesson : taken_->list) {
    ASSERT_EQ(lesson.entries.size(), 2 * lesson_stages().size() - 1);
    for (const Entry& e : lesson.entries) {
      SCOPED_TRACE(lesson.model + " " + e.stage + (e.opencl ? " opencl" : " cpu"));
      EXPECT_EQ(e.m.counted.launches, e.m.ledger.launches);
      EXPECT_EQ(e.m.counted.waits, e.m.ledger.waits);
      EXPECT_EQ(e.m.counted.bytes_in, e.m.ledger.bytes_in);
      EXPECT_EQ(e.m.counted.bytes_out, e.m.ledger.bytes_out);
      EXPECT_EQ(e.m.batch, kBatch);
    }
  }
}

TEST_F(LessonsTaken, EachStageTakesOneCauseAway) {
  for (const Lesson& lesson : taken_->list)
    for (bool opencl : {true, false}) {
      SCOPED_TRACE(lesson.model + (opencl ? " opencl" : " cpu"));
      const auto naive = counted(lesson, "naive", opencl), weights = counted(lesson, "weights", opencl),
                 resident = counted(lesson, "resident", opencl), fused = counted(lesson, "fused", opencl);
      EXPECT_EQ(naive.launches, weights.launches);
      EXPECT_EQ(naive.launches, resident.launches);
      EXPECT_GT(resident.launches, fused.launches);
      EXPECT_GT(naive.waits, weights.waits);
      EXPECT_GE(weights.waits, weights.launches);
      EXPECT_EQ(resident.waits, 0);
      EXPECT_GT(naive.bytes_in, weights.bytes_in);
      EXPECT_GT(naive.bytes_out, weights.bytes_out);
      EXPECT_GT(weights.bytes_in, resident.bytes_in);
      for (const char* stage : {"resident", "fused", "tuned"}) {
        EXPECT_EQ(counted(lesson, stage, opencl).bytes_in, resident.bytes_in) << stage;
        EXPECT_EQ(counted(lesson, stage, opencl).bytes_out, 0) << stage;
        EXPECT_EQ(counted(lesson, stage, opencl).waits, 0) << stage;
      }
    }
  EXPECT_EQ(counted(taken_->list[0], "fp16", true).waits, 0);
  EXPECT_EQ(taken_->list[0].find("fp16", false), nullptr);
  if (test::device_under_test("opencl")->target().alignment <= 256) {  // a coarser one leaves gaps
    EXPECT_EQ(counted(taken_->list[0], "resident", true).bytes_in, kBatch * (16 + 1 + 1) * 4 + 256);
  }
}

TEST_F(LessonsTaken, LeaveTheDevicesAsTheyWereAndShowProgress) {
  EXPECT_TRUE(kept_);
  EXPECT_EQ(tuned_, (std::vector<std::string>{"opencl", "cpu", "opencl", "opencl", "cpu", "opencl"}));
  ASSERT_FALSE(progress_.empty());
  for (size_t i = 1; i < progress_.size(); ++i)
    if (progress_[i].model == progress_[i - 1].model) {
      EXPECT_GE(progress_[i].done, progress_[i - 1].done);
    }
  EXPECT_EQ(progress_.back().done, progress_.back().total);
}

// Winograd, images in lanes, splits: special ways are what the tuned stage brings.
TEST(PlainKernels, AreWaysForAnyOperands) {
  const model::Model model = model::find_model("resnet20");
  for (const char* name : {"cpu", "opencl"}) {
    if (!test::device_under_test(name)) continue;
    const auto device = step::open_device(name);
    const ir::Graph program = step::train_program({model, 4, {}});
    const auto kernels = [&] {
      std::string all;
      const step::Compiled compiled = step::compile({program}, *device, {});
      for (const device::LaunchSpec& launch : compiled.programs[0].launches) all += launch.node.op + " ";
      return all;
    };
    EXPECT_NE(kernels().find("winograd"), std::string::npos) << name;
    device->choices = plain_choices(*device, step::rewritten(program, *device));
    EXPECT_FALSE(device->choices.empty());
    EXPECT_EQ(kernels().find("winograd"), std::string::npos) << name;
    EXPECT_EQ(kernels().find("images"), std::string::npos) << name;
  }
}

// --- reports --------------------------------------------------------------------------------------------------------
Lessons made_up() {
  Lesson lesson{"mlp:784-256-128-16", 32, {}};
  const auto entry = [&](const char* stage, bool opencl, double seconds, step::TimeSplit split) {
    Entry e{stage, opencl, {}};
    e.m.best_seconds = seconds;
    e.m.split = split;
    e.m.counted = {31, 69, 0, 0, 4809904, 3355600};
    e.m.ledger.flops = 33.4e6;
    lesson.entries.push_back(e);
  };
  entry("naive", true, 0.012, {10, 1, 4, 2, 3, 0});
  entry("naive", false, 0.003, {10, 9, 0.5, 0.5, 0, 0});
  entry("tuned", true, 0.001, {10, 9, 0, 1, 0, 0});
  entry("tuned", false, 0.0005, {10, 10, 0, 0, 0, 0});
  return {"a processor", "a GPU", "1.0", {lesson}};
}

TEST(LessonsReport, SetsTheStudyBesideWithItsDevices) {
  for (const std::string& text : {lessons_text(made_up()), lessons_markdown(made_up())}) {
    for (const char* part :
         {"M4: mlp:784-256-128-16", "12.000", "24.0", "90%", "4809904", "a GPU", "backward pass only",
          "OnePlus 8 Pro (Snapdragon 865, Adreno 650)", "1.355", "12.8", "8.11"})
      EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  const auto json = nlohmann::json::parse(lessons_json(made_up()));
  EXPECT_DOUBLE_EQ(json["models"][0]["stages"]["naive"]["opencl"]["lost"], 0.9);
  EXPECT_DOUBLE_EQ(json["models"][0]["best_cpu_ms"], 0.5);
  EXPECT_EQ(json["study"]["times"].size(), 12u);
  const std::string page = report_page("lessons", lessons_json(made_up()));
  for (const char* part : {"data.lessons", "OnePlus 8 Pro"}) EXPECT_NE(page.find(part), std::string::npos) << part;
}

// The study's ratios, as it prints them, follow from the times here.
TEST(Study, RatiosAreThePublishedOnes) {
  const double published[4][3] = {{15, 23, 19}, {21, 38.5, 23}, {7, 14, 9}, {4.7, 12.9, 8}};
  for (size_t m = 0; m < device::study::models().size(); ++m)
    for (size_t p = 0; p < device::study::phones().size(); ++p) {
      const device::study::Times& t = device::study::models()[m].on[p];
      EXPECT_NEAR(t.gpu_improved / t.cpu / published[m][p], 1, 0.07) << m << " " << p;
      EXPECT_NO_THROW(model::find_model(device::study::models()[m].spec));
    }
}

}  // namespace
}  // namespace situ::prof
