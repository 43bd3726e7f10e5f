// golden_test.cpp -- the launch list and placement of the models' programs on a fixed fake target. A refactor leaves
// the files byte-identical; an optimisation shows its gain in review. SITU_UPDATE_GOLDEN=1 writes them anew.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
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
  bool has_kernel(std::string_view kernel) const override {
    for (const opencl::KernelList& family : opencl::all_kernel_families())
      for (const opencl::Kernel& k : family.kernels)
        if (k.name == kernel) return true;
    return false;
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

TEST(Golden, LaunchListsOfTheModels) {
  for (const std::string model : {"lenet5", "mlp:784-256-128-16"}) {
    const std::string name = model.substr(0, model.find(':')) + ".step";
    const auto path = std::filesystem::path(SITU_SOURCE_DIR) / "tests" / "golden" / name;
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
