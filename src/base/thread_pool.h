// thread_pool.h -- a fixed set of threads that split numbered tasks into contiguous ranges.
//
//     task:    0 1 2 3 4 | 5 6 7 8 9        two threads, ten tasks: the caller runs the first range
//
// Which thread runs a task never changes what the task computes; tasks that give equal results in any order therefore
// give equal results on any number of threads. Workers spin for a moment after each run, because the launches of one
// training step follow each other within microseconds, and sleep after that.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

namespace situ {

class ThreadPool {
 public:
  // threads: the caller counts as one; 0 = as many as there are cores this process may use.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls task(0) .. task(tasks - 1), each once, and returns when all are done. Allocates nothing. If tasks throw, the
  // rest of their ranges is skipped and the exception of the lowest range is thrown here. One caller at a time; a task
  // must not call run() of its own pool.
  void run(int64_t tasks, const std::function<void(int64_t)>& task);

 private:
  struct alignas(64) Range {  // a cache line of its own: workers write their error here
    std::exception_ptr error;
  };

  void work(int thread);
  void run_range(int thread);
  void wait_for_workers();
  void rethrow();

  std::vector<std::thread> workers_;
  std::vector<Range> ranges_;  // by thread; 0 is the caller
  const std::function<void(int64_t)>* task_ = nullptr;
  int64_t tasks_ = 0;
  bool stop_ = false;
  alignas(64) std::atomic<uint32_t> epoch_{0};    // grows with each run; publishes task_, tasks_ and stop_
  alignas(64) std::atomic<uint32_t> running_{0};  // workers that have not finished the present run
  std::atomic<bool> busy_{false};
};

// Cores this process may run on: its affinity mask, not the machine.
std::vector<int> usable_cores();

}  // namespace situ
