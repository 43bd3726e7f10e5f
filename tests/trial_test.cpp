// trial_test.cpp -- kernels are compared with the oracle before their first use on a driver: a wrong one, one that the
// driver refuses and one that kills the process are left out, the next time too, and training goes on without them.
#include "step/trial.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <regex>

#include "backend/opencl/device.h"
#include "backend/opencl/loader.h"
#include "backend/ref/device.h"
#include "base/file.h"
#include "harness.h"
#include "icd/counting_icd.h"
#include "icd/opencl_fixture.h"
#include "ops/op.h"
#include "plan/plan.h"
#include "step/probe.h"
#include "step/programs.h"
#include "step/run.h"
#include "step/verdicts.h"

namespace situ::step {
namespace {

// --- verdicts on disk -----------------------------------------------------------------------------------------------
const Trial kA{"conv2d/packed", "1"}, kB{"matmul/split", "2"}, kC{"fused#3", "3"};

class VerdictFiles : public testing::Test {
 protected:
  const TemporaryFolder folder_;
  const std::unique_ptr<device::Device> device_ = ref::make_device();
  Verdicts open() { return Verdicts(*device_, folder_.path()); }
};

TEST_F(VerdictFiles, AreKeptWithTheirReasons) {
  {
    Verdicts first = open();
    EXPECT_TRUE(first.may_try());
    first.begin({kA, kB});
    first.note(kA, Verdict::wrong, "output 0\tis\nwrong");
    first.note(kB, Verdict::ok);
    first.end();
  }
  const Verdicts second = open();
  EXPECT_TRUE(second.knows(kA));
  EXPECT_TRUE(second.knows(kB));
  EXPECT_FALSE(second.knows(kC));
  EXPECT_FALSE(second.suspect(kB));
  EXPECT_EQ(second.left_out(), (device::LeftOut{{"conv2d/packed", "wrong result: output 0 is wrong"}}));
}

TEST_F(VerdictFiles, AMarkerWithOneNameIsACrashAndOneWithSeveralLeavesSuspects) {
  { open().begin({kA, kB, kC}); }  // the process dies here
  {
    Verdicts second = open();
    EXPECT_TRUE(second.left_out().empty());
    EXPECT_TRUE(second.suspect(kA) && second.suspect(kB) && second.suspect(kC));
    second.begin({kA});
    second.note(kA, Verdict::ok);
    second.end();
    second.begin({kB});  // and here
  }
  {
    const Verdicts third = open();
    EXPECT_FALSE(third.suspect(kA));
    EXPECT_FALSE(third.suspect(kB));
    EXPECT_TRUE(third.suspect(kC)) << "its turn had not come";
    ASSERT_EQ(third.left_out().size(), 1u);
    EXPECT_EQ(third.left_out().begin()->first, kB.unit);
    EXPECT_NE(third.left_out().begin()->second.find("the process died"), std::string::npos);
  }
  EXPECT_TRUE(open().suspect(kC)) << "waiting is not crashing, however often";
  EXPECT_FALSE(open().knows(kC));
}

TEST_F(VerdictFiles, AMarkerOfALivingProcessIsLeftAlone) {
  Verdicts working = open();
  working.begin({kA});
  {
    const Verdicts other = open();
    EXPECT_FALSE(other.may_try());
    EXPECT_FALSE(other.knows(kA));
  }
  working.note(kA, Verdict::ok);
  working.end();
  EXPECT_FALSE(std::filesystem::exists(working.path() + ".trying"));
}

TEST_F(VerdictFiles, DamagedOnesAreEmptyAndUnwritableFoldersAreNotTriedIn) {
  write_file_atomic(open().path() + ".txt", std::string("\0\1\2 ok\tx\n\t\t\nnonsense\ta\tb\tc", 29));
  EXPECT_TRUE(open().left_out().empty());
  EXPECT_FALSE(Verdicts(*device_, "/proc/none").may_try());
}

// --- kernels of a real driver ---------------------------------------------------------------------------------------
// In place of the real kernel: halves everywhere.
opencl::Call bind_halves(const device::LaunchSpec& launch, const device::Target&) {
  opencl::Call call;
  call.file = "halves.cl";
  call.kernel = "halves";
  call.arg(launch.out[0]);
  call.global = {static_cast<size_t>(launch.out[0].count()), 1, 1};
  return call;
}
constexpr char kHalves[] =
    "__kernel void halves(__global float* y, ulong y0, int pitch) { y[y0 + get_global_id(0)] = 0.5f; }";

opencl::Overrides spoilt(const opencl::Kernel& kernel, const char* source = kHalves) {
  opencl::Overrides overrides;
  overrides.kernels = {{{&kernel, 1}, {}}};
  overrides.sources = {{"halves.cl", source}};
  return overrides;
}
constexpr opencl::Kernel kDepthwise{"depthwise", bind_halves}, kSoftmax{"softmax", bind_halves};

ir::Graph one_op(const char* op, const std::vector<Type>& inputs, const ir::Attrs& attrs) {
  ir::Graph graph;
  graph.name = op;
  ir::Values values;
  for (size_t i = 0; i < inputs.size(); ++i) values.push_back(graph.input("i" + std::to_string(i), inputs[i]));
  graph.output("y", ops::emit(graph, op, values, attrs));
  return graph;
}
ir::Graph depthwise_graph() {
  return one_op("conv2d", {f32({2, 6, 6, 4}), f32({3, 3, 1, 4})},
                {{"pad", ir::Ints{1, 1, 1, 1}}, {"groups", int64_t{4}}});
}

class Trials : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::device_under_test("opencl")) GTEST_SKIP() << "opencl is left out by SITU_TEST_DEVICES";
  }
  std::unique_ptr<device::Device> open(const opencl::Overrides& overrides) {
    auto device = opencl::make_device({}, overrides);
    device->trials_folder = folder_.path();
    return device;
  }
  const TemporaryFolder folder_;
};

double worst_difference(device::Device& device, const ir::Graph& graph) {
  Tensors inputs;
  for (const ir::Node& node : graph.nodes)
    if (node.op == "input") {
      std::vector<double>& values = inputs[node.attrs.text("name")];
      for (int64_t i = 0; i < graph.type(node.outputs[0]).count(); ++i)
        values.push_back(0.01 * double(i * 37 % 101) - 0.4);
    }
  const auto got = run_once(device, graph, inputs).at("y"), want = run_once(*ref::make_device(), graph, inputs).at("y");
  double worst = 0;
  for (size_t i = 0; i < want.size(); ++i) worst = std::fmax(worst, std::fabs(got[i] - want[i]));
  return worst;
}

TEST_F(Trials, AWrongCandidateIsLeftOutAndAnotherTaken) {
  const ir::Graph graph = depthwise_graph();
  const auto first = open(spoilt(kDepthwise));
  EXPECT_GT(worst_difference(*first, graph), 0.1) << "the spoilt kernel is what would be taken";
  const Session session(*first, {graph});
  ASSERT_EQ(first->left_out.size(), 1u);
  EXPECT_EQ(first->left_out.begin()->first, "conv2d/depthwise");
  EXPECT_NE(first->left_out.begin()->second.find("0.5 instead of"), std::string::npos);
  EXPECT_LT(worst_difference(*first, graph), 1e-5);

  const auto second = open(spoilt(kDepthwise));  // the next start: nothing is tried again
  const Session again(*second, {graph});
  EXPECT_EQ(second->left_out, first->left_out);
  EXPECT_EQ(second->counters().launches, 0);
  EXPECT_LT(worst_difference(*second, graph), 1e-5);

  const auto other = open({});  // other sources are another matter
  const Session fresh(*other, {graph});
  EXPECT_TRUE(other->left_out.empty());
}

// The real kernel, but where its result is stored as half.
opencl::Call bind_spoilt_on_f16(const device::LaunchSpec& launch, const device::Target& target) {
  if (launch.out[0].type.dtype == DType::f16) return bind_halves(launch, target);
  for (const opencl::KernelList& family : opencl::all_kernel_families())
    for (const opencl::Kernel& kernel : family.kernels)
      if (kernel.name == "depthwise") return kernel.bind(launch, target);
  return {};
}
constexpr opencl::Kernel kSpoiltOnF16{"depthwise", bind_spoilt_on_f16, "A - * -> Y"};
constexpr char kF16Halves[] =
    "__kernel void halves(__global half* y, ulong y0, int pitch) { vstore_half(0.5f, y0 + get_global_id(0), y); }";

TEST_F(Trials, AKernelThatIsWrongOnHalvesAloneIsLeftOutForThem) {
  ir::Graph graph;
  graph.name = "p";
  const ir::Value x = graph.input("i0", f32({2, 6, 6, 4})), w = graph.input("i1", f32({3, 3, 1, 4}));
  const ir::Value y = ops::emit(graph, "conv2d", {x, w}, {{"pad", ir::Ints{1, 1, 1, 1}}, {"groups", int64_t{4}}});
  graph.output("y", ops::emit(graph, "copy", {y}));
  const auto device = open(spoilt(kSpoiltOnF16, kF16Halves));
  device->activations = DType::f16;
  EXPECT_GT(worst_difference(*device, graph), 0.1) << "the spoilt kernel is what would be taken";
  const Session session(*device, {graph});
  ASSERT_EQ(device->left_out.size(), 1u);
  EXPECT_EQ(device->left_out.begin()->first, "conv2d/depthwise+f16");
  EXPECT_LT(worst_difference(*device, graph), 1e-5);
  for (const Type& type : plan::lower(graph, *device).types) EXPECT_EQ(type.dtype, DType::f32);
}

TEST_F(Trials, ACandidateThatTheDriverRefusesIsLeftOut) {
  const auto device = open(spoilt(kDepthwise, "__kernel void halves(__global float* y) { y[0] = no_such_thing; }"));
  const Session session(*device, {depthwise_graph()});
  ASSERT_TRUE(device->left_out.contains("conv2d/depthwise"));
  EXPECT_NE(device->left_out.at("conv2d/depthwise").find("refused by the driver"), std::string::npos);
  EXPECT_LT(worst_difference(*device, depthwise_graph()), 1e-5);
}

TEST_F(Trials, WhereNothingIsLeftTheErrorNamesTheOpAndTheCpu) {
  const auto device = open(spoilt(kSoftmax));
  const ir::Graph graph = one_op("softmax", {f32({5, 7})}, {});
  test::expect_error([&] { const Session session(*device, {graph}); }, "has no kernel left for `softmax f32[5,7]`",
                     ErrorKind::environment);
  test::expect_error([&] { const Session session(*device, {graph}); }, "use the device cpu", ErrorKind::environment);
}

TEST_F(Trials, NothingIsTriedWithoutAFolderOrWhenNotWanted) {
  const auto device = open(spoilt(kDepthwise));
  SessionOptions options;
  options.self_test = false;
  const Session unasked(*device, {depthwise_graph()}, options);
  device->trials_folder.clear();
  const Session nowhere(*device, {depthwise_graph()});
  EXPECT_TRUE(device->left_out.empty());
  EXPECT_EQ(device->counters().launches, 0);
}

TEST_F(Trials, AMarkerThatCannotBeWrittenIsNoReasonToStop) {
  const auto device = open(spoilt(kDepthwise));
  std::filesystem::create_directories(Verdicts(*device, folder_.path()).path() + ".trying/in the way");
  const Session session(*device, {depthwise_graph()});
  EXPECT_EQ(device->counters().launches, 0) << "what cannot be marked is not tried";
}

// What a large node is tried with: few operations of the oracle, and nothing to compile that the node does not need.
TEST_F(Trials, ProbesAreSmallAndNeedTheSamePrograms) {
  device::Device& device = *test::device_under_test("opencl");
  const ir::Graph graphs[] = {
      one_op("conv2d", {f32({64, 32, 32, 16}), f32({3, 3, 16, 16})}, {{"pad", ir::Ints{1, 1, 1, 1}}}),
      one_op("conv2d_dw", {f32({64, 16, 16, 32}), f32({64, 16, 16, 32})},
             {{"pad", ir::Ints{1, 1, 1, 1}}, {"kernel", ir::Ints{3, 3}}}),
      one_op("matmul", {f32({512, 300}), f32({300, 200})}, {}),
      one_op("softmax", {f32({4096, 100})}, {}),
  };
  for (const ir::Graph& graph : graphs)
    for (const ir::Node& node : graph.nodes) {
      if (!plan::is_launch(node)) continue;
      const ops::OpView view = ops::view_of(graph, node);
      const auto candidates = plan::candidates_for(device, view);
      const Probe whole = probe_of(view, candidates.empty() ? nullptr : candidates.front());
      const auto small = made_small(device, whole);
      ASSERT_TRUE(small) << node.op;
      EXPECT_LT(oracle_work(*small), 0.2 * oracle_work(whole)) << node.op;
      EXPECT_LT(oracle_work(*small), 5e7) << node.op;  // a weight gradient by Winograd takes a thousand pixels
      EXPECT_EQ(programs_of(device, *small), programs_of(device, whole)) << node.op;
      EXPECT_EQ(small->candidate, whole.candidate);
    }
}

#ifdef SITU_TEST_ICD
// Trying costs runs, not compilations: every program that is built is one that the session needs, but for the sum of
// split gradients: their updates add them up, and a weight gradient that is tried has none.
TEST_F(Trials, NothingIsCompiledForTheTestAlone) {
  const opencl::test::Environment through("SITU_OPENCL_LIBRARY", SITU_TEST_ICD);
  const test::CountingIcd icd(SITU_TEST_ICD);
  const auto device = open({});
  const model::Model model = model::find_model("lenet5");
  const Session session(*device, {train_program({model, 64, {}})});
  EXPECT_GT(device->counters().launches, 0) << "kernels were tried";
  const int64_t sums = 2;  // of a weight's splits and of a bias's pixels, which other launches add up in the program
  EXPECT_EQ(icd.calls("clBuildProgram"), distinct_programs(session.compiled(), *device) + sums);
}
#endif

// --- a compiler that kills the process, seen from the command -------------------------------------------------------
#if defined(SITU_TEST_COMMAND) && defined(SITU_TEST_ICD)
struct Outcome {
  bool ended = false;  // by itself
  std::string text;
};

Outcome situ(const std::string& arguments, const std::string& environment) {
  Outcome outcome;
  std::FILE* pipe = popen((environment + " " SITU_TEST_COMMAND " " + arguments + " 2>&1").c_str(), "r");
  char buffer[4096];
  while (const size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) outcome.text.append(buffer, n);
  outcome.ended = pclose(pipe) == 0;
  return outcome;
}

double accuracy_in(const std::string& text) {
  std::smatch found;
  return std::regex_search(text, found, std::regex("test accuracy ([0-9.]+)%")) ? std::stod(found[1]) : -1;
}

TEST_F(Trials, ACompilerThatDiesIsWorkedAround) {
  const std::string model = folder_.file("tiny.json");
  write_file_atomic(model, R"({"name": "tiny", "input": [8, 8, 1], "classes": 4, "layers": [
      {"name": "a", "kind": "conv", "channels": 4, "kernel": 3, "pad": 1},
      {"name": "b", "kind": "conv", "channels": 4, "kernel": 3, "pad": 1, "groups": 4}, {"kind": "relu"},
      {"kind": "global_pool"}, {"name": "fc", "kind": "linear", "channels": 4}]})");
  const std::string train = "train " + model + " --data synthetic:8x8x1:4:320 --batch 32 --epochs 2 --lr 0.1 --seed 3";
  const std::string cache = "SITU_CACHE=" + folder_.file("cache") + " SITU_OPENCL_LIBRARY=" SITU_TEST_ICD;
  const std::string dying = cache + " SITU_ICD_DIES_ON='\"depthwise.cl\"'";
  // First all at once; then each of the three depthwise kernels by itself.
  for (int start = 1; start <= 4; ++start)
    EXPECT_FALSE(situ(train + " --device opencl", dying).ended) << "start " << start;
  const Outcome trained = situ(train + " --device opencl", dying);
  ASSERT_TRUE(trained.ended) << trained.text;
  EXPECT_NEAR(accuracy_in(trained.text), accuracy_in(situ(train + " --device cpu", cache).text), 3) << trained.text;
  EXPECT_NE(trained.text.find("left out"), std::string::npos) << trained.text;
  const std::string listed = situ("devices --quick", cache).text;
  for (const char* unit : {"conv2d/depthwise", "conv2d_dx/depthwise", "conv2d_dw/depthwise"})
    EXPECT_NE(listed.find(std::string(unit) + ": the process died"), std::string::npos) << listed;
  EXPECT_TRUE(situ(train + " --device opencl --no-self-test", dying).ended) << "what is known stays out";
  const std::string fresh = std::regex_replace(dying, std::regex("/cache"), "/fresh");
  EXPECT_FALSE(situ(train + " --device opencl --no-self-test", fresh).ended) << "untried, it is taken and dies";
  for (const auto& file : std::filesystem::directory_iterator(folder_.file("fresh")))
    EXPECT_NE(file.path().extension(), ".trying");
}
#endif

}  // namespace
}  // namespace situ::step
