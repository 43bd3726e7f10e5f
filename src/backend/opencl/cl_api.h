// cl_api.h -- the OpenCL functions situ calls, as a table of pointers, and the only place that includes OpenCL's
// headers.
//
// situ is not linked against OpenCL: loader.cpp opens the library at run time and fills the table, so one binary runs
// with and without a driver. Everything needed is OpenCL 1.2; what a driver may lack is optional and null then.
#pragma once
#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 300
#endif
#ifndef CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS  // clCreateCommandQueue: its successor is missing from 1.2 drivers
#endif
#include <CL/cl.h>

namespace situ::opencl {

#define SITU_CL_REQUIRED(X)      \
  X(clGetPlatformIDs)            \
  X(clGetPlatformInfo)           \
  X(clGetDeviceIDs)              \
  X(clGetDeviceInfo)             \
  X(clCreateContext)             \
  X(clReleaseContext)            \
  X(clCreateCommandQueue)        \
  X(clReleaseCommandQueue)       \
  X(clCreateBuffer)              \
  X(clCreateSubBuffer)           \
  X(clCreateImage)               \
  X(clReleaseMemObject)          \
  X(clCreateProgramWithSource)   \
  X(clCreateProgramWithBinary)   \
  X(clBuildProgram)              \
  X(clGetProgramInfo)            \
  X(clGetProgramBuildInfo)       \
  X(clReleaseProgram)            \
  X(clCreateKernel)              \
  X(clReleaseKernel)             \
  X(clGetKernelInfo)             \
  X(clSetKernelArg)              \
  X(clGetKernelWorkGroupInfo)    \
  X(clEnqueueNDRangeKernel)      \
  X(clEnqueueReadBuffer)         \
  X(clEnqueueWriteBuffer)        \
  X(clEnqueueFillBuffer)         \
  X(clEnqueueMapBuffer)          \
  X(clEnqueueUnmapMemObject)     \
  X(clEnqueueMarkerWithWaitList) \
  X(clFlush)                     \
  X(clFinish)                    \
  X(clSetEventCallback)          \
  X(clGetEventProfilingInfo)     \
  X(clRetainEvent)               \
  X(clWaitForEvents)             \
  X(clReleaseEvent)

#define SITU_CL_OPTIONAL(X)                   \
  X(clGetExtensionFunctionAddressForPlatform) \
  X(clCreateCommandQueueWithProperties)

struct Api {
#define SITU_CL_MEMBER(function) decltype(&::function) function = nullptr;
  SITU_CL_REQUIRED(SITU_CL_MEMBER)
  SITU_CL_OPTIONAL(SITU_CL_MEMBER)
#undef SITU_CL_MEMBER
  void* library = nullptr;  // for extensions whose functions are only found by name
};

// cl_khr_command_buffer, as far as it is used. Declared here because its headers changed between versions; these five
// calls did not.
using CommandBuffer = struct _cl_command_buffer_khr*;

struct RecordingApi {
  CommandBuffer(CL_API_CALL* create)(cl_uint, const cl_command_queue*, const cl_ulong*, cl_int*) = nullptr;
  cl_int(CL_API_CALL* finalize)(CommandBuffer) = nullptr;
  cl_int(CL_API_CALL* release)(CommandBuffer) = nullptr;
  cl_int(CL_API_CALL* enqueue)(cl_uint, cl_command_queue*, CommandBuffer, cl_uint, const cl_event*,
                               cl_event*) = nullptr;
  cl_int(CL_API_CALL* launch)(CommandBuffer, cl_command_queue, const cl_ulong*, cl_kernel, cl_uint, const size_t*,
                              const size_t*, const size_t*, cl_uint, const cl_uint*, cl_uint*, void**) = nullptr;
};

// cl_qcom_recordable_queues, as far as it is used: what is enqueued on a recordable queue between new and end is kept
// and not run; enqueueing the recording on an ordinary queue runs it. The four lists replace arguments and sizes of
// single launches and stay empty here: what changes from step to step is in the control block.
using QcomRecording = struct _cl_recording_qcom*;
inline constexpr cl_command_queue_properties kQueueRecordableQcom = cl_command_queue_properties{1} << 30;

struct QcomApi {
  QcomRecording(CL_API_CALL* create)(cl_command_queue, cl_int*) = nullptr;
  cl_int(CL_API_CALL* end)(QcomRecording) = nullptr;
  cl_int(CL_API_CALL* release)(QcomRecording) = nullptr;
  cl_int(CL_API_CALL* enqueue)(cl_command_queue, QcomRecording, size_t arguments, const void*, size_t offsets,
                               const void*, size_t globals, const void*, size_t locals, const void*, cl_uint waits,
                               const cl_event*, cl_event*) = nullptr;
};

// cl_khr_priority_hints and cl_khr_throttle_hints: properties of a queue and their values.
inline constexpr cl_queue_properties kQueuePriority = 0x1096, kQueueThrottle = 0x1097;
inline constexpr cl_queue_properties kHintHigh = 1 << 0, kHintMedium = 1 << 1, kHintLow = 1 << 2;

// Owns one OpenCL object and releases it at the end of its scope.
template <typename T>
class Handle {
 public:
  using Release = cl_int(CL_API_CALL*)(T);
  Handle() = default;
  Handle(T object, Release release) : object_(object), release_(release) {}
  Handle(Handle&& other) noexcept : object_(other.object_), release_(other.release_) { other.object_ = nullptr; }
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      reset();
      object_ = other.object_;
      release_ = other.release_;
      other.object_ = nullptr;
    }
    return *this;
  }
  ~Handle() { reset(); }

  T get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }
  void reset() {
    if (object_ != nullptr) release_(object_);
    object_ = nullptr;
  }

 private:
  T object_ = nullptr;
  Release release_ = nullptr;
};

}  // namespace situ::opencl
