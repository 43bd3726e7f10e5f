// tune_test.cpp -- measured choices: on disk, shared and damaged; taken by the compiler; never a wrong candidate. And a
// weaker device imposed by SITU_LIMITS.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <thread>

#include "backend/opencl/device.h"
#include "backend/opencl/limits.h"
#include "base/error.h"
#include "base/file.h"
#include "harness.h"
#include "model/init.h"
#include "plan/plan.h"
#include "step/devices.h"
#include "step/programs.h"
#include "step/session.h"
#include "tune/database.h"
#include "tune/tuner.h"

namespace situ::tune {
namespace {

TEST(TuningDatabase, KeepsTheLastChoiceOfEachDevice) {
  const TemporaryFolder folder;
  {
    Database db(folder.file("t.sqlite"));
    db.store("a", "matmul 1", "packed", 1);
    db.store("a", "matmul 1", "in_place", 0.5);
    db.store("b", "matmul 1", "split", 1);
  }
  const Database db(folder.file("t.sqlite"));
  EXPECT_EQ(db.load("a"), (device::Choices{{"matmul 1", "in_place"}}));
  EXPECT_EQ(db.load("b"), (device::Choices{{"matmul 1", "split"}}));
  EXPECT_TRUE(db.load("c").empty());
}

TEST(TuningDatabase, IsMadeAnewWhenDamagedOrOfAnotherLayout) {
  const TemporaryFolder folder;
  const std::string path = folder.file("t.sqlite");
  write_file_atomic(path, std::string(5000, 'x'));
  Database(path).store("a", "n", "packed", 1);
  EXPECT_EQ(Database(path).load("a").size(), 1u);
  std::string bytes = read_file(path);
  for (size_t i = 100; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7);
  write_file_atomic(path, bytes);
  EXPECT_TRUE(Database(path).load("a").empty());
  Database(path).store("a", "n", "packed", 1);
  bytes = read_file(path);
  bytes[63] = 99;  // user_version, big endian at 60
  write_file_atomic(path, bytes);
  EXPECT_TRUE(Database(path).load("a").empty());
}

TEST(TuningDatabase, SeveralWritersShareIt) {
  const TemporaryFolder folder;
  const std::string path = folder.file("t.sqlite");
  std::vector<std::thread> writers;
  for (int w = 0; w < 4; ++w)
    writers.emplace_back([&path, w] {
      Database db(path);
      for (int i = 0; i < 10; ++i) db.store("d", fmt::format("{} {}", w, i), "packed", 1);
    });
  for (std::thread& t : writers) t.join();
  EXPECT_EQ(Database(path).load("d").size(), 40u);
}

TEST(TuningDatabase, WhereItCannotBeWrittenSaysSo) {
  EXPECT_THROW(Database("/proc/none/t.sqlite"), Error);
  EXPECT_TRUE(load_choices("/proc/none", *test::device_under_test("cpu")).empty());
  EXPECT_TRUE(load_choices("", *test::device_under_test("cpu")).empty());
}

// --- choices --------------------------------------------------------------------------------------------------------
ir::Graph product(int64_t m, int64_t k, int64_t n) {
  ir::Graph graph;
  graph.name = "product";
  const ir::Value a = graph.input("a", f32({m, k})), b = graph.input("b", f32({k, n}));
  graph.output("y", ops::emit(graph, "matmul", {a, b}));
  return graph;
}
const ir::Node& matmul_of(const ir::Graph& graph) {
  for (const ir::Node& node : graph.nodes)
    if (node.op == "matmul") return node;
  return graph.nodes.front();
}

TEST(Choices, GoBeforeEstimates) {
  const auto device = step::open_device("cpu");
  const ir::Graph graph = product(40, 30, 50);
  const ops::OpView view = ops::view_of(graph, matmul_of(graph));
  const auto first = plan::candidates_for(*device, view);
  ASSERT_GE(first.size(), 2u);
  for (const device::Candidate* wanted : first) {
    device->choices = {{device::node_key(view), std::string(wanted->name)}};
    EXPECT_EQ(plan::candidates_for(*device, view).front(), wanted);
  }
  device->choices = {{device::node_key(view), "no such candidate"}};
  EXPECT_EQ(plan::candidates_for(*device, view), first);
}

TEST(Tuner, MeasuresEveryCandidateOnceAndLeavesTheDeviceAsItWas) {
  for (const char* name : {"cpu", "opencl"}) {
    if (!test::device_under_test(name)) continue;
    const auto device = step::open_device(name);
    device->choices = {{"x", "y"}};
    std::vector<std::string> seen;
    Options options;
    options.progress = [&](const Progress& p) {
      if (p.done < p.total) seen.push_back(p.node);  // whole steps come when all are done
    };
    const ir::Graph graph = product(33, 20, 47);
    const auto results = tune(*device, {graph, graph, product(16, 16, 16)}, options);
    ASSERT_EQ(results.size(), 2u) << name;
    EXPECT_EQ(seen.size(), 2u);
    EXPECT_EQ(results[0].times, 2);
    EXPECT_EQ(device->choices, (device::Choices{{"x", "y"}}));
    for (const NodeResult& r : results)
      for (const Measurement& m : r.candidates) {
        EXPECT_GT(m.seconds, 0) << r.node;
        EXPECT_LT(m.seconds, 1) << r.node;
        EXPECT_FALSE(m.wrong) << name << " " << r.node << " " << m.candidate;
      }
  }
}

TEST(Tuner, StopsBeginningNodesWhenTheTimeIsUp) {
  Options options;
  options.seconds = 0;
  EXPECT_EQ(tune(*step::open_device("cpu"), {product(9, 9, 9), product(8, 8, 8)}, options).size(), 1u);
}

TEST(Tuner, ANotANumberAgreesWithNothing) {
  const std::vector<float> right{1, 2, 3};
  EXPECT_TRUE(agree({1, 2, 3.0001f}, right));
  EXPECT_FALSE(agree({1, 2, 3.01f}, right));
  for (size_t i = 0; i < right.size(); ++i) {
    std::vector<float> wrong = right;
    wrong[i] = NAN;
    EXPECT_FALSE(agree(wrong, right)) << i;
    EXPECT_FALSE(agree(right, wrong)) << i;
  }
}

TEST(Tuner, AWrongCandidateIsNeverTheBest) {
  NodeResult r{"n", 1, {{"slow", 3, false}, {"fast and wrong", 1, true}, {"quick", 2, false}}};
  EXPECT_EQ(r.best().candidate, "quick");
  EXPECT_DOUBLE_EQ(r.saved(), 1);
  r = {"n", 2, {{"estimated but wrong", 1, true}, {"right", 5, false}}};
  EXPECT_EQ(r.best().candidate, "right");
}

TEST(Tuner, NoiseChangesNoChoice) {
  EXPECT_EQ((NodeResult{"n", 1, {{"estimated", 1, false}, {"within the noise", 0.8, false}}, 0.25}).best().candidate,
            "estimated");
  EXPECT_EQ((NodeResult{"n", 1, {{"estimated", 1, false}, {"beyond it", 0.7, false}}, 0.25}).best().candidate,
            "beyond it");
  EXPECT_EQ((NodeResult{"n", 1, {{"estimated", 1, false}, {"hardly faster", 0.99, false}}}).best().candidate,
            "estimated");
  EXPECT_EQ((NodeResult{"n", 1, {{"estimated", 1, false}, {"faster", 0.97, false}, {"fastest", 0.965, false}}})
                .best()
                .candidate,
            "fastest");
}

// A way to multiply that answers nothing and takes no time.
void expand_nothing(device::Expansion& e) { e.result(0, e.launch("fill_nothing", {e.in(0)}, e.out_type(0))); }
opencl::Call bind_nothing(const device::LaunchSpec& launch, const device::Target&) {
  opencl::Call call;
  call.file = "nothing.cl";
  call.kernel = "nothing";
  call.arg(launch.out[0]);
  return call;
}
// Three nodes that are faster another way when alone; what a step takes is made up.
std::vector<NodeResult> three_nodes() {
  std::vector<NodeResult> results;
  for (const char* node : {"a", "b", "c"}) results.push_back({node, 1, {{"usual", 2, false}, {"other", 1, false}}});
  return results;
}
device::Choices confirmed(std::vector<NodeResult> results, const std::function<double(const device::Choices&)>& step,
                          bool time_is_up = false) {
  confirm(
      results, [&](const auto& a, const auto& b) { return std::pair(step(a), step(b)); }, [&] { return time_is_up; });
  device::Choices choices;
  for (const NodeResult& r : results)
    if (r.changed()) choices[r.node] = r.best().candidate;
  return choices;
}

TEST(Tuner, DropsChoicesThatSlowTheStepDown) {
  using Choices = device::Choices;
  const auto step = [](const Choices& c) {
    return 100.0 - 2.0 * c.count("a") + 5.0 * c.count("b") - 2.0 * c.count("c");
  };
  EXPECT_EQ(confirmed(three_nodes(), step), (Choices{{"a", "other"}, {"c", "other"}}));
  // Two that are slower together than neither, though each without the other is slower still: all go.
  const auto pair = [](const Choices& c) { return c.empty() ? 100.0 : c.size() == 3 ? 101.0 : 110.0; };
  EXPECT_EQ(confirmed(three_nodes(), pair), Choices{});
  EXPECT_EQ(confirmed(three_nodes(), step, true), Choices{});  // no time to ask one by one: together they are slower
  EXPECT_EQ(confirmed(
                three_nodes(), [](const Choices& c) { return 100.0 - c.size(); }, true)
                .size(),
            3u);
}

TEST(Tuner, AWrongCandidateIsNotKeptForTheStepsSake) {
  std::vector<NodeResult> results = three_nodes();
  results[1].candidates[0].wrong = true;
  EXPECT_EQ(confirmed(results, [](const device::Choices& c) { return 100.0 + c.size(); }),
            (device::Choices{{"b", "other"}}));
}

TEST(Tuner, FindsTheCandidateThatAnswersWrongly) {
  if (!test::device_under_test("opencl")) GTEST_SKIP() << "opencl is left out by SITU_TEST_DEVICES";
  static constexpr opencl::Kernel kernels[] = {{"fill_nothing", bind_nothing}};
  static constexpr device::Candidate candidates[] = {
      {.op = "matmul",
       .name = "nothing",
       .seconds = [](const ops::OpView&, const device::Target&) { return 1.0; },
       .expand = expand_nothing}};
  opencl::Overrides overrides;
  overrides.kernels = {{kernels, candidates}};
  overrides.sources = {
      {"nothing.cl", "__kernel void nothing(__global float* y, ulong offset, int pitch) { y[offset] = 0.5f; }"}};
  const auto device = opencl::make_device({}, overrides);
  const auto results =
      tune(*device, {product(40, 40, 40), product(300, 300, 300)}, {});  // with the oracle, and without
  ASSERT_EQ(results.size(), 2u);
  for (const NodeResult& r : results) {
    bool found = false;
    for (const Measurement& m : r.candidates) {
      EXPECT_EQ(m.wrong, m.candidate == "nothing") << r.node << " " << m.candidate;
      found |= m.candidate == "nothing";
    }
    EXPECT_TRUE(found);
    EXPECT_NE(r.best().candidate, "nothing");
  }
}

// --- limits ---------------------------------------------------------------------------------------------------------
TEST(Limits, LowerWhatADeviceSays) {
  opencl::DeviceInfo info;
  info.max_alloc = int64_t{1} << 30;
  info.alignment = 128;
  info.max_group = 4096;
  info.images = info.subgroups = info.command_buffer = true;
  info.image_limits.line = 1 << 20;
  opencl::DeviceInfo weak = info;
  opencl::impose("phone", weak);
  EXPECT_EQ(weak.max_alloc, 64 << 20);
  EXPECT_EQ(weak.alignment, 4096);
  EXPECT_EQ(weak.max_group, 64u);
  EXPECT_EQ(weak.image_limits.line, 65536);
  EXPECT_FALSE(weak.images || weak.subgroups || weak.command_buffer);
  EXPECT_EQ(opencl::image_limits(opencl::target_of(weak, {})).line, 0);
  EXPECT_FALSE(opencl::has_sub_groups(opencl::target_of(weak, {})));
  EXPECT_EQ(opencl::image_limits(opencl::target_of(info, {})).line, 1 << 20);
  EXPECT_TRUE(opencl::has_sub_groups(opencl::target_of(info, {})));
  opencl::impose("alloc=4G,align=8,local=9000", info);  // more than there is: nothing changes
  EXPECT_EQ(info.max_alloc, int64_t{1} << 30);
  EXPECT_EQ(info.alignment, 128);
  EXPECT_EQ(info.max_group, 4096u);
  for (const char* wrong : {"alloc", "alloc=", "alloc=5X", "alloc=-1", "memory=5", "local=x"})
    EXPECT_THROW(opencl::impose(wrong, info), Error) << wrong;
}

TEST(Limits, GroupsFitTheDevice) {
  for (const char* record : {"QUALCOMM Snapdragon(TM) Adreno", "ARM Platform Mali", "unknown"})
    for (size_t most : {1, 8, 64, 100, 1024}) {
      opencl::DeviceInfo info;
      info.platform = record;
      info.max_group = most;
      const device::Tuning tuning = opencl::target_of(info, {}).tuning;
      EXPECT_LE(tuning.get("gemm.WX", 1) * tuning.get("gemm.WY", 1), static_cast<int64_t>(most)) << record;
      EXPECT_LE(tuning.get("vector.WX", 64), static_cast<int64_t>(most)) << record;
      EXPECT_LE(tuning.get("rows.ITEMS", 1), static_cast<int64_t>(most)) << record;
    }
}

// A step whose activations do not fit one allocation of the weaker device gives the same numbers.
TEST(Limits, AWeakDeviceSpreadsAStepOverSlabs) {
  if (!test::device_under_test("opencl")) GTEST_SKIP() << "opencl is left out by SITU_TEST_DEVICES";
  const model::Model model = model::find_model("mlp:700-900-800-10");
  const auto loss_after_two_steps = [&](const char* limits, size_t* slabs) {
    if (limits) setenv("SITU_LIMITS", limits, 1);
    const auto device = step::open_device("opencl");
    unsetenv("SITU_LIMITS");
    step::Session session(*device, {step::train_program({model, 256, {}})});
    for (const ir::State& state : session.states()) session.set(state.name, model::initial_values(state, 1));
    *slabs = session.compiled().programs[0].plan.arena_slabs.size();
    for (int i = 0; i < 2; ++i) {
      step::Batch& batch = session.next_batch();
      for (float& v : batch.f32("x")) v = static_cast<float>(&v - batch.f32("x").data()) * 0x1p-18f;
      for (int32_t& v : batch.i32("labels")) v = 3;
      for (float& v : batch.f32("weight")) v = 1;
      batch.set("scale", 1.0f / 256);
      batch.set("lr", 0.1f);
      session.run(0, batch);
    }
    return session.get(step::kTrainMetrics);
  };
  size_t one = 0, many = 0;
  const auto expected = loss_after_two_steps(nullptr, &one);
  EXPECT_EQ(expected, loss_after_two_steps("alloc=3M,align=4096,local=64", &many));
  EXPECT_EQ(one, 1u);
  EXPECT_GT(many, 1u);
}

}  // namespace
}  // namespace situ::tune
