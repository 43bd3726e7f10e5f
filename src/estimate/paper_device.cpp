#include "estimate/paper_device.h"

#include <map>

#include "backend/cpu/kernel.h"
#include "backend/opencl/kernel.h"
#include "base/error.h"

namespace situ::estimate {
namespace {

class PaperDevice final : public device::Device {
 public:
  explicit PaperDevice(device::Target target) : target_(std::move(target)) {
    if (target_.backend == "opencl") {
      for (const opencl::KernelList& family : opencl::all_kernel_families()) {
        for (const opencl::Kernel& kernel : family.kernels) kernels_[kernel.name] = &kernel;
        candidates_.push_back(family.candidates);
      }
    } else {
      SITU_ASSERT(target_.backend == "cpu", "no back end {}", target_.backend);
      for (const cpu::KernelList& family : cpu::all_kernel_families()) {
        for (const cpu::Kernel& kernel : family.kernels) kernels_[kernel.name] = nullptr;
        candidates_.push_back(family.candidates);
      }
    }
  }

  const device::Target& target() const override { return target_; }
  bool has_kernel(std::string_view kernel) const override { return kernels_.contains(kernel); }
  std::vector<device::CandidateList> candidates() const override { return candidates_; }
  bool maps_feeds() const override { return true; }
  bool takes_half(std::string_view kernel, bool result, size_t index) const override {
    const auto known = kernels_.find(kernel);
    return known != kernels_.end() && known->second && opencl::takes_half(*known->second, result, index);
  }

  std::unique_ptr<device::Storage> allocate(const std::vector<int64_t>&, int) override { nothing_runs(); }
  std::unique_ptr<device::Executable> bind(std::span<const device::LaunchSpec>, device::Storage&) override {
    nothing_runs();
  }
  void write(device::Storage&, int, int64_t, const void*, int64_t) override { nothing_runs(); }
  void read(device::Storage&, int, int64_t, void*, int64_t) override { nothing_runs(); }
  std::byte* map(device::Storage&, int, int64_t, int64_t) override { nothing_runs(); }
  void unmap(device::Storage&, int, int64_t) override { nothing_runs(); }
  device::Ticket submit() override { nothing_runs(); }
  void wait(device::Ticket) override { nothing_runs(); }
  void finish() override {}
  const device::Counters& counters() const override { return counters_; }
  void start_profile() override {}
  device::Timeline stop_profile() override { return {}; }

 private:
  [[noreturn]] void nothing_runs() const { fail("{} exists on paper: nothing runs on it", target_.name); }

  device::Target target_;
  std::map<std::string_view, const opencl::Kernel*> kernels_;
  std::vector<device::CandidateList> candidates_;
  device::Counters counters_;
};

}  // namespace

std::unique_ptr<device::Device> make_paper_device(const device::Target& target) {
  return std::make_unique<PaperDevice>(target);
}

}  // namespace situ::estimate
