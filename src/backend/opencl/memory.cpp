// memory.cpp -- allocation against the target's limits, zero-filling, mapping.
#include "backend/opencl/memory.h"

#include <numeric>

#include "base/error.h"

namespace situ::opencl {
namespace {

std::string mib(int64_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

// OpenCL fills by whole patterns, and kernels may load a vector past the last element.
int64_t padded(int64_t bytes) { return round_up(std::max<int64_t>(bytes, 1), 128); }

void need_room(const Runtime& run, const std::vector<int64_t>& slabs, int feeds) {
  const device::Target& target = run.target;
  for (int64_t bytes : slabs)
    if (padded(bytes) > target.max_slab)
      fail_environment(
          "an allocation of {} is more than '{}' allows at once ({}): use a smaller batch or another device",
          mib(bytes), target.name, mib(target.max_slab));
  const int64_t needed = std::accumulate(slabs.begin(), slabs.end(), feeds > 1 ? (feeds - 1) * slabs.front() : 0);
  if (needed > target.memory - run.allocated)
    fail_environment("{} are needed but '{}' has {}{}: use a smaller batch or another device", mib(needed), target.name,
                     mib(target.memory),
                     run.allocated > 0 ? fmt::format(" of which {} are in use", mib(run.allocated)) : "");
}

}  // namespace

Slabs::Slabs(Runtime& run, const std::vector<int64_t>& slab_bytes, int feeds)
    : run_(run), host_{run, {}}, mapped_(static_cast<size_t>(feeds)) {
  need_room(run, slab_bytes, feeds);
  for (int64_t bytes : slab_bytes) {
    buffers_.push_back(create(padded(bytes)));
    bytes_.push_back(padded(bytes));
  }
  while (this->feeds() < feeds) feeds_.push_back(create(bytes_[0]));
  check("clFinish", run.cl.clFinish(run.queue));  // memory that is not there shows here, not in the first step
  run.allocated += total();
}

Slabs::~Slabs() {
  for (int feed = 0; feed < feeds(); ++feed)
    if (void* data = mapped_[static_cast<size_t>(feed)])
      run_.cl.clEnqueueUnmapMemObject(run_.queue, buffer(0, feed), data, 0, nullptr, nullptr);
  run_.allocated -= total();
}

int64_t Slabs::total() const {
  return std::accumulate(bytes_.begin(), bytes_.end(), feeds() > 1 ? (feeds() - 1) * bytes_[0] : 0);
}

Handle<cl_mem> Slabs::create(int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  cl_int code = CL_SUCCESS;
  cl_mem_flags flags = CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR;
  if (run_.found.info.type == DeviceType::cpu) host_.pages.push_back(make_pages(size));
  std::byte* host = host_.pages.empty() ? nullptr : host_.pages.back().get();
  if (host != nullptr) flags = CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR;
  const char* call = "clCreateBuffer";
  Handle<cl_mem> buffer(run_.cl.clCreateBuffer(run_.context.get(), flags, size, host, &code),
                        run_.cl.clReleaseMemObject);
  if (code == CL_SUCCESS) {
    const cl_uint4 zero{};
    call = "clEnqueueFillBuffer";
    code = run_.cl.clEnqueueFillBuffer(run_.queue, buffer.get(), &zero, sizeof(zero), 0, size, 0, nullptr, nullptr);
  }
  if (code != CL_SUCCESS)
    fail_environment("{} cannot be allocated on '{}' ({}: {}): use a smaller batch, free memory or use another device",
                     mib(bytes), run_.target.name, call, code_name(code));
  return buffer;
}

// Nobody waits: the pointer is known at once, and its memory is the host's when the queue has come to this command.
std::byte* Slabs::map(int feed, int64_t offset, int64_t bytes) {
  check_range(0, offset, bytes);
  void*& mapped = mapped_.at(static_cast<size_t>(feed));
  SITU_ASSERT(mapped == nullptr, "feed {} is mapped already", feed);
  cl_int code = CL_SUCCESS;
  const Queueing queueing(run_.profile);
  cl_event* event = run_.profile.event(device::EventKind::write);
  void* data =
      run_.cl.clEnqueueMapBuffer(run_.queue, buffer(0, feed), CL_FALSE, CL_MAP_WRITE_INVALIDATE_REGION,
                                 static_cast<size_t>(offset), static_cast<size_t>(bytes), 0, nullptr, event, &code);
  if (code != CL_SUCCESS) run_.profile.drop_last();
  check("clEnqueueMapBuffer", code);
  mapped = data;
  return static_cast<std::byte*>(data);
}

void Slabs::unmap(int feed, int64_t bytes) {
  void*& mapped = mapped_.at(static_cast<size_t>(feed));
  SITU_ASSERT(mapped != nullptr, "feed {} is not mapped", feed);
  const Queueing queueing(run_.profile);
  cl_event* event = run_.profile.event(device::EventKind::write);
  const cl_int code = run_.cl.clEnqueueUnmapMemObject(run_.queue, buffer(0, feed), mapped, 0, nullptr, event);
  if (code != CL_SUCCESS) run_.profile.drop_last();
  check("clEnqueueUnmapMemObject", code);
  ++run_.counters.writes;
  run_.counters.bytes_in += bytes;
  mapped = nullptr;
}

void Slabs::check_range(int slab, int64_t offset, int64_t bytes) const {
  SITU_ASSERT(slab >= 0 && static_cast<size_t>(slab) < buffers_.size(), "slab {} of {}", slab, buffers_.size());
  SITU_ASSERT(offset >= 0 && bytes >= 0 && offset + bytes <= bytes_[static_cast<size_t>(slab)],
              "bytes {} to {} of a slab of {}", offset, offset + bytes, bytes_[static_cast<size_t>(slab)]);
}

}  // namespace situ::opencl
