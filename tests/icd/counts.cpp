// counts.cpp -- the counters and the functions through which tests read them.
#include "icd/counts.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace situ::icd {
namespace {

constexpr const char* kNames[] = {
#define SITU_ICD_NAME(function) #function,
    SITU_CL_REQUIRED(SITU_ICD_NAME) SITU_CL_OPTIONAL(SITU_ICD_NAME) SITU_ICD_EXTRA(SITU_ICD_NAME)
        SITU_ICD_RECORDING(SITU_ICD_NAME) SITU_ICD_QCOM(SITU_ICD_NAME)
#undef SITU_ICD_NAME
};

std::atomic<int64_t> calls[kFunctions];
std::atomic<int64_t> all_calls{0};
thread_local int driver_depth = 0;

constexpr int kAnyFunction = -1;
struct Injection {
  std::atomic<int> function{kAnyFunction};
  std::atomic<int64_t> left{0};  // 0: none; 1: the next matching call fails
  std::atomic<int> code{0};
} injection;

int function_named(const char* name) {
  for (int i = 0; i < kFunctions; ++i)
    if (std::strcmp(kNames[i], name) == 0) return i;
  return kAnyFunction;
}

cl_int injected_failure(Function function) {
  const int wanted = injection.function;
  if (injection.left <= 0 || (wanted != kAnyFunction && wanted != function)) return CL_SUCCESS;
  return --injection.left == 0 ? injection.code.load() : CL_SUCCESS;
}

Real open_real() {
  const char* wanted = std::getenv("SITU_REAL_OPENCL");
  void* library = dlopen(wanted != nullptr ? wanted : "libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "counting library: %s\n", dlerror());
    std::abort();
  }
  Real found;
#define SITU_ICD_LOAD(function) found.function = reinterpret_cast<decltype(found.function)>(dlsym(library, #function));
  SITU_CL_REQUIRED(SITU_ICD_LOAD)
  SITU_CL_OPTIONAL(SITU_ICD_LOAD)
  SITU_ICD_EXTRA(SITU_ICD_LOAD)
#undef SITU_ICD_LOAD
  return found;
}

}  // namespace

const Real& real() {
  static const Real functions = open_real();
  return functions;
}

Totals& totals() {
  static Totals all;
  return all;
}

std::atomic<bool>& pretending() {
  static std::atomic<bool> yes{false};
  return yes;
}

Call::Call(Function function, bool may_fail) {
  ++driver_depth;
  ++calls[function];
  ++all_calls;
  if (may_fail) failure_ = injected_failure(function);
}

Call::~Call() { --driver_depth; }

}  // namespace situ::icd

using namespace situ::icd;

extern "C" {
void situ_icd_reset() {
  for (auto& count : calls) count = 0;
  all_calls = 0;
  injection.left = 0;
  Totals& all = totals();
  all.kernels = all.bytes_in = all.bytes_out = all.waits = all.creations = all.kernel_ns = 0;
}

int64_t situ_icd_calls(const char* name) {
  const int function = function_named(name);
  return function == kAnyFunction ? -1 : calls[function].load();
}

int64_t situ_icd_total(const char* what) {
  const Totals& all = totals();
  if (std::strcmp(what, "kernels") == 0) return all.kernels;
  if (std::strcmp(what, "bytes_in") == 0) return all.bytes_in;
  if (std::strcmp(what, "bytes_out") == 0) return all.bytes_out;
  if (std::strcmp(what, "waits") == 0) return all.waits;
  if (std::strcmp(what, "creations") == 0) return all.creations;
  if (std::strcmp(what, "kernel_ns") == 0) return all.kernel_ns;
  if (std::strcmp(what, "calls") == 0) return all_calls;
  if (std::strcmp(what, "priority") == 0) return all.priority;
  if (std::strcmp(what, "throttle") == 0) return all.throttle;
  return -1;
}

void situ_icd_pretend(bool yes) { pretending() = yes; }

int situ_icd_depth() { return driver_depth; }

void situ_icd_fail(const char* name, int64_t nth, int code) {
  injection.function = function_named(name);
  injection.code = code;
  injection.left = nth;
}
}
