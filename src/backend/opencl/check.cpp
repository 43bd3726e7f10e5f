// check.cpp -- the names of OpenCL's error codes, and the fix each suggests.
#include "backend/opencl/check.h"

#include "base/error.h"

namespace situ::opencl {
namespace {

struct CodeName {
  cl_int code;
  const char* name;
};

#define SITU_CODE(code) \
  { code, #code }
constexpr CodeName kNames[] = {
    SITU_CODE(CL_DEVICE_NOT_FOUND),
    SITU_CODE(CL_DEVICE_NOT_AVAILABLE),
    SITU_CODE(CL_COMPILER_NOT_AVAILABLE),
    SITU_CODE(CL_MEM_OBJECT_ALLOCATION_FAILURE),
    SITU_CODE(CL_OUT_OF_RESOURCES),
    SITU_CODE(CL_OUT_OF_HOST_MEMORY),
    SITU_CODE(CL_PROFILING_INFO_NOT_AVAILABLE),
    SITU_CODE(CL_BUILD_PROGRAM_FAILURE),
    SITU_CODE(CL_MAP_FAILURE),
    SITU_CODE(CL_MISALIGNED_SUB_BUFFER_OFFSET),
    SITU_CODE(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST),
    SITU_CODE(CL_COMPILE_PROGRAM_FAILURE),
    SITU_CODE(CL_LINKER_NOT_AVAILABLE),
    SITU_CODE(CL_LINK_PROGRAM_FAILURE),
    SITU_CODE(CL_KERNEL_ARG_INFO_NOT_AVAILABLE),
    SITU_CODE(CL_INVALID_VALUE),
    SITU_CODE(CL_INVALID_DEVICE_TYPE),
    SITU_CODE(CL_INVALID_PLATFORM),
    SITU_CODE(CL_INVALID_DEVICE),
    SITU_CODE(CL_INVALID_CONTEXT),
    SITU_CODE(CL_INVALID_QUEUE_PROPERTIES),
    SITU_CODE(CL_INVALID_COMMAND_QUEUE),
    SITU_CODE(CL_INVALID_HOST_PTR),
    SITU_CODE(CL_INVALID_MEM_OBJECT),
    SITU_CODE(CL_INVALID_BINARY),
    SITU_CODE(CL_INVALID_BUILD_OPTIONS),
    SITU_CODE(CL_INVALID_PROGRAM),
    SITU_CODE(CL_INVALID_PROGRAM_EXECUTABLE),
    SITU_CODE(CL_INVALID_KERNEL_NAME),
    SITU_CODE(CL_INVALID_KERNEL_DEFINITION),
    SITU_CODE(CL_INVALID_KERNEL),
    SITU_CODE(CL_INVALID_ARG_INDEX),
    SITU_CODE(CL_INVALID_ARG_VALUE),
    SITU_CODE(CL_INVALID_ARG_SIZE),
    SITU_CODE(CL_INVALID_KERNEL_ARGS),
    SITU_CODE(CL_INVALID_WORK_DIMENSION),
    SITU_CODE(CL_INVALID_WORK_GROUP_SIZE),
    SITU_CODE(CL_INVALID_WORK_ITEM_SIZE),
    SITU_CODE(CL_INVALID_GLOBAL_OFFSET),
    SITU_CODE(CL_INVALID_EVENT_WAIT_LIST),
    SITU_CODE(CL_INVALID_EVENT),
    SITU_CODE(CL_INVALID_OPERATION),
    SITU_CODE(CL_INVALID_BUFFER_SIZE),
    SITU_CODE(CL_INVALID_GLOBAL_WORK_SIZE),
    SITU_CODE(CL_INVALID_PROPERTY),
    {-1001, "CL_PLATFORM_NOT_FOUND_KHR"},
    {-1138, "CL_INVALID_COMMAND_BUFFER_KHR"},
    {-1139, "CL_INVALID_SYNC_POINT_WAIT_LIST_KHR"},
    {-1140, "CL_INCOMPATIBLE_COMMAND_QUEUE_KHR"},
};
#undef SITU_CODE

std::string_view advice(cl_int code) {
  switch (code) {
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_HOST_MEMORY:
      return "memory ran out, use a smaller batch or free memory";
    case CL_OUT_OF_RESOURCES:
      return "the driver lacks memory or gave up on a kernel, use a smaller batch or another device";
    case CL_DEVICE_NOT_AVAILABLE:
      return "the device is gone or taken, choose another one (situ devices)";
    default:
      return "the driver refused the call, choose another device (situ devices) or update the driver";
  }
}

}  // namespace

std::string code_name(cl_int code) {
  for (const CodeName& entry : kNames)
    if (entry.code == code) return entry.name;
  return fmt::format("OpenCL error {}", code);
}

void fail_call(std::string_view call, cl_int code) {
  fail_environment("{} failed with {}: {}", call, code_name(code), advice(code));
}

}  // namespace situ::opencl
