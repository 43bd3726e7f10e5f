// counts.h -- inside the counting library: the real functions, the counters, and the scope every forwarded call opens.
#pragma once
#include <atomic>
#include <cstdint>

#include "backend/opencl/cl_api.h"

// Functions situ does not call today, forwarded so that a change which starts to use one is seen.
#define SITU_ICD_EXTRA(X) \
  X(clGetEventInfo)       \
  X(clEnqueueCopyBuffer)  \
  X(clEnqueueBarrierWithWaitList)
#define SITU_ICD_RECORDING(X)   \
  X(clCreateCommandBufferKHR)   \
  X(clFinalizeCommandBufferKHR) \
  X(clReleaseCommandBufferKHR)  \
  X(clEnqueueCommandBufferKHR)  \
  X(clCommandNDRangeKernelKHR)
#define SITU_ICD_QCOM(X)    \
  X(clNewRecordingQCOM)     \
  X(clEndRecordingQCOM)     \
  X(clReleaseRecordingQCOM) \
  X(clEnqueueRecordingQCOM)

namespace situ::icd {

enum Function : int {
#define SITU_ICD_NAME(function) k_##function,
  SITU_CL_REQUIRED(SITU_ICD_NAME) SITU_CL_OPTIONAL(SITU_ICD_NAME) SITU_ICD_EXTRA(SITU_ICD_NAME)
      SITU_ICD_RECORDING(SITU_ICD_NAME) SITU_ICD_QCOM(SITU_ICD_NAME)
#undef SITU_ICD_NAME
          kFunctions
};

struct Real : opencl::Api {
#define SITU_ICD_MEMBER(function) decltype(&::function) function = nullptr;
  SITU_ICD_EXTRA(SITU_ICD_MEMBER)
#undef SITU_ICD_MEMBER
};
const Real& real();  // opened at the first call

struct Totals {
  std::atomic<int64_t> kernels{0}, bytes_in{0}, bytes_out{0}, waits{0}, creations{0};
  std::atomic<int64_t> kernel_ns{0};              // of kernels whose event was released, as the driver timed them
  std::atomic<int64_t> priority{0}, throttle{0};  // of the last queue made with hints, as the driver was given them
};
Totals& totals();
// Extensions of phones are there: recordable queues and hints, played by pretend.cpp on whatever driver there is.
std::atomic<bool>& pretending();

// Counts the call and marks this thread as inside the driver until the end of the scope.
class Call {
 public:
  explicit Call(Function function, bool may_fail = true);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  cl_int failure() const { return failure_; }  // CL_SUCCESS: forward

 private:
  cl_int failure_ = CL_SUCCESS;
};

}  // namespace situ::icd
