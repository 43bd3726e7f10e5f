#include "backend/opencl/pocl_waits.h"

#include <dlfcn.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <string_view>

#include "base/spin.h"
#include "base/thread_pool.h"

// A thread sanitizer follows the C library's functions, and other C libraries have other ones.
#if defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define SITU_OWN_WAITS 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SITU_OWN_WAITS 0
#endif
#endif
#ifndef SITU_OWN_WAITS
#define SITU_OWN_WAITS 1
#endif

namespace situ::opencl {
namespace {

std::atomic<double> spin_seconds = 0;
std::atomic<int64_t> spun = 0, slept = 0;

}  // namespace

PoclWaits pocl_waits() { return {spun.load(), slept.load()}; }

#if SITU_OWN_WAITS
namespace {

template <typename Function>
Function* of_c_library(const char* name) {
  // An unversioned lookup finds the oldest form, which is another structure than that of programs since glibc 2.3.2.
  void* found = dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2");
  if (found == nullptr) found = dlsym(RTLD_NEXT, name);
  return reinterpret_cast<Function*>(found);
}

// How often the conditions that share a place were signalled. Those who spin look here; a stranger's signal only makes
// them look at what they wait for.
std::atomic<uint32_t>& signals_of(const pthread_cond_t* condition) {
  static std::array<std::atomic<uint32_t>, 64> places;
  return places[(reinterpret_cast<uintptr_t>(condition) / sizeof(pthread_cond_t)) % places.size()];
}

// A thread of PoCL waits in one place, so what was found out last is asked for again.
bool is_pocl(const void* caller) {
  thread_local const void* last = nullptr;
  thread_local bool last_is_pocl = false;
  if (caller != last) {
    Dl_info info{};
    last = caller;
    last_is_pocl = dladdr(caller, &info) != 0 && info.dli_fname != nullptr &&
                   std::string_view(info.dli_fname).find("libpocl") != std::string_view::npos;
  }
  return last_is_pocl;
}

int sleep_until_signalled(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  static const auto wait = of_c_library<decltype(pthread_cond_wait)>("pthread_cond_wait");
  return wait(condition, mutex);
}

const void* library_of(const void* address) {
  Dl_info info{};
  return dladdr(address, &info) != 0 ? info.dli_fbase : nullptr;
}

}  // namespace

// A signal may be sent after the mutex was released: between a look at the count and falling asleep it would be lost.
// So spinning never ends in sleep: it returns, the caller looks at what it waits for, and sleeps at its next call.
int spin_until_signalled(pthread_cond_t* condition, pthread_mutex_t* mutex, double seconds) {
  thread_local const pthread_cond_t* spun_in_vain = nullptr;
  if (spun_in_vain == condition) {
    spun_in_vain = nullptr;
    slept.fetch_add(1, std::memory_order_relaxed);
    return sleep_until_signalled(condition, mutex);
  }
  const std::atomic<uint32_t>& signals = signals_of(condition);
  const uint32_t before = signals.load(std::memory_order_relaxed);
  if (const int code = pthread_mutex_unlock(mutex); code != 0) return code;
  if (spin_for(seconds, [&] { return signals.load(std::memory_order_acquire) != before; }))
    spun.fetch_add(1, std::memory_order_relaxed);
  else
    spun_in_vain = condition;
  return pthread_mutex_lock(mutex);
}

bool spin_in_pocl(double seconds) {
  // With one processor the thread that is waited for could not run meanwhile.
  spin_seconds = usable_cores().size() > 1 ? seconds : 0;
  return library_of(dlsym(RTLD_DEFAULT, "pthread_cond_wait")) == library_of(&spin_seconds);
}

#else

int spin_until_signalled(pthread_cond_t* condition, pthread_mutex_t* mutex, double) {
  return pthread_cond_wait(condition, mutex);
}

bool spin_in_pocl(double) { return false; }

#endif
}  // namespace situ::opencl

#if SITU_OWN_WAITS
extern "C" {

__attribute__((visibility("default"))) int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  const double seconds = situ::opencl::spin_seconds.load(std::memory_order_relaxed);
  if (seconds == 0 || !situ::opencl::is_pocl(__builtin_return_address(0)))
    return situ::opencl::sleep_until_signalled(condition, mutex);
  return situ::opencl::spin_until_signalled(condition, mutex, seconds);
}

__attribute__((visibility("default"))) int pthread_cond_signal(pthread_cond_t* condition) noexcept {
  static const auto signal = situ::opencl::of_c_library<decltype(pthread_cond_signal)>("pthread_cond_signal");
  situ::opencl::signals_of(condition).fetch_add(1, std::memory_order_release);
  return signal(condition);
}

__attribute__((visibility("default"))) int pthread_cond_broadcast(pthread_cond_t* condition) noexcept {
  static const auto broadcast = situ::opencl::of_c_library<decltype(pthread_cond_broadcast)>("pthread_cond_broadcast");
  situ::opencl::signals_of(condition).fetch_add(1, std::memory_order_release);
  return broadcast(condition);
}

}  // extern "C"
#endif
