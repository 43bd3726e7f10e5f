// forward.cpp -- the OpenCL functions themselves: count, then call the real one.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "icd/counts.h"
#include "icd/pretend.h"

using namespace situ::icd;

// A function that returns a status; one that returns an object and a status through `code`; one that releases.
#define SITU_STATUS(function, parameters, ...)                             \
  cl_int CL_API_CALL function parameters {                                 \
    const Call call(k_##function);                                         \
    return call.failure() ? call.failure() : real().function(__VA_ARGS__); \
  }
#define SITU_OBJECT(type, function, parameters, ...) \
  type CL_API_CALL function parameters {             \
    const Call call(k_##function);                   \
    if (call.failure()) {                            \
      if (code != nullptr) *code = call.failure();   \
      return nullptr;                                \
    }                                                \
    ++totals().creations;                            \
    return real().function(__VA_ARGS__);             \
  }
#define SITU_RELEASE(function, type)         \
  cl_int CL_API_CALL function(type object) { \
    const Call call(k_##function, false);    \
    return real().function(object);          \
  }

namespace {

// --- cl_khr_command_buffer ------------------------------------------------------------------------------------------
using situ::opencl::CommandBuffer;

situ::opencl::RecordingApi real_recording;
struct Recorded {
  std::mutex mutex;
  std::map<CommandBuffer, int64_t> kernels;  // in each command buffer
} recorded;

CommandBuffer CL_API_CALL create_buffer(cl_uint queues, const cl_command_queue* queue, const cl_ulong* properties,
                                        cl_int* code) {
  const Call call(k_clCreateCommandBufferKHR);
  if (call.failure()) {
    if (code != nullptr) *code = call.failure();
    return nullptr;
  }
  ++totals().creations;
  return real_recording.create(queues, queue, properties, code);
}

cl_int CL_API_CALL finalize_buffer(CommandBuffer buffer) {
  const Call call(k_clFinalizeCommandBufferKHR);
  return call.failure() ? call.failure() : real_recording.finalize(buffer);
}

cl_int CL_API_CALL release_buffer(CommandBuffer buffer) {
  const Call call(k_clReleaseCommandBufferKHR, false);
  const std::lock_guard lock(recorded.mutex);
  recorded.kernels.erase(buffer);
  return real_recording.release(buffer);
}

cl_int CL_API_CALL enqueue_buffer(cl_uint queues, cl_command_queue* queue, CommandBuffer buffer, cl_uint waits,
                                  const cl_event* list, cl_event* event) {
  const Call call(k_clEnqueueCommandBufferKHR);
  const cl_int code =
      call.failure() ? call.failure() : real_recording.enqueue(queues, queue, buffer, waits, list, event);
  const std::lock_guard lock(recorded.mutex);
  if (code == CL_SUCCESS) totals().kernels += recorded.kernels[buffer];
  return code;
}

cl_int CL_API_CALL record_launch(CommandBuffer buffer, cl_command_queue queue, const cl_ulong* properties,
                                 cl_kernel kernel, cl_uint dims, const size_t* offset, const size_t* global,
                                 const size_t* local, cl_uint points, const cl_uint* list, cl_uint* point,
                                 void** handle) {
  const Call call(k_clCommandNDRangeKernelKHR);
  const cl_int code = call.failure() ? call.failure()
                                     : real_recording.launch(buffer, queue, properties, kernel, dims, offset, global,
                                                             local, points, list, point, handle);
  const std::lock_guard lock(recorded.mutex);
  if (code == CL_SUCCESS) ++recorded.kernels[buffer];
  return code;
}

// A compiler that kills the process: SITU_ICD_DIES_ON is a part of the source it dies on.
void die_if_asked(const char* source) {
  const char* part = std::getenv("SITU_ICD_DIES_ON");
  if (part != nullptr && std::strstr(source, part) != nullptr) std::raise(SIGKILL);
}

// Keeps the real function and answers with the counting one; null stays null.
template <typename F>
void* wrap(void* address, F& kept, F counting) {
  kept = reinterpret_cast<F>(address);
  return address != nullptr ? reinterpret_cast<void*>(counting) : nullptr;
}

void* counting_version(const char* name, void* address) {
  const auto is = [&](const char* other) { return std::strcmp(name, other) == 0; };
  if (is("clCreateCommandBufferKHR")) return wrap(address, real_recording.create, &create_buffer);
  if (is("clFinalizeCommandBufferKHR")) return wrap(address, real_recording.finalize, &finalize_buffer);
  if (is("clReleaseCommandBufferKHR")) return wrap(address, real_recording.release, &release_buffer);
  if (is("clEnqueueCommandBufferKHR")) return wrap(address, real_recording.enqueue, &enqueue_buffer);
  if (is("clCommandNDRangeKernelKHR")) return wrap(address, real_recording.launch, &record_launch);
  return qcom_function(name);  // or null: a function nobody counts must not be reachable
}

}  // namespace

extern "C" {

// --- platforms, devices, context, queues ----------------------------------------------------------------------------
SITU_STATUS(clGetPlatformIDs, (cl_uint entries, cl_platform_id* ids, cl_uint* count), entries, ids, count)
SITU_STATUS(clGetPlatformInfo, (cl_platform_id id, cl_platform_info what, size_t size, void* value, size_t* got), id,
            what, size, value, got)
SITU_STATUS(clGetDeviceIDs,
            (cl_platform_id id, cl_device_type type, cl_uint entries, cl_device_id* ids, cl_uint* count), id, type,
            entries, ids, count)
cl_int CL_API_CALL clGetDeviceInfo(cl_device_id id, cl_device_info what, size_t size, void* value, size_t* got) {
  const Call call(k_clGetDeviceInfo);
  if (call.failure()) return call.failure();
  if (!pretending() || what != CL_DEVICE_EXTENSIONS) return real().clGetDeviceInfo(id, what, size, value, got);
  std::string text(1 << 16, '\0');
  const cl_int code = real().clGetDeviceInfo(id, what, text.size(), text.data(), nullptr);
  text = text.c_str() + std::string(kPretended);
  if (got != nullptr) *got = text.size() + 1;
  if (value != nullptr && size > text.size()) std::memcpy(value, text.c_str(), text.size() + 1);
  return code;
}
SITU_OBJECT(cl_context, clCreateContext,
            (const cl_context_properties* properties, cl_uint count, const cl_device_id* devices,
             void(CL_CALLBACK* notify)(const char*, const void*, size_t, void*), void* user, cl_int* code),
            properties, count, devices, notify, user, code)
SITU_RELEASE(clReleaseContext, cl_context)
cl_command_queue CL_API_CALL clCreateCommandQueue(cl_context context, cl_device_id id,
                                                  cl_command_queue_properties properties, cl_int* code) {
  const Call call(k_clCreateCommandQueue);
  if (call.failure()) {
    if (code != nullptr) *code = call.failure();
    return nullptr;
  }
  ++totals().creations;
  if (const cl_command_queue queue = make_recordable(context, id, properties, code)) return queue;
  return real().clCreateCommandQueue(context, id, properties, code);
}

// Hints are kept for the test and taken out: not every driver below knows them.
cl_command_queue CL_API_CALL clCreateCommandQueueWithProperties(cl_context context, cl_device_id id,
                                                                const cl_queue_properties* list, cl_int* code) {
  const Call call(k_clCreateCommandQueueWithProperties);
  if (call.failure()) {
    if (code != nullptr) *code = call.failure();
    return nullptr;
  }
  ++totals().creations;
  cl_command_queue_properties properties = 0;
  for (; list != nullptr && *list != 0; list += 2) {
    if (list[0] == CL_QUEUE_PROPERTIES) properties = list[1];
    if (list[0] == situ::opencl::kQueuePriority) totals().priority = static_cast<int64_t>(list[1]);
    if (list[0] == situ::opencl::kQueueThrottle) totals().throttle = static_cast<int64_t>(list[1]);
  }
  return real().clCreateCommandQueue(context, id, properties, code);
}

cl_int CL_API_CALL clReleaseCommandQueue(cl_command_queue queue) {
  const Call call(k_clReleaseCommandQueue, false);
  forget_queue(queue);
  return real().clReleaseCommandQueue(queue);
}

// --- memory, programs, kernels --------------------------------------------------------------------------------------
SITU_OBJECT(cl_mem, clCreateBuffer, (cl_context context, cl_mem_flags flags, size_t size, void* host, cl_int* code),
            context, flags, size, host, code)
SITU_OBJECT(cl_mem, clCreateSubBuffer,
            (cl_mem buffer, cl_mem_flags flags, cl_buffer_create_type type, const void* info, cl_int* code), buffer,
            flags, type, info, code)
SITU_OBJECT(cl_mem, clCreateImage,
            (cl_context context, cl_mem_flags flags, const cl_image_format* format, const cl_image_desc* what,
             void* host, cl_int* code),
            context, flags, format, what, host, code)
SITU_RELEASE(clReleaseMemObject, cl_mem)
cl_program CL_API_CALL clCreateProgramWithSource(cl_context context, cl_uint count, const char** strings,
                                                 const size_t* lengths, cl_int* code) {
  const Call call(k_clCreateProgramWithSource);
  for (cl_uint i = 0; i < count; ++i) die_if_asked(strings[i]);
  if (call.failure()) {
    if (code != nullptr) *code = call.failure();
    return nullptr;
  }
  ++totals().creations;
  return real().clCreateProgramWithSource(context, count, strings, lengths, code);
}
SITU_OBJECT(cl_program, clCreateProgramWithBinary,
            (cl_context context, cl_uint count, const cl_device_id* devices, const size_t* lengths,
             const unsigned char** binaries, cl_int* status, cl_int* code),
            context, count, devices, lengths, binaries, status, code)
SITU_STATUS(clBuildProgram,
            (cl_program program, cl_uint count, const cl_device_id* devices, const char* options,
             void(CL_CALLBACK* notify)(cl_program, void*), void* user),
            program, count, devices, options, notify, user)
cl_int CL_API_CALL clGetProgramInfo(cl_program program, cl_program_info what, size_t size, void* value, size_t* got) {
  const Call call(k_clGetProgramInfo);
  if (call.failure()) return call.failure();
  const char* milliseconds = std::getenv("SITU_ICD_SLOW_BINARIES_MS");  // drivers that build once more for this
  if (milliseconds != nullptr && what == CL_PROGRAM_BINARIES)
    std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(milliseconds)));
  return real().clGetProgramInfo(program, what, size, value, got);
}
SITU_STATUS(clGetProgramBuildInfo,
            (cl_program program, cl_device_id id, cl_program_build_info what, size_t size, void* value, size_t* got),
            program, id, what, size, value, got)
SITU_RELEASE(clReleaseProgram, cl_program)
SITU_OBJECT(cl_kernel, clCreateKernel, (cl_program program, const char* name, cl_int* code), program, name, code)
SITU_RELEASE(clReleaseKernel, cl_kernel)
SITU_STATUS(clGetKernelInfo, (cl_kernel kernel, cl_kernel_info what, size_t size, void* value, size_t* got), kernel,
            what, size, value, got)
SITU_STATUS(clSetKernelArg, (cl_kernel kernel, cl_uint index, size_t size, const void* value), kernel, index, size,
            value)
SITU_STATUS(clGetKernelWorkGroupInfo,
            (cl_kernel kernel, cl_device_id id, cl_kernel_work_group_info what, size_t size, void* value, size_t* got),
            kernel, id, what, size, value, got)

// --- the queue ------------------------------------------------------------------------------------------------------
cl_int CL_API_CALL clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dims, const size_t* offset,
                                          const size_t* global, const size_t* local, cl_uint waits,
                                          const cl_event* wait_list, cl_event* event) {
  const Call call(k_clEnqueueNDRangeKernel);
  if (call.failure()) return call.failure();
  if (kept(queue, kernel, dims, global, local)) return CL_SUCCESS;
  ++totals().kernels;
  return real().clEnqueueNDRangeKernel(queue, kernel, dims, offset, global, local, waits, wait_list, event);
}

cl_int CL_API_CALL clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset,
                                       size_t size, void* data, cl_uint waits, const cl_event* wait_list,
                                       cl_event* event) {
  const Call call(k_clEnqueueReadBuffer);
  if (call.failure()) return call.failure();
  totals().bytes_out += static_cast<int64_t>(size);
  totals().waits += blocking ? 1 : 0;
  return real().clEnqueueReadBuffer(queue, buffer, blocking, offset, size, data, waits, wait_list, event);
}

cl_int CL_API_CALL clEnqueueWriteBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset,
                                        size_t size, const void* data, cl_uint waits, const cl_event* wait_list,
                                        cl_event* event) {
  const Call call(k_clEnqueueWriteBuffer);
  if (call.failure()) return call.failure();
  totals().bytes_in += static_cast<int64_t>(size);
  totals().waits += blocking ? 1 : 0;
  return real().clEnqueueWriteBuffer(queue, buffer, blocking, offset, size, data, waits, wait_list, event);
}

void* CL_API_CALL clEnqueueMapBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, cl_map_flags flags,
                                     size_t offset, size_t size, cl_uint waits, const cl_event* wait_list,
                                     cl_event* event, cl_int* code) {
  const Call call(k_clEnqueueMapBuffer);
  if (call.failure()) {
    if (code != nullptr) *code = call.failure();
    return nullptr;
  }
  if (flags & CL_MAP_READ) totals().bytes_out += static_cast<int64_t>(size);
  if (flags & (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION)) totals().bytes_in += static_cast<int64_t>(size);
  totals().waits += blocking ? 1 : 0;
  return real().clEnqueueMapBuffer(queue, buffer, blocking, flags, offset, size, waits, wait_list, event, code);
}

SITU_STATUS(clEnqueueUnmapMemObject,
            (cl_command_queue queue, cl_mem buffer, void* data, cl_uint waits, const cl_event* list, cl_event* event),
            queue, buffer, data, waits, list, event)
SITU_STATUS(clEnqueueCopyBuffer,
            (cl_command_queue queue, cl_mem from, cl_mem to, size_t from_offset, size_t to_offset, size_t size,
             cl_uint waits, const cl_event* list, cl_event* event),
            queue, from, to, from_offset, to_offset, size, waits, list, event)
SITU_STATUS(clEnqueueFillBuffer,
            (cl_command_queue queue, cl_mem buffer, const void* pattern, size_t pattern_size, size_t offset,
             size_t size, cl_uint waits, const cl_event* list, cl_event* event),
            queue, buffer, pattern, pattern_size, offset, size, waits, list, event)
SITU_STATUS(clEnqueueMarkerWithWaitList, (cl_command_queue queue, cl_uint waits, const cl_event* list, cl_event* event),
            queue, waits, list, event)
SITU_STATUS(clEnqueueBarrierWithWaitList,
            (cl_command_queue queue, cl_uint waits, const cl_event* list, cl_event* event), queue, waits, list, event)
SITU_STATUS(clFlush, (cl_command_queue queue), queue)

cl_int CL_API_CALL clFinish(cl_command_queue queue) {
  const Call call(k_clFinish);
  ++totals().waits;
  return call.failure() ? call.failure() : real().clFinish(queue);
}

cl_int CL_API_CALL clWaitForEvents(cl_uint count, const cl_event* events) {
  const Call call(k_clWaitForEvents);
  ++totals().waits;
  return call.failure() ? call.failure() : real().clWaitForEvents(count, events);
}

// --- events ---------------------------------------------------------------------------------------------------------
SITU_STATUS(clSetEventCallback,
            (cl_event event, cl_int type, void(CL_CALLBACK* notify)(cl_event, cl_int, void*), void* user), event, type,
            notify, user)
SITU_STATUS(clGetEventInfo, (cl_event event, cl_event_info what, size_t size, void* value, size_t* got), event, what,
            size, value, got)
SITU_STATUS(clGetEventProfilingInfo, (cl_event event, cl_profiling_info what, size_t size, void* value, size_t* got),
            event, what, size, value, got)
SITU_RELEASE(clRetainEvent, cl_event)

// What a kernel took, asked of the driver itself when nobody else will look any more.
cl_int CL_API_CALL clReleaseEvent(cl_event event) {
  const Call call(k_clReleaseEvent, false);
  cl_command_type type = 0;
  cl_ulong start = 0, end = 0;
  real().clGetEventInfo(event, CL_EVENT_COMMAND_TYPE, sizeof(type), &type, nullptr);
  if (type == CL_COMMAND_NDRANGE_KERNEL &&
      real().clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof(start), &start, nullptr) == CL_SUCCESS &&
      real().clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof(end), &end, nullptr) == CL_SUCCESS)
    totals().kernel_ns += static_cast<int64_t>(end - start);
  return real().clReleaseEvent(event);
}

void* CL_API_CALL clGetExtensionFunctionAddressForPlatform(cl_platform_id id, const char* name) {
  const Call call(k_clGetExtensionFunctionAddressForPlatform);
  if (call.failure()) return nullptr;
  return counting_version(name, real().clGetExtensionFunctionAddressForPlatform(id, name));
}

}  // extern "C"
