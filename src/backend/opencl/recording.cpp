// recording.cpp -- the five calls of cl_khr_command_buffer.
#include "backend/opencl/recording.h"

namespace situ::opencl {
namespace {

constexpr cl_device_info kCapabilities = 0x12A9;         // CL_DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR
constexpr cl_ulong kCapabilitySimultaneousUse = 1 << 2;  // may be replayed while an earlier replay is pending
constexpr cl_ulong kFlagsProperty = 0x1293;              // CL_COMMAND_BUFFER_FLAGS_KHR
constexpr cl_ulong kSimultaneousUse = 1 << 0;

template <typename Function>
void find_function(const Runtime& run, const char* name, Function& pointer) {
  void* address = run.cl.clGetExtensionFunctionAddressForPlatform(run.found.platform, name);
  pointer = reinterpret_cast<Function>(address);
}

bool find_functions(const Runtime& run, RecordingApi& api) {
  if (!run.found.info.command_buffer || run.cl.clGetExtensionFunctionAddressForPlatform == nullptr) return false;
  find_function(run, "clCreateCommandBufferKHR", api.create);
  find_function(run, "clFinalizeCommandBufferKHR", api.finalize);
  find_function(run, "clReleaseCommandBufferKHR", api.release);
  find_function(run, "clEnqueueCommandBufferKHR", api.enqueue);
  find_function(run, "clCommandNDRangeKernelKHR", api.launch);
  return api.create && api.finalize && api.release && api.enqueue && api.launch;
}

bool may_overlap(const Runtime& run) {
  cl_ulong capabilities = 0;
  const cl_int code =
      run.cl.clGetDeviceInfo(run.found.device, kCapabilities, sizeof(capabilities), &capabilities, nullptr);
  return code == CL_SUCCESS && (capabilities & kCapabilitySimultaneousUse) != 0;
}

std::string refused(const char* call, cl_int code) {
  return fmt::format("the driver does not record this program ({}: {}), its launches are queued one by one", call,
                     code_name(code));
}

}  // namespace

std::optional<Recording> Recording::make(const Runtime& run, std::span<const RecordedLaunch> launches,
                                         std::string& refusal) {
  Recording recording;
  if (!find_functions(run, recording.api_)) {
    refusal = "the driver has no cl_khr_command_buffer, launches are queued one by one";
    return {};
  }
  const cl_ulong overlapping[] = {kFlagsProperty, kSimultaneousUse, 0};
  const cl_command_queue queue = run.plain_queue.get();
  cl_int code = CL_SUCCESS;
  recording.buffer_ = Handle<CommandBuffer>(
      recording.api_.create(1, &queue, may_overlap(run) ? overlapping : nullptr, &code), recording.api_.release);
  if (code != CL_SUCCESS) return refusal = refused("clCreateCommandBufferKHR", code), std::nullopt;
  for (const RecordedLaunch& launch : launches) {
    code = recording.api_.launch(recording.buffer_.get(), nullptr, nullptr, launch.kernel, launch.dims, nullptr,
                                 launch.global, launch.local, 0, nullptr, nullptr, nullptr);
    if (code != CL_SUCCESS) return refusal = refused("clCommandNDRangeKernelKHR", code), std::nullopt;
  }
  code = recording.api_.finalize(recording.buffer_.get());
  if (code != CL_SUCCESS) return refusal = refused("clFinalizeCommandBufferKHR", code), std::nullopt;
  return recording;
}

bool Recording::replay(cl_command_queue queue) {
  const cl_int code = api_.enqueue(1, &queue, buffer_.get(), 0, nullptr, nullptr);
  if (code == CL_INVALID_OPERATION) return false;
  check("clEnqueueCommandBufferKHR", code);
  return true;
}

}  // namespace situ::opencl
