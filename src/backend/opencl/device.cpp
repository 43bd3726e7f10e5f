// device.cpp -- one open OpenCL device: an in-order queue, slabs, programs, tickets.
#include "backend/opencl/device.h"

#include "backend/opencl/embedded.h"
#include "backend/opencl/executable.h"
#include "backend/opencl/loader.h"
#include "backend/opencl/tickets.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"

namespace situ::opencl {
namespace {

constexpr double kSavingShare = 0.1;

std::string fingerprint_of(const Overrides& overrides) {
  std::string all(embedded_fingerprint());
  for (const auto& [file, text] : overrides.sources) all += file + "\n" + text;
  return fmt::format("{:016x}", hash_of(all));
}

class OpenClDevice : public device::Device {
 public:
  OpenClDevice(const device::DeviceOptions& options, const Overrides& overrides);
  ~OpenClDevice() override;

  const device::Target& target() const override { return run_.target; }
  bool has_kernel(std::string_view kernel) const override { return kernels_.contains(kernel); }
  std::vector<device::CandidateList> candidates() const override;
  std::unique_ptr<device::Storage> allocate(const std::vector<int64_t>& slab_bytes, int feeds) override;
  std::unique_ptr<device::Executable> bind(std::span<const device::LaunchSpec> launches,
                                           device::Storage& storage) override;
  void write(device::Storage& storage, int slab, int64_t offset, const void* data, int64_t bytes) override;
  void read(device::Storage& storage, int slab, int64_t offset, void* data, int64_t bytes) override;
  bool maps_feeds() const override { return run_.submission.map; }
  std::byte* map(device::Storage& storage, int feed, int64_t offset, int64_t bytes) override {
    return static_cast<Slabs&>(storage).map(feed, offset, bytes);
  }
  void unmap(device::Storage& storage, int feed, int64_t bytes) override {
    static_cast<Slabs&>(storage).unmap(feed, bytes);
  }
  device::Ticket submit() override;
  void wait(device::Ticket ticket) override;
  void finish() override;
  const device::Counters& counters() const override { return run_.counters; }
  void start_profile() override;
  device::Timeline stop_profile() override;
  std::string program_of(const device::LaunchSpec& launch) const override;
  bool takes_half(std::string_view kernel, bool result, size_t index) const override;

  std::vector<std::string> notes() const;

 private:
  void drain();  // until the queue is empty
  template <typename Work>
  void blocked(const Work& work);

  Runtime run_;
  std::vector<KernelList> families_;
  std::map<std::string, std::string, std::less<>> sources_;
  FindSource find_source_;
  KernelTable kernels_;
  std::unique_ptr<ProgramCache> programs_;
  Tickets tickets_;
  const double opened_ = now();
};

OpenClDevice::OpenClDevice(const device::DeviceOptions& options, const Overrides& overrides)
    : run_(load_opencl(), choose_device(load_opencl(), options.name)),
      families_(overrides.kernels),
      sources_(overrides.sources),
      tickets_(run_.cl) {
  run_.target = target_of(run_.found.info, options.tuning);
  run_.target.kernels = fingerprint_of(overrides);
  if (overrides.target) overrides.target(run_.target);
  for (const KernelList& family : all_kernel_families()) families_.push_back(family);
  for (const KernelList& family : families_)
    for (const Kernel& kernel : family.kernels) kernels_.emplace(kernel.name, &kernel);
  find_source_ = [this](std::string_view file) {
    const auto own = sources_.find(file);
    return own != sources_.end() ? own->second.c_str() : embedded_source(file);
  };
  run_.open();
  programs_ = std::make_unique<ProgramCache>(run_.cl, run_.context.get(), run_.found, options.cache_folder);
}

// Queued work writes into memory that goes away with this object. What was slow to save is saved now, as far as that
// takes a small part of the time the device was open: all of it after a training, little after a short look.
OpenClDevice::~OpenClDevice() {
  run_.cl.clFinish(run_.queue);
  try {
    if (programs_) programs_->save_waiting(kSavingShare * (now() - opened_));
  } catch (...) {  // then the next start builds them again
  }
}

std::vector<device::CandidateList> OpenClDevice::candidates() const {
  std::vector<device::CandidateList> lists;
  for (const KernelList& family : families_) lists.push_back(family.candidates);
  return lists;
}

std::unique_ptr<device::Storage> OpenClDevice::allocate(const std::vector<int64_t>& slab_bytes, int feeds) {
  return std::make_unique<Slabs>(run_, slab_bytes, feeds);
}

std::unique_ptr<device::Executable> OpenClDevice::bind(std::span<const device::LaunchSpec> launches,
                                                       device::Storage& storage) {
  const Binder binder{run_, *programs_, kernels_, find_source_};
  std::vector<double> seconds;
  for (const device::LaunchSpec& launch : launches)
    seconds.push_back(device::roofline_seconds({launch.flops, launch.bytes}, run_.target));
  return std::make_unique<LaunchList>(run_, bind_launches(binder, launches, static_cast<Slabs&>(storage)),
                                      std::move(seconds));
}

std::string OpenClDevice::program_of(const device::LaunchSpec& launch) const {
  const auto found = kernels_.find(launch.node.op);
  if (found == kernels_.end()) return launch.node.op;
  const Call call = call_of(*found->second, launch, run_.target);
  return fmt::format("{} {}\n{}", call.file, call.options, call.prelude);
}

bool OpenClDevice::takes_half(std::string_view kernel, bool result, size_t index) const {
  const auto found = kernels_.find(kernel);
  return found != kernels_.end() && opencl::takes_half(*found->second, result, index);
}

// --- data and time --------------------------------------------------------------------------------------------------
template <typename Work>
void OpenClDevice::blocked(const Work& work) {
  const double start = now();
  work();
  ++run_.counters.waits;
  run_.profile.add_host(device::HostKind::blocked, start);
}

void OpenClDevice::drain() {
  check("clFinish", run_.cl.clFinish(run_.queue));
  run_.unflushed = 0;
  tickets_.all_done();
}

void OpenClDevice::write(device::Storage& storage, int slab, int64_t offset, const void* data, int64_t bytes) {
  const Slabs& slabs = static_cast<Slabs&>(storage);
  slabs.check_range(slab, offset, bytes);
  if (bytes == 0) return;
  const Queueing queueing(run_.profile);
  cl_event* event = run_.profile.event(device::EventKind::write);
  const cl_int code =
      run_.cl.clEnqueueWriteBuffer(run_.queue, slabs.buffer(slab), CL_FALSE, static_cast<size_t>(offset),
                                   static_cast<size_t>(bytes), data, 0, nullptr, event);
  if (code != CL_SUCCESS) run_.profile.drop_last();
  check("clEnqueueWriteBuffer", code);
  ++run_.counters.writes;
  run_.counters.bytes_in += bytes;
}

void OpenClDevice::read(device::Storage& storage, int slab, int64_t offset, void* data, int64_t bytes) {
  const Slabs& slabs = static_cast<Slabs&>(storage);
  slabs.check_range(slab, offset, bytes);
  if (bytes == 0) return;
  cl_event* event = run_.profile.event(device::EventKind::read);
  blocked([&] {
    const cl_int code =
        run_.cl.clEnqueueReadBuffer(run_.queue, slabs.buffer(slab), CL_TRUE, static_cast<size_t>(offset),
                                    static_cast<size_t>(bytes), data, 0, nullptr, event);
    if (code != CL_SUCCESS) run_.profile.drop_last();
    check("clEnqueueReadBuffer", code);
  });
  tickets_.all_done();  // the queue is in order: what was submitted before the read has run
  run_.unflushed = 0;
  ++run_.counters.reads;
  run_.counters.bytes_out += bytes;
}

device::Ticket OpenClDevice::submit() {
  const Queueing queueing(run_.profile);
  const device::Ticket ticket = tickets_.submit(run_.queue);
  run_.unflushed = 0;  // the tickets flushed
  return ticket;
}

void OpenClDevice::wait(device::Ticket ticket) {
  if (tickets_.done(ticket)) return;
  blocked([&] {
    if (run_.submission.lend) tickets_.lend(ticket);
    tickets_.wait(ticket);
  });
}

void OpenClDevice::finish() {
  blocked([&] { drain(); });
}

void OpenClDevice::start_profile() {
  drain();
  run_.use_profiling_queue(true);
  run_.profile.start();
}

device::Timeline OpenClDevice::stop_profile() {
  drain();
  run_.use_profiling_queue(false);
  return run_.profile.stop();
}

std::vector<std::string> OpenClDevice::notes() const {
  std::vector<std::string> all = run_.notes;
  for (std::string& note : programs_->notes()) all.push_back(std::move(note));
  return all;
}

}  // namespace

std::unique_ptr<device::Device> make_device(const device::DeviceOptions& options, const Overrides& overrides) {
  return std::make_unique<OpenClDevice>(options, overrides);
}

std::vector<std::string> notes_of(const device::Device& device) {
  const auto* opencl = dynamic_cast<const OpenClDevice*>(&device);
  return opencl != nullptr ? opencl->notes() : std::vector<std::string>();
}

}  // namespace situ::opencl
