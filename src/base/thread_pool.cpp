// thread_pool.cpp -- workers wait for a growing epoch number: first spinning, then asleep on it (std::atomic::wait).
#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include "base/clock.h"
#include "base/error.h"

namespace situ {
namespace {

constexpr double kSpinSeconds = 40e-6;  // longer than a launch's host work, far shorter than a scheduler's slice
constexpr int kSpinsPerLook = 32;       // the clock is read once in so many turns

thread_local const ThreadPool* current_pool = nullptr;

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until done() or the time is over; what done() last said.
template <typename Done>
bool spin(const Done& done) {
  const double end = now() + kSpinSeconds;
  do {
    for (int i = 0; i < kSpinsPerLook; ++i) {
      if (done()) return true;
      pause();
    }
  } while (now() < end);
  return done();
}

void pin(std::thread& thread, int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(core), &set);
  // A refusal (a sandbox, a core taken away) costs speed, not correctness.
  (void)pthread_setaffinity_np(thread.native_handle(), sizeof(set), &set);
}

struct InsidePool {  // marks the thread as running tasks of a pool, for the time of a scope
  explicit InsidePool(const ThreadPool* pool) : before(current_pool) { current_pool = pool; }
  ~InsidePool() { current_pool = before; }
  const ThreadPool* before;
};

struct ClearFlag {
  explicit ClearFlag(std::atomic<bool>& f) : flag(f) {}
  ~ClearFlag() { flag.store(false, std::memory_order_release); }
  std::atomic<bool>& flag;
};

}  // namespace

std::vector<int> usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(set), &set) == 0)
    for (int i = 0; i < CPU_SETSIZE; ++i)
      if (CPU_ISSET(static_cast<size_t>(i), &set)) cores.push_back(i);
  if (cores.empty()) cores.push_back(0);
  return cores;
}

ThreadPool::ThreadPool(int threads) {
  const std::vector<int> cores = usable_cores();
  const size_t count = threads > 0 ? static_cast<size_t>(threads) : cores.size();
  ranges_.resize(count);
  workers_.reserve(count - 1);
  for (size_t i = 1; i < count; ++i) {
    workers_.emplace_back([this, i] { work(static_cast<int>(i)); });
    pin(workers_.back(), cores[i % cores.size()]);
  }
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(int64_t tasks, const std::function<void(int64_t)>& task) {
  SITU_ASSERT(current_pool != this, "a task of a thread pool calls run() of the same pool");
  SITU_ASSERT(!busy_.exchange(true, std::memory_order_acquire), "two threads call run() of one pool at the same time");
  const ClearFlag clear(busy_);
  if (tasks <= 1 || workers_.empty()) {
    const InsidePool inside(this);
    for (int64_t i = 0; i < tasks; ++i) task(i);
    return;
  }
  task_ = &task;
  tasks_ = tasks;
  running_.store(static_cast<uint32_t>(workers_.size()), std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();  // no system call unless a worker sleeps
  run_range(0);
  wait_for_workers();
  rethrow();
}

void ThreadPool::run_range(int thread) {
  const int64_t count = threads();
  const int64_t first = tasks_ * thread / count, last = tasks_ * (thread + 1) / count;
  const InsidePool inside(this);
  try {
    for (int64_t i = first; i < last; ++i) (*task_)(i);
  } catch (...) {
    ranges_[static_cast<size_t>(thread)].error = std::current_exception();
  }
}

void ThreadPool::work(int thread) {
  uint32_t seen = 0;
  for (;;) {
    if (!spin([&] { return epoch_.load(std::memory_order_acquire) != seen; }))
      epoch_.wait(seen, std::memory_order_acquire);
    ++seen;  // every worker takes part in every epoch, so none is ever skipped
    if (stop_) return;
    run_range(thread);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
  }
}

void ThreadPool::wait_for_workers() {
  const auto left = [&] { return running_.load(std::memory_order_acquire); };
  if (spin([&] { return left() == 0; })) return;
  for (uint32_t n = left(); n != 0; n = left()) running_.wait(n, std::memory_order_acquire);
}

void ThreadPool::rethrow() {
  std::exception_ptr first;
  for (Range& range : ranges_) {
    if (range.error && !first) first = range.error;
    range.error = nullptr;
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace situ
