// check.h -- every OpenCL error becomes an Error that names the call and the code, and says what to do about it.
#pragma once
#include <string>
#include <string_view>

#include "backend/opencl/cl_api.h"

namespace situ::opencl {

std::string code_name(cl_int code);  // "CL_OUT_OF_RESOURCES"; a number where there is no name

[[noreturn]] void fail_call(std::string_view call, cl_int code);

inline void check(std::string_view call, cl_int code) {
  if (code != CL_SUCCESS) [[unlikely]]
    fail_call(call, code);
}

}  // namespace situ::opencl
