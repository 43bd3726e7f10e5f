// tuning_test.cpp -- kernels are right at any legal tuning, not only at this machine's record.
//
// scripts/test draws random tunings, others every day; the seed is printed, SITU_TUNING_SEED repeats it. scripts/sweep
// goes through all values of every key (SITU_SWEEP=1).
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "backend/opencl/devices.h"
#include "backend/opencl/kernels/tunables.h"
#include "base/hash.h"
#include "harness.h"
#include "plan/plan.h"
#include "step/devices.h"
#include "step/self_test.h"

namespace situ::test {
namespace {

using device::Tuning;

struct Key {
  std::string name;
  std::vector<int64_t> values;
};

std::vector<Key> opencl_keys() {
  std::vector<Key> keys;
  for (const auto& t : opencl::kernels::tunables()) keys.push_back({std::string(t.key), t.values});
  return keys;
}

// The meanings stand in devices/cpu.json. TN counts columns: one to four vectors of any width up to AVX-512.
std::vector<Key> cpu_keys() {
  return {{"gemm.MR", {6, 8}},
          {"gemm.MR1", {6, 8}},
          {"gemm.MR2", {6, 8}},
          {"gemm.TN", {8, 16, 32, 64}},
          {"gemm.MC", {24, 48, 96}},
          {"gemm.KC", {8, 64, 512}},
          {"gemm.split_k", {16, 64, 256}},
          {"gemm.across", {65, 95}},
          {"gemm.halves", {0, 1}},
          {"conv.pixels", {24, 48, 192}},
          {"conv_dw.slab_bytes", {1024, 16384, 131072}},
          {"conv_dw.splits", {1, 3, 16}},
          {"conv.planar_results", {0, 8, 40}},
          {"conv_dw.small", {0, 32, 200}},
          {"winograd.tiles", {2, 7, 48}},
          {"winograd.columns", {8, 32, 64}},
          {"winograd.depth", {4, 16, 40}},
          {"winograd.dw_tiles", {3, 24}},
          {"winograd.channels", {8, 64}},
          {"winograd.tasks", {1, 3, 8}}};
}

uint64_t seed() {
  static const uint64_t value = [] {
    const char* given = std::getenv("SITU_TUNING_SEED");
    return given ? std::strtoull(given, nullptr, 10) : static_cast<uint64_t>(std::time(nullptr)) / 86400;
  }();
  return value;
}

std::string text_of(const Tuning& tuning) {
  std::string text;
  for (const auto& [key, value] : tuning.values()) text += fmt::format(" {}={}", key, value);
  return text;
}

Tuning draw(const std::vector<Key>& keys, uint64_t number) {
  Tuning tuning;
  for (const Key& key : keys)
    tuning.set(key.name, key.values[hash_of(key.name, seed() * 1000 + number) % key.values.size()]);
  return tuning;
}

// Of the candidates that accept this example, any: a tuner may take it.
device::Choices draw_candidate(const device::Device& device, const ops::OpDef& op, const ops::Example& example,
                               uint64_t number) {
  const ir::Graph graph = step::single_op_graph(op, example, step::Layout::dense);
  const ops::OpView view = ops::view_of(graph, node_of(graph, op.name));
  const auto candidates = plan::candidates_for(device, view);
  if (candidates.empty()) return {};
  return {{device::node_key(view), std::string(candidates[hash_of(example.text, number) % candidates.size()]->name)}};
}

void expect_right(const std::string& kind, const ops::OpDef& op, const Tuning& tuning, size_t most_examples) {
  SCOPED_TRACE(fmt::format("{} {} seed {} tuning{}", kind, op.name, seed(), text_of(tuning)));
  device::DeviceOptions options;
  options.cache_folder = scratch_folder() + "/cache";
  options.tuning = tuning;
  const auto device = step::open_device(kind, options);
  const auto examples = ops::examples(op);
  for (size_t i = 0; i < std::min(examples.size(), most_examples); ++i) {
    // Not always the same examples: which ones depends on the seed as well.
    const ops::Example& example = examples[(i * 7 + seed()) % examples.size()];
    device->choices = draw_candidate(*device, op, example, seed());
    std::string where;
    EXPECT_LE(step::error_in_tolerances(*device, op, example, step::Layout::dense, 3, &where), 1)
        << example.text << (device->choices.empty() ? "" : " by " + device->choices.begin()->second) << ": " << where;
  }
}

// Ops whose kernels have tunables; the rest share those of the pointwise kernels.
const char* const kTuned[] = {"matmul",        "conv2d",
                              "conv2d_dx",     "conv2d_dw",
                              "add",           "fused",
                              "reduce",        "max_pool",
                              "max_pool_grad", "softmax",
                              "transpose",     "gather_grad",
                              "sgd",           "adam",
                              "moments",       "norm_sums",
                              "layer_norm",    "layer_norm_dx",
                              "softmax_xent",  "layer_norm_dparams",
                              "group_norm",    "group_norm_dparams",
                              "slice",         "upsample",
                              "lstm",          "gru_grad",
                              "attention",     "attention_dkv",
                              "rmsprop",       "square_sum",
                              "conv_chain"};

TEST(RandomTunings, OpenclKernelsAgreeWithTheOracle) {
  if (!device_under_test("opencl")) GTEST_SKIP() << "opencl is left out by SITU_TEST_DEVICES";
  fmt::print("tuning seed {}\n", seed());
  uint64_t number = 0;
  for (const char* op : kTuned) expect_right("opencl", ops::get(op), draw(opencl_keys(), number++), 2);
}

TEST(RandomTunings, CpuKernelsAgreeWithTheOracle) {
  fmt::print("tuning seed {}\n", seed());
  for (uint64_t number = 0; number < 10; ++number)
    for (const char* op : kTuned) expect_right("cpu", ops::get(op), draw(cpu_keys(), number), 4);
}

void sweep(const std::string& kind, const std::vector<Key>& keys) {
  if (!std::getenv("SITU_SWEEP")) GTEST_SKIP() << "the full sweep is scripts/sweep";
  for (const Key& key : keys)
    for (int64_t value : key.values) {
      fmt::print("{} {}={}\n", kind, key.name, value);
      std::fflush(stdout);
      Tuning tuning;
      tuning.set(key.name, value);
      for (const char* op : kTuned) expect_right(kind, ops::get(op), tuning, 100);
    }
}

TEST(Sweep, CpuKernelsAtEveryValueOfEveryKey) { sweep("cpu", cpu_keys()); }
TEST(Sweep, OpenclKernelsAtEveryValueOfEveryKey) { sweep("opencl", opencl_keys()); }

TEST(Tunings, AnImpossibleValueIsNamed) {
  if (!device_under_test("opencl")) GTEST_SKIP() << "opencl is left out by SITU_TEST_DEVICES";
  device::DeviceOptions options;
  options.tuning.set("gemm.VW", 7);
  const auto device = step::open_device("opencl", options);
  std::string where;
  EXPECT_THROW(step::error_in_tolerances(*device, ops::get("matmul"), ops::examples(ops::get("matmul"))[0],
                                         step::Layout::dense, 1, &where),
               Error);
}

TEST(Tunings, RecordsAreFoundByBackendAndName) {
  EXPECT_EQ(device::tuning_for("opencl", "Portable Computing Language pthread-haswell-AMD EPYC").get("gemm.VW", 0), 8);
  EXPECT_NE(device::tuning_for("opencl", "no such device").get("gemm.VW", 0), 0);
  EXPECT_TRUE(device::tuning_for("no such backend", "x").values().empty());
}

// Names as drivers report them. The model may stand in the version alone.
TEST(Tunings, PhonesFindTheirRecords) {
  struct Phone {
    const char *platform, *name, *version;
    int64_t tm, nv, wx, image, items, gflops;
  };
  const char *qualcomm = "QUALCOMM Snapdragon(TM)", *arm = "ARM Platform";
  for (const Phone& p : {Phone{qualcomm, "QUALCOMM Adreno(TM) 650", "OpenCL 2.0", 4, 2, 16, 1, 64, 890},
                         {qualcomm, "QUALCOMM Adreno(TM)", "OpenCL 2.0 Adreno(TM) 660", 4, 2, 16, 1, 64, 890},
                         {qualcomm, "QUALCOMM Adreno(TM)", "OpenCL 3.0 Adreno(TM) 710", 4, 1, 16, 1, 64, 0},
                         {qualcomm, "QUALCOMM Adreno(TM) 730", "OpenCL 3.0", 4, 1, 16, 1, 64, 2240},
                         {qualcomm, "QUALCOMM Adreno(TM)", "OpenCL 3.0 Adreno(TM) 740", 4, 1, 16, 1, 64, 2090},
                         {qualcomm, "QUALCOMM Adreno(TM) 750", "OpenCL 3.0", 4, 2, 16, 1, 64, 2800},
                         {qualcomm, "Adreno(TM) 830", "OpenCL 3.0", 4, 2, 16, 1, 64, 3400},
                         {qualcomm, "QUALCOMM Adreno(TM)", "OpenCL 3.0", 4, 2, 16, 1, 64, 0},
                         {arm, "Mali-G57", "OpenCL 2.1 v1.r26p0", 4, 2, 8, 0, 16, 121},
                         {arm, "Mali-G68", "OpenCL 2.1", 4, 2, 8, 0, 16, 0},
                         {arm, "Mali-G77", "OpenCL 2.1", 4, 2, 8, 0, 16, 0},
                         {arm, "Mali-G78", "OpenCL 2.1", 4, 2, 8, 0, 16, 0},
                         {arm, "Mali-G610 r0p0", "OpenCL 3.0", 8, 1, 8, 0, 16, 0},
                         {arm, "Mali-G615", "OpenCL 3.0", 4, 2, 8, 0, 16, 0},
                         {arm, "Mali-G710 r0p0", "OpenCL 3.0", 4, 2, 8, 0, 16, 0},
                         {arm, "Mali-G715-Immortalis MC11 r1p2", "OpenCL 3.0", 4, 2, 8, 0, 16, 0}}) {
    opencl::DeviceInfo info;
    info.platform = p.platform;
    info.name = p.name;
    info.version = p.version;
    info.max_group = 1024;
    const Tuning tuning = opencl::target_of(info, {}).tuning;
    SCOPED_TRACE(fmt::format("{} {}", p.name, p.version));
    EXPECT_EQ(tuning.get("gemm.TM", 0), p.tm);
    EXPECT_EQ(tuning.get("gemm.NV", 0), p.nv);
    EXPECT_EQ(tuning.get("gemm.WX", 0), p.wx);
    EXPECT_EQ(tuning.get("gemm.IMAGE", 0), p.image);
    EXPECT_EQ(tuning.get("rows.ITEMS", 0), p.items);
    EXPECT_EQ(tuning.get("device.gflops", 0), p.gflops);
    for (const auto& t : opencl::kernels::tunables()) {  // a record names values that kernels take
      const int64_t value = tuning.get(t.key, t.otherwise);
      EXPECT_NE(std::find(t.values.begin(), t.values.end(), value), t.values.end()) << t.key << " " << value;
    }
  }
}

}  // namespace
}  // namespace situ::test
