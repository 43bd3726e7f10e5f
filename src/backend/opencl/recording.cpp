// recording.cpp -- the five calls of cl_khr_command_buffer, the four of cl_qcom_recordable_queues.
#include "backend/opencl/recording.h"

#include <dlfcn.h>

namespace situ::opencl {
namespace {

constexpr cl_device_info kCapabilities = 0x12A9;         // CL_DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR
constexpr cl_ulong kCapabilitySimultaneousUse = 1 << 2;  // may be replayed while an earlier replay is pending
constexpr cl_ulong kFlagsProperty = 0x1293;              // CL_COMMAND_BUFFER_FLAGS_KHR
constexpr cl_ulong kSimultaneousUse = 1 << 0;

// Some drivers export the functions of an extension without naming them to the loader.
template <typename Function>
void find_function(const Runtime& run, const char* name, Function& pointer) {
  void* address = nullptr;
  if (run.cl.clGetExtensionFunctionAddressForPlatform != nullptr)
    address = run.cl.clGetExtensionFunctionAddressForPlatform(run.found.platform, name);
  if (address == nullptr) address = dlsym(run.cl.library, name);
  pointer = reinterpret_cast<Function>(address);
}

bool find_functions(const Runtime& run, RecordingApi& api) {
  if (!run.found.info.command_buffer) return false;
  find_function(run, "clCreateCommandBufferKHR", api.create);
  find_function(run, "clFinalizeCommandBufferKHR", api.finalize);
  find_function(run, "clReleaseCommandBufferKHR", api.release);
  find_function(run, "clEnqueueCommandBufferKHR", api.enqueue);
  find_function(run, "clCommandNDRangeKernelKHR", api.launch);
  return api.create && api.finalize && api.release && api.enqueue && api.launch;
}

bool find_functions(const Runtime& run, QcomApi& api) {
  if (!run.found.info.recordable_queue) return false;
  find_function(run, "clNewRecordingQCOM", api.create);
  find_function(run, "clEndRecordingQCOM", api.end);
  find_function(run, "clReleaseRecordingQCOM", api.release);
  find_function(run, "clEnqueueRecordingQCOM", api.enqueue);
  return api.create && api.end && api.release && api.enqueue;
}

bool may_overlap(const Runtime& run) {
  cl_ulong capabilities = 0;
  const cl_int code =
      run.cl.clGetDeviceInfo(run.found.device, kCapabilities, sizeof(capabilities), &capabilities, nullptr);
  return code == CL_SUCCESS && (capabilities & kCapabilitySimultaneousUse) != 0;
}

// False, and why, if the call failed.
bool accepted(const char* call, cl_int code, std::string& refusal) {
  if (code == CL_SUCCESS) return true;
  refusal = fmt::format("the driver does not record this program ({}: {}), its launches are queued one by one", call,
                        code_name(code));
  return false;
}

bool lacks(const char* extension, std::string& refusal) {
  refusal = fmt::format("the driver has no {}, launches are queued one by one", extension);
  return false;
}

}  // namespace

std::optional<Recording> Recording::make(Runtime& run, Recorder recorder, std::span<const RecordedLaunch> launches,
                                         std::string& refusal) {
  std::optional<Recording> recording(std::in_place);
  const bool done = recorder == Recorder::qcom ? recording->record_qcom(run, launches, refusal)
                                               : recording->record_khr(run, launches, refusal);
  if (!done) recording.reset();
  return recording;
}

bool Recording::record_khr(const Runtime& run, std::span<const RecordedLaunch> launches, std::string& refusal) {
  if (!find_functions(run, khr_)) return lacks("cl_khr_command_buffer", refusal);
  const cl_ulong overlapping[] = {kFlagsProperty, kSimultaneousUse, 0};
  const cl_command_queue queue = run.plain_queue.get();
  cl_int code = CL_SUCCESS;
  buffer_ =
      Handle<CommandBuffer>(khr_.create(1, &queue, may_overlap(run) ? overlapping : nullptr, &code), khr_.release);
  if (!accepted("clCreateCommandBufferKHR", code, refusal)) return false;
  for (const RecordedLaunch& launch : launches) {
    code = khr_.launch(buffer_.get(), nullptr, nullptr, launch.kernel, launch.dims, nullptr, launch.global,
                       launch.local, 0, nullptr, nullptr, nullptr);
    if (!accepted("clCommandNDRangeKernelKHR", code, refusal)) return false;
  }
  return accepted("clFinalizeCommandBufferKHR", khr_.finalize(buffer_.get()), refusal);
}

bool Recording::record_qcom(Runtime& run, std::span<const RecordedLaunch> launches, std::string& refusal) {
  if (!find_functions(run, qcom_)) return lacks("cl_qcom_recordable_queues", refusal);
  if (!accepted("clCreateCommandQueue", run.make_recordable_queue(), refusal)) return false;
  cl_int code = CL_SUCCESS;
  recording_ = Handle<QcomRecording>(qcom_.create(run.recordable_queue.get(), &code), qcom_.release);
  if (!accepted("clNewRecordingQCOM", code, refusal)) return false;
  for (const RecordedLaunch& launch : launches) {
    code = run.cl.clEnqueueNDRangeKernel(run.recordable_queue.get(), launch.kernel, launch.dims, nullptr, launch.global,
                                         launch.local, 0, nullptr, nullptr);
    if (code != CL_SUCCESS) break;
  }
  const cl_int ended = qcom_.end(recording_.get());  // also after a refusal: the queue must not stay in recording
  return accepted("clEnqueueNDRangeKernel", code, refusal) && accepted("clEndRecordingQCOM", ended, refusal);
}

bool Recording::replay(cl_command_queue queue) {
  const bool khr = static_cast<bool>(buffer_);
  const cl_int code =
      khr ? khr_.enqueue(1, &queue, buffer_.get(), 0, nullptr, nullptr)
          : qcom_.enqueue(queue, recording_.get(), 0, nullptr, 0, nullptr, 0, nullptr, 0, nullptr, 0, nullptr, nullptr);
  if (code == CL_INVALID_OPERATION) return false;
  check(khr ? "clEnqueueCommandBufferKHR" : "clEnqueueRecordingQCOM", code);
  return true;
}

}  // namespace situ::opencl
