// thread_pool.h -- a fixed set of threads that share out numbered tasks.
//
//     task:    0 1 2 3 4 | 5 6 7 8 9        two threads, ten tasks: each starts on a range of its own
//     task:    0 1 2 3 4 5 6 7 | 8 9        the same on a big core and one of a quarter of its capacity
//
// A thread that is done with its range helps with the others', and a run is over when all tasks are done, whether or
// not every thread came in time: a core that is slow, or busy with another program, delays no more than the task it
// holds. Which thread runs a task never changes what the task computes, so results are the same on any number of
// threads. Workers spin for a moment after each run, because the launches of one training step follow each other
// within microseconds, and sleep after that.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace situ {

inline constexpr const char* kCoresOfSystem = "/sys/devices/system/cpu";

class ThreadPool {
 public:
  // threads: the caller counts as one; 0 = as many as there are cores this process may use. Fewer than those take the
  // cores of most capacity, which `system` tells (core_capacity).
  explicit ThreadPool(int threads = 0, const std::string& system = kCoresOfSystem);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }
  // Within a task: which of the pool's threads runs it, 0 to threads() - 1. No two tasks of one number run at a time,
  // so they may share scratch memory, which stays in the caches of a core.
  static int this_thread();

  // Calls task(0) .. task(tasks - 1), each once, and returns when all are done. Allocates nothing. If tasks throw, the
  // others still run, and the exception of the lowest task is thrown here. One caller at a time; a task must not call
  // run() of its own pool.
  void run(int64_t tasks, const std::function<void(int64_t)>& task);

 private:
  // What is left of a range, in units of tasks, in one word, so that it is claimed in one step: the run's number, the
  // next unit, the end. A thread that comes late finds another number and leaves.
  struct alignas(64) Range {
    std::atomic<uint64_t> word{0};
  };
  struct alignas(64) Failure {
    int64_t task = 0;
    std::exception_ptr error;
  };

  void keep_apart();
  int free_core(int otherwise) const;
  void share_out();
  void work(int thread);
  void take_part(int thread, uint32_t epoch);
  int32_t drain(Range& range, int thread, uint32_t epoch);
  void run_unit(int64_t unit, int thread);
  void wait_for(int32_t units);
  void rethrow();

  std::vector<std::thread> workers_;
  std::vector<int> homes_;         // cores, by thread; 0 is where the caller was seen last
  std::vector<int> cores_;         // that the process may use, the biggest first
  std::vector<int64_t> capacity_;  // of them
  std::vector<int64_t> share_;     // by thread: capacities of the threads before it; the last entry is the sum of all
  std::vector<Range> ranges_;      // by thread; 0 is the caller
  std::vector<Failure> failures_;  // by thread
  // The present run; read only by a thread that holds a unit of it.
  const std::function<void(int64_t)>* task_ = nullptr;
  int64_t tasks_ = 0, unit_ = 1;  // a unit is so many tasks
  int32_t units_ = 0;
  alignas(64) std::atomic<uint32_t> epoch_{0};    // grows with each run
  alignas(64) std::atomic<int32_t> finished_{0};  // units of the present run
  std::atomic<bool> stop_{false}, busy_{false};
};

// Cores this process may run on: its affinity mask, not the machine.
std::vector<int> usable_cores();

// How much a core computes, the biggest 1024: what the kernel says of systems with big and little cores. 1024 where it
// says nothing.
int64_t core_capacity(int core, const std::string& system = kCoresOfSystem);

// Where the range of a thread begins whose predecessors have `before` of all the capacity. Rounded up: what does not
// divide goes to the first threads, which have the biggest cores.
int64_t first_of_range(int64_t units, int64_t before, int64_t all);

}  // namespace situ
