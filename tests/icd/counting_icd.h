// counting_icd.h -- the tests' view of libsitu_counting_icd.so, an OpenCL library that counts and forwards every call.
//
//     const CountingIcd icd(SITU_TEST_ICD);
//     const Environment through("SITU_OPENCL_LIBRARY", SITU_TEST_ICD);   // devices made from now on go through it
//     .. make the device, warm up ..
//     icd.reset();
//     .. steps ..
//     EXPECT_EQ(icd.calls("clFinish"), 0);
//     EXPECT_EQ(icd.total("bytes_in"), ledger.bytes_in);
//
// The real library is that of SITU_REAL_OPENCL, else libOpenCL.so.1.
#pragma once
#include <dlfcn.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace situ::test {

class CountingIcd {
 public:
  explicit CountingIcd(const char* path) : library_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) throw std::runtime_error(dlerror());
    find("situ_icd_reset", reset_);
    find("situ_icd_calls", calls_);
    find("situ_icd_total", total_);
    find("situ_icd_depth", depth_);
    find("situ_icd_fail", fail_);
    find("situ_icd_pretend", pretend_);
    reset_();
  }
  ~CountingIcd() { reset_(), pretend_(false); }  // the library itself stays: devices may still hold its functions
  CountingIcd(const CountingIcd&) = delete;
  CountingIcd& operator=(const CountingIcd&) = delete;

  void reset() const { reset_(); }  // counts to 0, no injected failure
  // How often a function was called; -1 for one the library does not know.
  int64_t calls(const std::string& function) const { return calls_(function.c_str()); }
  // kernels    enqueued, also by replaying a command buffer
  // bytes_in   written, or mapped for writing        bytes_out  read, or mapped for reading
  // waits      clFinish, clWaitForEvents, blocking reads, writes and maps
  // creations  buffers, programs, kernels, queues, contexts, command buffers
  // kernel_ns  from start to end, of profiled kernels whose event was released
  // calls      of any function
  // priority, throttle  of the last queue made with hints: CL_QUEUE_PRIORITY_KHR and CL_QUEUE_THROTTLE_KHR
  int64_t total(const std::string& what) const { return total_(what.c_str()); }
  // > 0 while the calling thread is inside a forwarded call: what is allocated then is the driver's.
  int (*depth() const)() { return depth_; }
  // The nth call from now (1: the next) of this function, or of any for "*", fails with this code. Releasing never
  // fails.
  void fail(const std::string& function, int64_t nth, int code) const { fail_(function.c_str(), nth, code); }
  // Devices opened from now on have cl_qcom_recordable_queues, cl_khr_priority_hints and cl_khr_throttle_hints.
  void pretend(bool yes) const { pretend_(yes); }

 private:
  template <typename Function>
  void find(const char* name, Function& pointer) {
    pointer = reinterpret_cast<Function>(dlsym(library_, name));
    if (pointer == nullptr) throw std::runtime_error(std::string("the counting library lacks ") + name);
  }
  void* library_ = nullptr;
  void (*reset_)() = nullptr;
  int64_t (*calls_)(const char*) = nullptr;
  int64_t (*total_)(const char*) = nullptr;
  int (*depth_)() = nullptr;
  void (*fail_)(const char*, int64_t, int) = nullptr;
  void (*pretend_)(bool) = nullptr;
};

}  // namespace situ::test
