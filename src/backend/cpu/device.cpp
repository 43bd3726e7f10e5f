// device.cpp -- the CPU device: memory, binding, counters and timeline.
//
// Nothing is asynchronous: a launch has run when enqueue returns. So that the ledger reads alike on every device, a
// read and a finish still count as one host wait each; wait(ticket) has nothing to wait for and counts none.
#include "backend/cpu/device.h"

#include <unistd.h>

#include <cstring>
#include <fstream>
#include <map>
#include <new>

#include "backend/cpu/kernel.h"
#include "backend/cpu/pieces.h"
#include "backend/cpu/simd_info.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/pages.h"
#include "base/thread_pool.h"

namespace situ::cpu {
namespace {

constexpr double kMiB = 1 << 20;

struct Slab {
  Pages data;
  int64_t bytes = 0;
};

struct CpuStorage final : device::Storage {
  std::vector<Slab> slabs;
  std::vector<Slab> feeds;  // slab 0 once more, for feeds 1 and up
  std::byte* at(int slab, int64_t offset, int64_t bytes, int feed = 0) const {
    SITU_ASSERT(slab >= 0 && static_cast<size_t>(slab) < slabs.size(), "slab {}", slab);
    const Slab& s = slab == 0 && feed > 0 ? feeds.at(static_cast<size_t>(feed - 1)) : slabs[static_cast<size_t>(slab)];
    SITU_ASSERT(offset >= 0 && bytes >= 0 && offset + bytes <= s.bytes, "bytes {}+{} of a slab of {}", offset, bytes,
                s.bytes);
    return s.data.get() + offset;
  }
};

struct Profile {
  bool on = false;
  device::Timeline timeline;
  void add(device::EventKind kind, int launch, double start) {
    timeline.events.push_back({kind, launch, start, now(), start});
  }
};

using Works = std::vector<Work>;  // of one launch: one, or one per feed where an operand lies in slab 0

class CpuExecutable final : public device::Executable {
 public:
  CpuExecutable(std::vector<Works> work, ThreadPool& pool, device::Counters& counters, Profile& profile)
      : work_(std::move(work)), pool_(pool), counters_(counters), profile_(profile) {}

  void enqueue(int feed) override { run(0, launches(), feed); }
  void enqueue(int first, int count) override { run(first, count, 0); }
  int launches() const override { return static_cast<int>(work_.size()); }

 private:
  void run(int first, int count, int feed) {
    SITU_ASSERT(first >= 0 && count >= 0 && first + count <= launches(), "launches {}+{} of {}", first, count,
                launches());
    const double start = profile_.on ? now() : 0;
    for (int i = first; i < first + count; ++i) launch(i, feed);
    if (profile_.on) profile_.timeline.host.push_back({device::HostKind::queueing, start, now()});
    counters_.launches += count;
  }
  void launch(int i, int feed) {
    const Works& works = work_[static_cast<size_t>(i)];
    const Work& work = works[works.size() > 1 ? static_cast<size_t>(feed) : 0];
    const double start = profile_.on ? now() : 0;
    pool_.run(work.tasks, work.run);
    if (profile_.on) profile_.add(device::EventKind::kernel, i, start);
  }

  std::vector<Works> work_;
  ThreadPool& pool_;
  device::Counters& counters_;
  Profile& profile_;
};

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("model name", 0) == 0 && line.find(": ") != std::string::npos)
      return line.substr(line.find(": ") + 2);
  return "CPU";
}

// In Hz; what the kernel says, or a middling guess: it only weighs candidates against each other.
double clock_rate() {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq");
  double khz = 0;
  return file >> khz && khz > 1e5 ? khz * 1e3 : 2.5e9;
}

device::Target make_target(const device::DeviceOptions& options, int threads) {
  const SimdInfo simd = simd_info();
  device::Target target;
  target.backend = "cpu";
  target.name = fmt::format("{} ({})", processor_name(), simd.name);
  target.alignment = 128;
  const int64_t pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
  if (pages > 0 && page_bytes > 0) target.memory = pages * page_bytes;
  target.max_slab = target.memory;
  target.compute_units = threads;
  target.peak_flops = clock_rate() * simd.flops_per_cycle * threads;
  target.bandwidth = 15e9 + 5e9 * std::min(threads, 4);
  target.launch_seconds = threads > 1 ? 1.5e-6 : 0.2e-6;
  target.tuning = device::tuning_for("cpu", target.name);
  target.tuning.set("gemm.paired", simd.adds_beside);
  target.tuning.set("gemm.halves", simd.adds_beside);  // the same processors
  target.tuning.set("chain.pairs", simd.adds_beside);
  target.tuning.set("chain.together", simd.adds_beside ? 256 : 0);  // measured there alone
  target.tuning.set("gemm.pieces", simd.lanes == kPieceLanes && has_piece_units());
  for (const auto& [key, value] : options.tuning.values()) target.tuning.set(key, value);
  target.tuning.set("simd.lanes", simd.lanes);  // a fact, not a choice: panels are made of whole vectors
  return target;
}

std::map<std::string_view, const Kernel*> index_kernels(const std::vector<KernelList>& families) {
  std::map<std::string_view, const Kernel*> index;
  for (const KernelList& family : families)
    for (const Kernel& kernel : family.kernels)
      SITU_ASSERT(index.emplace(kernel.name, &kernel).second, "CPU kernel {} is defined twice", kernel.name);
  return index;
}

class CpuDevice final : public device::Device {
 public:
  explicit CpuDevice(const device::DeviceOptions& options)
      : pool_(options.threads),
        target_(make_target(options, pool_.threads())),
        families_(all_kernel_families()),
        kernels_(index_kernels(families_)) {}

  const device::Target& target() const override { return target_; }
  bool has_kernel(std::string_view kernel) const override { return kernels_.count(kernel) != 0; }
  std::vector<device::CandidateList> candidates() const override {
    std::vector<device::CandidateList> lists;
    for (const KernelList& family : families_)
      if (!family.candidates.empty()) lists.push_back(family.candidates);
    return lists;
  }

  std::unique_ptr<device::Storage> allocate(const std::vector<int64_t>& slab_bytes, int feeds) override;
  std::unique_ptr<device::Executable> bind(std::span<const device::LaunchSpec> launches,
                                           device::Storage& storage) override;

  void write(device::Storage& storage, int slab, int64_t offset, const void* data, int64_t bytes) override {
    const double start = profile_.on ? now() : 0;
    std::memcpy(static_cast<CpuStorage&>(storage).at(slab, offset, bytes), data, static_cast<size_t>(bytes));
    ++counters_.writes;
    counters_.bytes_in += bytes;
    if (profile_.on) profile_.add(device::EventKind::write, -1, start);
  }
  void read(device::Storage& storage, int slab, int64_t offset, void* data, int64_t bytes) override {
    const double start = profile_.on ? now() : 0;
    std::memcpy(data, static_cast<CpuStorage&>(storage).at(slab, offset, bytes), static_cast<size_t>(bytes));
    ++counters_.reads;
    ++counters_.waits;
    counters_.bytes_out += bytes;
    if (profile_.on) profile_.add(device::EventKind::read, -1, start);
  }
  bool maps_feeds() const override { return true; }
  std::byte* map(device::Storage& storage, int feed, int64_t offset, int64_t bytes) override {
    return static_cast<CpuStorage&>(storage).at(0, offset, bytes, feed);
  }
  void unmap(device::Storage&, int, int64_t bytes) override {
    ++counters_.writes;
    counters_.bytes_in += bytes;
  }
  device::Ticket submit() override { return ++tickets_; }
  void wait(device::Ticket) override {}
  void finish() override { ++counters_.waits; }

  const device::Counters& counters() const override { return counters_; }
  void start_profile() override {
    profile_.timeline = {};
    profile_.timeline.events.reserve(1 << 16);  // a profiled step should not stop to grow its list
    profile_.timeline.host.reserve(1 << 12);
    profile_.on = true;
  }
  device::Timeline stop_profile() override {
    profile_.on = false;
    return std::move(profile_.timeline);
  }

 private:
  Operand operand(const device::TensorArg& arg, const CpuStorage& storage, int feed) const;
  Works bind_one(const device::LaunchSpec& launch, const CpuStorage& storage) const;

  ThreadPool pool_;
  device::Target target_;
  std::vector<KernelList> families_;
  std::map<std::string_view, const Kernel*> kernels_;
  device::Counters counters_;
  Profile profile_;
  device::Ticket tickets_ = 0;
};

Slab make_slab(int64_t bytes, const device::Target& target) {
  if (bytes > target.max_slab)
    fail_environment("{:.1f} MiB are needed in one piece, {} gives at most {:.1f} MiB: use a smaller batch",
                     static_cast<double>(bytes) / kMiB, target.name, static_cast<double>(target.max_slab) / kMiB);
  Pages data = make_pages(static_cast<size_t>(bytes));
  if (!data)
    fail_environment("the system refuses {:.1f} MiB of memory ({:.1f} MiB are built in): use a smaller batch",
                     static_cast<double>(bytes) / kMiB, static_cast<double>(target.memory) / kMiB);
  return {std::move(data), bytes};
}

std::unique_ptr<device::Storage> CpuDevice::allocate(const std::vector<int64_t>& slab_bytes, int feeds) {
  int64_t total = feeds > 1 ? (feeds - 1) * slab_bytes.front() : 0;
  for (int64_t bytes : slab_bytes) total += bytes;
  if (total > target_.memory)
    fail_environment("{:.1f} MiB are needed, {} has {:.1f} MiB of memory: use a smaller batch",
                     static_cast<double>(total) / kMiB, target_.name, static_cast<double>(target_.memory) / kMiB);
  auto storage = std::make_unique<CpuStorage>();
  for (int64_t bytes : slab_bytes) storage->slabs.push_back(make_slab(bytes, target_));
  for (int feed = 1; feed < feeds; ++feed) storage->feeds.push_back(make_slab(slab_bytes.front(), target_));
  return storage;
}

Operand CpuDevice::operand(const device::TensorArg& arg, const CpuStorage& storage, int feed) const {
  const int64_t elements = arg.rows() ? (arg.rows() - 1) * arg.pitch + arg.cols() : 0;
  Operand operand;
  operand.data = storage.at(arg.slab, arg.offset, elements * bytes_of(arg.type.dtype), feed);
  operand.zeros = reinterpret_cast<const float*>(storage.at(arg.slab, 0, device::kZeroRun, feed));
  operand.pitch = arg.rows() == 1 ? arg.cols() : arg.pitch;  // the pitch of a single row means nothing
  operand.type = arg.type;
  return operand;
}

Works CpuDevice::bind_one(const device::LaunchSpec& launch, const CpuStorage& storage) const {
  const auto it = kernels_.find(launch.node.op);
  SITU_ASSERT(it != kernels_.end(), "the CPU has no kernel {}", launch.node.op);
  bool fed = false;
  for (const auto* list : {&launch.in, &launch.out})
    for (const device::TensorArg& arg : *list) fed = fed || arg.slab == 0;
  Works works;
  for (int feed = 0; feed <= (fed ? static_cast<int>(storage.feeds.size()) : 0); ++feed) {
    Call call{launch.node.attrs, {}, {}, target_};
    for (const device::TensorArg& arg : launch.in) call.in.push_back(operand(arg, storage, feed));
    for (const device::TensorArg& arg : launch.out) call.out.push_back(operand(arg, storage, feed));
    works.push_back(it->second->bind(call));
  }
  return works;
}

std::unique_ptr<device::Executable> CpuDevice::bind(std::span<const device::LaunchSpec> launches,
                                                    device::Storage& storage) {
  const CpuStorage& memory = static_cast<CpuStorage&>(storage);
  std::vector<Works> work;
  work.reserve(launches.size());
  for (const device::LaunchSpec& launch : launches) work.push_back(bind_one(launch, memory));
  return std::make_unique<CpuExecutable>(std::move(work), pool_, counters_, profile_);
}

}  // namespace

std::unique_ptr<device::Device> make_device(const device::DeviceOptions& options) {
  return std::make_unique<CpuDevice>(options);
}

}  // namespace situ::cpu
