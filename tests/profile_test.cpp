// profile_test.cpp -- where a step's time goes and which layer each launch serves. Nothing is timed.
#include "prof/profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "harness.h"
#include "model/init.h"
#include "step/ledger.h"
#include "step/programs.h"
#include "step/session.h"

namespace situ::test {
namespace {

using device::EventKind;
using device::HostKind;

// Every second is in one part, whatever overlaps.
void expect_whole(const step::TimeSplit& s) {
  EXPECT_DOUBLE_EQ(s.compute + s.movement + s.launch + s.wait + s.idle, s.wall);
}

TEST(TimeSplit, OverlapsCountOnceForWhatBeganFirst) {
  device::Timeline timeline;
  timeline.events = {{EventKind::kernel, 0, 10, 20, 10}, {EventKind::write, -1, 15, 22, 10}};
  const step::TimeSplit split = step::split(timeline, 10, 22);
  EXPECT_DOUBLE_EQ(split.compute, 10);
  EXPECT_DOUBLE_EQ(split.movement, 2);
  expect_whole(split);
}

TEST(TimeSplit, KernelsBesideKernelsCountOnce) {
  device::Timeline timeline;
  const auto kernel = EventKind::kernel;
  timeline.events = {{kernel, 0, 0, 10}, {kernel, 1, 2, 5}, {kernel, 2, 8, 12}, {kernel, 3, 20, 21}};
  EXPECT_DOUBLE_EQ(step::split(timeline, 0, 21).compute, 13);
  EXPECT_DOUBLE_EQ(step::split(timeline, 0, 21).launch, 8) << "queued long ago, so the gap is the launch's";
  EXPECT_DOUBLE_EQ(step::kernel_seconds(timeline), 13);
  expect_whole(step::split(timeline, 0, 21));
}

// A kernel ends at 10; the host comes out of its finish at 13, makes a batch until 18, queues from 18 to 20 a kernel
// that counts as queued at 19 and runs from 25 to 30; its finish returns at 34.
TEST(TimeSplit, GapsAreWaitIdleOrLaunch) {
  device::Timeline timeline;
  timeline.events = {{EventKind::kernel, 0, 0, 10, 0}, {EventKind::kernel, 0, 25, 30, 19}};
  timeline.host = {{HostKind::blocked, 2, 13}, {HostKind::queueing, 18, 20}, {HostKind::blocked, 20, 34}};
  const step::TimeSplit split = step::split(timeline, 0, 36);
  EXPECT_DOUBLE_EQ(split.compute, 15);
  EXPECT_DOUBLE_EQ(split.wait, 3 + 4);    // 10 to 13, 30 to 34
  EXPECT_DOUBLE_EQ(split.idle, 5 + 2);    // 13 to 18, 34 to 36
  EXPECT_DOUBLE_EQ(split.launch, 1 + 6);  // 18 to 19, 19 to 25
  EXPECT_DOUBLE_EQ(split.movement, 0);
  expect_whole(split);
}

TEST(TimeSplit, OnlyTheSecondsBetweenCount) {
  device::Timeline timeline;
  timeline.events = {{EventKind::kernel, 0, 0, 10}, {EventKind::read, -1, 12, 40, 11}};
  timeline.host = {{HostKind::blocked, 11, 40}};
  const step::TimeSplit split = step::split(timeline, 5, 15);
  EXPECT_DOUBLE_EQ(split.compute, 5);
  EXPECT_DOUBLE_EQ(split.movement, 3);
  EXPECT_DOUBLE_EQ(split.idle, 1);
  EXPECT_DOUBLE_EQ(split.launch, 1);
  expect_whole(split);
}

// --- layers ---------------------------------------------------------------------------------------------------------
using Launches = std::vector<device::LaunchSpec>;

class Origins : public testing::TestWithParam<const char*> {
 protected:
  Launches launches(const char* name, bool fuse = true) {
    const model::Model model = model::find_model(name);
    step::CompileOptions options;
    options.fuse = fuse;
    return step::compile({step::train_program({model, 4, {}})}, *device_under_test(GetParam()), options)
        .programs[0]
        .launches;
  }
  void SetUp() override {
    if (!device_under_test(GetParam())) GTEST_SKIP();
  }
};

std::set<std::string> layers_of(const Launches& launches, bool backward) {
  std::set<std::string> layers;
  for (const device::LaunchSpec& l : launches)
    if (l.node.origin.backward == backward) layers.insert(l.node.origin.layer);
  return layers;
}

TEST_P(Origins, EveryLaunchOfEveryLayerIsNamed) {
  for (const char* name : {"lenet5", "resnet20", "gpt-mini", "har-lstm"}) {
    const model::Model model = model::find_model(name);
    std::set<std::string> known{step::kLossLayer, step::kOptimizerLayer};
    for (const model::LayerSpec& layer : model.layers) known.insert(layer.name);
    for (bool fuse : {true, false})
      for (const device::LaunchSpec& l : launches(name, fuse))
        EXPECT_TRUE(known.contains(l.node.origin.layer))
            << name << ": " << l.node.op << " `" << l.node.origin.layer << "`";
  }
}

TEST_P(Origins, LenetsLaunchesServeTheLayersTheyCompute) {
  const Launches lenet = launches("lenet5");
  const std::set<std::string> products{"conv1", "conv2", "fc1", "fc2", "fc3"};
  for (const std::string& layer : products) {
    EXPECT_TRUE(layers_of(lenet, false).contains(layer)) << layer;
    EXPECT_TRUE(layers_of(lenet, true).contains(layer)) << layer;
  }
  EXPECT_FALSE(layers_of(lenet, false).contains("relu1")) << "it runs inside conv1's launch";
  double of_products = 0, all = 0;
  for (const device::LaunchSpec& l : lenet) {
    all += l.flops;
    if (products.contains(l.node.origin.layer)) of_products += l.flops;
  }
  EXPECT_GT(of_products, 0.95 * all);
  EXPECT_TRUE(layers_of(lenet, false).contains(step::kOptimizerLayer));
  EXPECT_TRUE(layers_of(lenet, false).contains(step::kLossLayer));
}

INSTANTIATE_TEST_SUITE_P(Devices, Origins, testing::Values("cpu", "opencl"),
                         [](const auto& device) { return std::string(device.param); });

// --- memory ---------------------------------------------------------------------------------------------------------
TEST(MemoryMaps, SayWhatLivesWhenAndWhoMakesThePeak) {
  device::Device* cpu = device_under_test("cpu");
  if (!cpu) GTEST_SKIP();
  const model::Model model = model::find_model("lenet5");
  step::SessionOptions options;
  options.self_test = false;
  const step::Session session(*cpu, {step::train_program({model, 8, {}})}, options);
  const step::Program& program = session.compiled().programs[0];
  const prof::MemoryMap map = prof::memory_map(session.compiled(), 0, cpu->target());
  ASSERT_EQ(map.live.size(), program.launches.size());
  EXPECT_EQ(map.peak_bytes(), *std::max_element(map.live.begin(), map.live.end()));
  EXPECT_LE(map.peak_bytes(), map.arena_bytes);
  EXPECT_GT(map.peak_bytes(), map.arena_bytes / 2) << "the plan wastes little";
  ASSERT_FALSE(map.at_peak.empty());
  int64_t at_peak = 0;
  for (int i : map.at_peak) at_peak += map.tensors[static_cast<size_t>(i)].bytes;
  EXPECT_GE(at_peak, map.peak_bytes()) << "results in the memory of operands count once in the peak";

  // Each launch finds its operands alive, where the plan has them.
  for (size_t i = 0; i < program.launches.size(); ++i)
    for (const auto* list : {&program.launches[i].in, &program.launches[i].out})
      for (const device::TensorArg& arg : *list) {
        const int slab = arg.slab - session.compiled().memory.first_arena_slab();
        if (slab < 0) continue;
        const bool found = std::any_of(map.tensors.begin(), map.tensors.end(), [&](const prof::Tensor& t) {
          return t.slab == slab && t.offset <= arg.offset && arg.offset < t.offset + t.bytes &&
                 t.first <= static_cast<int>(i) && static_cast<int>(i) <= t.last;
        });
        EXPECT_TRUE(found) << "launch " << i << " " << program.launches[i].node.op;
      }
  int64_t parameters = 0;
  for (const prof::MemoryMap::Part& part : map.persistent)
    if (part.what == "parameters") parameters = part.bytes;
  EXPECT_EQ(parameters, 61706 * 4);
}

// --- the whole ------------------------------------------------------------------------------------------------------
device::Roofline roofline() {
  device::Roofline r;
  r.peak_flops = 100e9;
  r.levels = {{1 << 14, 100e9}, {1 << 26, 10e9}};
  r.copy_in_bandwidth = r.copy_out_bandwidth = 5e9;
  r.launch_seconds = 1e-6;
  return r;
}

prof::Profile profile_of(const char* device, const char* name) {
  const model::Model model = model::find_model(name);
  step::SessionOptions options;
  options.self_test = false;
  step::Session session(*device_under_test(device), {step::train_program({model, 4, {}})}, options);
  for (const ir::State& state : session.states())
    if (!state.attrs.flag("derived")) session.set(state.name, model::initial_values(state, 1));
  prof::Profile p =
      prof::profile(session, 0, {.seconds = 0, .min_steps = 1, .warmup = 1, .classes = model.classes}, roofline());
  p.losses = {prof::loss_curve(session, 0, model.classes)};
  p.measured.model = name;
  p.measured.residency = "resident";
  return p;
}

class Profiles : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!device_under_test(GetParam())) GTEST_SKIP();
    p_ = profile_of(GetParam(), "lenet5");
  }
  prof::Profile p_;
};

TEST_P(Profiles, PartsAreTheWhole) {
  const step::TimeSplit& s = p_.measured.split;
  EXPECT_NEAR(s.compute + s.movement + s.launch + s.wait + s.idle, s.wall, 1e-9);
  double launches = 0, layers = 0, flops = 0;
  for (const prof::LaunchRow& row : p_.launches) launches += row.seconds;
  for (const prof::LayerRow& row : p_.layers) {
    layers += row.seconds();
    flops += row.flops;
  }
  EXPECT_NEAR(launches, layers, 1e-12);
  EXPECT_NEAR(flops, p_.measured.ledger.flops, 1);
  EXPECT_GT(s.compute, 0);
  EXPECT_GT(launches, 0);
  ASSERT_EQ(p_.costliest.size(), 5u);
  const double least = p_.launches[static_cast<size_t>(p_.costliest.back())].seconds;
  EXPECT_LE(std::count_if(p_.launches.begin(), p_.launches.end(), [&](const auto& row) { return row.seconds > least; }),
            4)
      << "the five are those that take longest";
}

TEST_P(Profiles, TheLossOfMadeUpDataFalls) {
  ASSERT_GE(p_.losses[0].points.size(), 5u);
  EXPECT_LT(p_.losses[0].points.back().second, p_.losses[0].points.front().second);
}

TEST_P(Profiles, AreReadableAsTextJsonTraceAndPage) {
  const std::string text = prof::text_of(p_, true);
  for (const char* part : {"lenet5 batch 4", "compute", "movement", "launch", "wait", "idle", "conv1", "(optimizer)",
                           "the costliest launches", "memory", "bound by"})
    EXPECT_NE(text.find(part), std::string::npos) << part;

  const auto json = nlohmann::json::parse(prof::report_json(p_)).at("profile");
  EXPECT_EQ(json.at("launches").size(), p_.launches.size());
  EXPECT_EQ(json.at("memory").at("live").size(), p_.launches.size());
  EXPECT_EQ(json.at("costliest").size(), 5u);
  EXPECT_GE(json.at("timeline").at("events").size(), p_.launches.size());

  const auto trace = nlohmann::json::parse(prof::trace_json(p_)).at("traceEvents");
  int64_t kernels = 0;
  for (const auto& event : trace) {
    if (event.at("ph") != "X") continue;
    EXPECT_GE(event.at("dur").get<double>(), 0);
    kernels += event.at("cat") == "kernel";
  }
  EXPECT_EQ(kernels, static_cast<int64_t>(p_.launches.size()) * p_.measured.profiled_steps);

  const std::string page = prof::report_page("a </title> b", prof::report_json(p_));
  EXPECT_EQ(page.find("<!--"), std::string::npos) << "every mark is replaced";
  EXPECT_EQ(page.find("http://", page.find("<script>")), page.find("http://www.w3.org/2000/svg"))
      << "a name, no request";
  EXPECT_EQ(page.find("https://"), std::string::npos);
  EXPECT_NE(page.find("a &lt;/title> b"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Devices, Profiles, testing::Values("cpu", "opencl"),
                         [](const auto& device) { return std::string(device.param); });

TEST(ReportPage, TextCannotLeaveItsElement) {
  const std::string page = prof::report_page("x", "{\"a\": \"</script><script>alert(1)</script><!--\"}");
  EXPECT_EQ(page.find("alert(1)</script>"), std::string::npos);
  EXPECT_NE(page.find("\\u003c/script>"), std::string::npos);
}

// --- what bounds a launch, and what to try --------------------------------------------------------------------------
prof::Profile with_launch(double flops, double bytes, double seconds) {
  prof::Profile p;
  p.roofline = roofline();
  p.measured.residency = "resident";
  p.measured.ledger.list = {{"k", "", flops, bytes, {"conv1", true}}};
  p.measured.launch_seconds = {seconds};
  p.launches = {{0, seconds, p.roofline.seconds(flops, bytes), prof::Bound::memory}};
  return p;
}

std::string advice_for(prof::Profile p, prof::Bound bound) {
  p.launches[0].bound = bound;
  return prof::advice(p, p.launches[0]);
}

TEST(Advice, FollowsWhatBoundsALaunch) {
  EXPECT_NE(advice_for(with_launch(1e9, 1e5, 0.0101), prof::Bound::arithmetic).find("only fewer operations help"),
            std::string::npos);
  EXPECT_NE(advice_for(with_launch(1e9, 1e5, 0.05), prof::Bound::arithmetic).find("20% of the peak: `situ tune`"),
            std::string::npos);
  const std::string memory = advice_for(with_launch(1, 67108864, 0.0068), prof::Bound::memory);
  EXPECT_NE(memory.find("64.0 MiB move as fast as memory allows"), std::string::npos) << memory;
  EXPECT_NE(memory.find("--precision fp16"), std::string::npos) << memory;
  EXPECT_NE(memory.find("below 16 KiB memory is 10.0 times as fast"), std::string::npos) << memory;
  EXPECT_NE(advice_for(with_launch(1, 100, 1e-6), prof::Bound::launch).find("larger --batch"), std::string::npos);
}

TEST(Advice, NamesCausesThatCostMoreThanATenth) {
  prof::Profile p = with_launch(1, 100, 1e-6);
  p.measured.split = {100, 50, 0, 30, 0, 20};
  ASSERT_EQ(prof::advice(p).size(), 2u);
  EXPECT_NE(prof::advice(p)[0].find("30% of the step is launches"), std::string::npos);
  EXPECT_NE(prof::advice(p)[1].find("20% of the step the device is idle"), std::string::npos);
  p.measured.residency = "naive";
  p.measured.counted.waits = 100;
  p.measured.split = {100, 9, 31, 30, 30, 0};
  ASSERT_EQ(prof::advice(p).size(), 3u);
  for (const std::string& sentence : prof::advice(p))
    EXPECT_NE(sentence.find("--residency resident"), std::string::npos) << sentence;
}

}  // namespace
}  // namespace situ::test
