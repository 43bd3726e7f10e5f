// loader.cpp -- dlopen, and one dlsym for each function of cl_api.h.
#include "backend/opencl/loader.h"

#include <dlfcn.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"

namespace situ::opencl {
namespace {

const std::vector<std::string>& usual_places() {
  static const std::vector<std::string> places = {
      "libOpenCL.so.1",
      "libOpenCL.so",
      // Android: Adreno and most others, Mali (OpenCL lives in the OpenGL driver), Pixel, cars; 32-bit twins last.
      "/vendor/lib64/libOpenCL.so",
      "/system/vendor/lib64/libOpenCL.so",
      "/system/lib64/libOpenCL.so",
      "/vendor/lib64/egl/libGLES_mali.so",
      "/system/vendor/lib64/egl/libGLES_mali.so",
      "libOpenCL-pixel.so",
      "libOpenCL-car.so",
      "/vendor/lib/libOpenCL.so",
      "/system/vendor/lib/libOpenCL.so",
      "/system/lib/libOpenCL.so",
      "/vendor/lib/egl/libGLES_mali.so",
      "/system/vendor/lib/egl/libGLES_mali.so",
  };
  return places;
}

std::string last_error() {
  const char* text = dlerror();
  return text != nullptr ? text : "unknown reason";
}

template <typename Function>
void find_function(void* library, const char* name, Function& pointer) {
  pointer = reinterpret_cast<Function>(dlsym(library, name));
}

// The first required function the library lacks, or null.
const char* fill(void* library, Api& api) {
  const char* missing = nullptr;
#define SITU_CL_LOAD(function)                     \
  find_function(library, #function, api.function); \
  if (api.function == nullptr && missing == nullptr) missing = #function;
  SITU_CL_REQUIRED(SITU_CL_LOAD)
#undef SITU_CL_LOAD
#define SITU_CL_LOAD(function) find_function(library, #function, api.function);
  SITU_CL_OPTIONAL(SITU_CL_LOAD)
#undef SITU_CL_LOAD
  return missing;
}

void* open_library(const std::string& wanted) {
  if (!wanted.empty()) {
    if (void* library = dlopen(wanted.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    fail_environment("the OpenCL library of SITU_OPENCL_LIBRARY cannot be opened ({}): correct or unset the variable",
                     last_error());
  }
  for (const std::string& place : usual_places())
    if (void* library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  fail_environment(
      "no OpenCL library was found: install ocl-icd-libopencl1 and a driver such as pocl-opencl-icd, "
      "or use the device cpu");
}

std::unique_ptr<Api> load(const std::string& wanted) {
  void* library = open_library(wanted);
  auto api = std::make_unique<Api>();
  api->library = library;
  if (const char* missing = fill(library, *api))
    fail_environment("the OpenCL library '{}' lacks {}: situ needs OpenCL 1.2 or later, install a newer driver",
                     wanted.empty() ? "libOpenCL" : wanted, missing);
  return api;
}

}  // namespace

const Api& load_opencl() {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<Api>> loaded;  // by what the environment asked for
  const char* variable = std::getenv("SITU_OPENCL_LIBRARY");
  const std::string wanted = variable != nullptr ? variable : "";
  const std::lock_guard lock(mutex);
  std::unique_ptr<Api>& api = loaded[wanted];
  if (!api) api = load(wanted);
  return *api;
}

bool opencl_installed() {
  try {
    load_opencl();
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace situ::opencl
