// golden_test.cpp -- the launch list and placement of the models' programs on a fixed fake target. A refactor leaves
// the files byte-identical; an optimisation shows its gain in review. SITU_UPDATE_GOLDEN=1 writes them anew.
//
// launches.txt holds no more than counts, of more models: launches of a training step, and the programs a driver
// compiles for it. They may only fall.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "backend/opencl/kernel.h"
#include "base/error.h"
#include "step/compile.h"
#include "step/programs.h"

namespace situ::test {
namespace {

// OpenCL's kernels and candidates on a device that exists nowhere: compiles, but runs nothing.
class FakeDevice : public device::Device {
 public:
  FakeDevice() {
    target_.backend = "opencl";
    target_.name = "fake";
    target_.compute_units = 4;
    for (auto [key, value] : {std::pair{"gemm.VW", 4}, {"gemm.TM", 4}, {"gemm.NV", 2}}) target_.tuning.set(key, value);
  }
  const device::Target& target() const override { return target_; }
  bool has_kernel(std::string_view kernel) const override { return find(kernel) != nullptr; }
  std::string program_of(const device::LaunchSpec& launch) const override {
    const opencl::Call call = find(launch.node.op)->bind(launch, target_);
    return call.file + call.options + "\n" + call.prelude;
  }
  std::vector<device::CandidateList> candidates() const override {
    std::vector<device::CandidateList> lists;
    for (const opencl::KernelList& family : opencl::all_kernel_families()) lists.push_back(family.candidates);
    return lists;
  }
  std::unique_ptr<device::Storage> allocate(const std::vector<int64_t>&, int) override { return nullptr; }
  std::unique_ptr<device::Executable> bind(std::span<const device::LaunchSpec>, device::Storage&) override {
    return nullptr;
  }
  void write(device::Storage&, int, int64_t, const void*, int64_t) override {}
  void read(device::Storage&, int, int64_t, void*, int64_t) override {}
  std::byte* map(device::Storage&, int, int64_t, int64_t) override { return nullptr; }
  void unmap(device::Storage&, int, int64_t) override {}
  device::Ticket submit() override { return 0; }
  void wait(device::Ticket) override {}
  void finish() override {}
  const device::Counters& counters() const override { return counters_; }
  void start_profile() override {}
  device::Timeline stop_profile() override { return {}; }

 private:
  static const opencl::Kernel* find(std::string_view kernel) {
    for (const opencl::KernelList& family : opencl::all_kernel_families())
      for (const opencl::Kernel& k : family.kernels)
        if (k.name == kernel) return &k;
    return nullptr;
  }
  device::Target target_;
  device::Counters counters_;
};

std::string launch_lists(const std::string& model_name) {
  const model::Model model = model::find_model(model_name);
  std::vector<ir::Graph> programs;
  for (const char* name : {"train", "micro", "apply", "evaluate", "infer"})
    programs.push_back(step::program_by_name({model, 64, {}}, name));
  std::string text;
  for (const step::Program& program : step::compile(programs, FakeDevice(), {}).programs)
    text += print_launches(program) + "\n";
  return text;
}

std::filesystem::path golden_path(const std::string& name) {
  return std::filesystem::path(SITU_SOURCE_DIR) / "tests" / "golden" / name;
}

struct Counts {
  int64_t launches = 0, programs = 0;
};
struct Workload {
  const char *model, *train, *optimizer;
  int64_t batch;
  std::string name() const { return fmt::format("{} batch {}, {}, train {}", model, batch, optimizer, train); }
};
// The workloads of bench/compare, and one model of each other family.
constexpr Workload kWorkloads[] = {
    {"lenet5", "all", "sgd", 64},
    {"resnet20", "all", "sgd", 32},
    {"mobilenetv2@96", "all", "sgd", 8},
    {"resnet18", "all", "sgd", 4},
    {"gpt-mini", "all", "adamw", 8},
    {"mobilenetv2@96", "last", "sgd", 8},
    {"char-lstm", "all", "sgd", 32},
    {"resnet50", "all", "sgd", 4},
    {"mobilenetv1", "all", "sgd", 4},
    {"shufflenetv2", "all", "sgd", 4},
    {"mobilenetv3-small", "all", "sgd", 4},
    {"efficientnet-b0", "all", "sgd", 4},
    {"bert-tiny", "all", "adamw", 8},
    {"kws", "all", "adam", 16},
    {"har-cnn", "all", "adam", 16},
    {"har-lstm", "all", "adam", 16},
    {"unet-small", "all", "adam", 4},
    {"lenet5", "all", "adam", 64},
    {"mlp:784-256-128-16", "all", "sgd", 64},
};

Counts count(const Workload& workload) {
  const FakeDevice device;
  const model::Model model = model::find_model(workload.model);
  step::ProgramSpec spec{model, workload.batch, model::default_optimizer(model::parse_optimizer(workload.optimizer))};
  spec.partial = model::parse_partial(model, workload.train);
  const step::Compiled compiled = step::compile({step::train_program(spec)}, device, {});
  Counts counts;
  std::set<std::string> programs;
  for (const step::Program& program : compiled.programs)
    for (const device::LaunchSpec& launch : program.launches) {
      if (program.name == "train") ++counts.launches;
      programs.insert(device.program_of(launch));
    }
  counts.programs = static_cast<int64_t>(programs.size());
  return counts;
}

// One line per workload: its name, a colon, launches, programs.
std::map<std::string, Counts> read_counts(const std::filesystem::path& path) {
  std::map<std::string, Counts> result;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.rfind(": ");
    if (line.empty() || line[0] == '#' || colon == std::string::npos) continue;
    Counts& counts = result[line.substr(0, colon)];
    std::istringstream(line.substr(colon + 2)) >> counts.launches >> counts.programs;
  }
  return result;
}

// What has grown stays as it was: growth is entered by hand, with its reason in the commit.
TEST(Golden, LaunchesDoNotGrow) {
  const auto path = golden_path("launches.txt");
  const bool update = std::getenv("SITU_UPDATE_GOLDEN") != nullptr;
  const std::map<std::string, Counts> golden = read_counts(path);
  std::string text = "# Launches of one training step and programs compiled for it, on the tests' fake device.\n";
  for (const Workload& workload : kWorkloads) {
    const std::string name = workload.name();
    Counts now = count(workload);
    const auto before = golden.find(name);
    if (before != golden.end()) {
      EXPECT_LE(now.launches, before->second.launches) << name << ": more launches than " << path;
      EXPECT_LE(now.programs, before->second.programs) << name << ": more programs than " << path;
      now = {std::min(now.launches, before->second.launches), std::min(now.programs, before->second.programs)};
    }
    const bool same =
        before != golden.end() && now.launches == before->second.launches && now.programs == before->second.programs;
    EXPECT_TRUE(same || update) << name << " takes " << now.launches << " launches of " << now.programs
                                << " programs: write that down with SITU_UPDATE_GOLDEN=1 "
                                   "build/release/situ_tests --gtest_filter=Golden.*";
    text += fmt::format("{}: {} {}\n", name, now.launches, now.programs);
  }
  if (update) std::ofstream(path) << text;
}

TEST(Golden, LaunchListsOfTheModels) {
  for (const std::string model : {"lenet5", "mlp:784-256-128-16"}) {
    const std::string name = model.substr(0, model.find(':')) + ".step";
    const auto path = golden_path(name);
    const std::string text = launch_lists(model);
    if (std::getenv("SITU_UPDATE_GOLDEN")) std::ofstream(path) << text;
    std::ifstream file(path);
    std::stringstream golden;
    golden << file.rdbuf();
    EXPECT_EQ(text, golden.str()) << "if the change is meant, run with SITU_UPDATE_GOLDEN=1 and review " << name;
  }
}

}  // namespace
}  // namespace situ::test
