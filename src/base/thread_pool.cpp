// thread_pool.cpp -- workers wait for a growing epoch number: first spinning, then asleep on it (std::atomic::wait);
// then every thread claims units of tasks, from its own range first, until none is left.
#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "base/spin.h"
#include "base/types.h"

namespace situ {
namespace {

constexpr int64_t kBiggest = 1024;      // capacity of a core
constexpr double kSpinSeconds = 40e-6;  // longer than a launch's host work, far shorter than a scheduler's slice

// A range in one word: 24 bits of epoch, then 20 bits each for the next unit and the end.
constexpr int kBits = 20;
constexpr int64_t kMostUnits = (int64_t{1} << kBits) - 1;
uint64_t pack(uint32_t epoch, int64_t next, int64_t end) {
  return uint64_t{epoch} << (2 * kBits) | static_cast<uint64_t>(next) << kBits | static_cast<uint64_t>(end);
}
uint32_t epoch_of(uint64_t word) { return static_cast<uint32_t>(word >> (2 * kBits)); }
int64_t next_of(uint64_t word) { return static_cast<int64_t>(word >> kBits) & kMostUnits; }
int64_t end_of(uint64_t word) { return static_cast<int64_t>(word) & kMostUnits; }
uint32_t short_epoch(uint32_t epoch) { return epoch & 0xFFFFFF; }

thread_local const ThreadPool* current_pool = nullptr;
thread_local int current_thread = 0;

void pin(std::thread& thread, int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(core), &set);
  // A refusal (a sandbox, a core taken away) costs speed, not correctness.
  (void)pthread_setaffinity_np(thread.native_handle(), sizeof(set), &set);
}

struct InsidePool {  // marks the thread as running tasks of a pool, for the time of a scope
  InsidePool(const ThreadPool* pool, int thread) : before(current_pool), thread_before(current_thread) {
    current_pool = pool;
    current_thread = thread;
  }
  ~InsidePool() {
    current_pool = before;
    current_thread = thread_before;
  }
  const ThreadPool* before;
  int thread_before;
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

int64_t core_capacity(int core, const std::string& system) {
  std::ifstream file(system + "/cpu" + std::to_string(core) + "/cpu_capacity");
  int64_t capacity = 0;
  return file >> capacity && capacity > 0 ? std::min(capacity, kBiggest) : kBiggest;
}

int64_t first_of_range(int64_t units, int64_t before, int64_t all) { return ceil_div(units * before, all); }

ThreadPool::ThreadPool(int threads, const std::string& system) {
  cores_ = usable_cores();
  std::ranges::stable_sort(cores_, std::greater(), [&](int core) { return core_capacity(core, system); });
  for (int core : cores_) capacity_.push_back(core_capacity(core, system));
  const size_t count = threads > 0 ? static_cast<size_t>(threads) : cores_.size();
  ranges_ = std::vector<Range>(count);
  failures_.resize(count);
  workers_.reserve(count - 1);
  for (size_t i = 0; i < count; ++i) homes_.push_back(cores_[i % cores_.size()]);
  share_.resize(count + 1);
  share_out();
  for (size_t i = 1; i < count; ++i) {
    workers_.emplace_back([this, i] { work(static_cast<int>(i)); });
    pin(workers_.back(), homes_[i]);
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

int ThreadPool::this_thread() { return current_thread; }

void ThreadPool::run(int64_t tasks, const std::function<void(int64_t)>& task) {
  SITU_ASSERT(current_pool != this, "a task of a thread pool calls run() of the same pool");
  SITU_ASSERT(!busy_.exchange(true, std::memory_order_acquire), "two threads call run() of one pool at the same time");
  const ClearFlag clear(busy_);
  keep_apart();
  task_ = &task;
  tasks_ = tasks;
  unit_ = ceil_div(tasks, kMostUnits);
  units_ = tasks == 0 ? 0 : static_cast<int32_t>(ceil_div(tasks, unit_));
  finished_.store(0, std::memory_order_relaxed);
  const uint32_t epoch = epoch_.load(std::memory_order_relaxed) + 1;
  const int64_t count = threads();
  const auto first_unit = [&](int64_t i) {
    return first_of_range(units_, share_[static_cast<size_t>(i)], share_.back());
  };
  for (int64_t i = 0; i < count; ++i)
    ranges_[static_cast<size_t>(i)].word.store(pack(short_epoch(epoch), first_unit(i), first_unit(i + 1)),
                                               std::memory_order_release);
  if (units_ > 1 && count > 1) {
    epoch_.store(epoch, std::memory_order_release);
    epoch_.notify_all();  // no system call unless a worker sleeps
  }
  take_part(0, epoch);
  wait_for(units_);
  rethrow();
}

// The caller's thread is not ours to pin. Where the system has put it on a worker's core, that worker moves to the
// biggest that is free, rather than each waiting for the other until the system moves one of them.
void ThreadPool::keep_apart() {
  const int core = sched_getcpu();
  if (core < 0 || core == homes_[0]) return;
  const int left = std::exchange(homes_[0], core);
  const auto worker = std::find(homes_.begin() + 1, homes_.end(), core);
  if (worker != homes_.end())
    pin(workers_[static_cast<size_t>(worker - homes_.begin()) - 1], *worker = free_core(left));
  share_out();
}

int ThreadPool::free_core(int otherwise) const {
  for (int core : cores_)
    if (std::ranges::find(homes_, core) == homes_.end()) return core;
  return otherwise;
}

void ThreadPool::share_out() {
  for (size_t i = 0; i < homes_.size(); ++i) {
    const auto core = std::ranges::find(cores_, homes_[i]);
    // A core the process could not use when the pool was made may be any.
    share_[i + 1] =
        share_[i] + (core == cores_.end() ? kBiggest : capacity_[static_cast<size_t>(core - cores_.begin())]);
  }
}

// Own range first, then those of the others.
void ThreadPool::take_part(int thread, uint32_t epoch) {
  const InsidePool inside(this, thread);
  const int count = threads();
  int32_t done = 0;
  for (int i = 0; i < count; ++i) done += drain(ranges_[static_cast<size_t>((thread + i) % count)], thread, epoch);
  if (done == 0) return;
  const int32_t units = units_;  // before the last unit is handed in: after that the run may be gone
  if (finished_.fetch_add(done, std::memory_order_acq_rel) + done == units) finished_.notify_one();
}

int32_t ThreadPool::drain(Range& range, int thread, uint32_t epoch) {
  int32_t done = 0;
  uint64_t word = range.word.load(std::memory_order_acquire);
  while (epoch_of(word) == short_epoch(epoch) && next_of(word) < end_of(word)) {
    const int64_t next = next_of(word);
    if (!range.word.compare_exchange_weak(word, pack(epoch_of(word), next + 1, end_of(word)), std::memory_order_acq_rel,
                                          std::memory_order_acquire))
      continue;
    run_unit(next, thread);
    ++done;
    word = range.word.load(std::memory_order_acquire);
  }
  return done;
}

void ThreadPool::run_unit(int64_t unit, int thread) {
  const int64_t last = std::min(tasks_, (unit + 1) * unit_);
  for (int64_t i = unit * unit_; i < last; ++i) {
    try {
      (*task_)(i);
    } catch (...) {
      Failure& failure = failures_[static_cast<size_t>(thread)];
      if (!failure.error || i < failure.task) failure = {i, std::current_exception()};
    }
  }
}

void ThreadPool::work(int thread) {
  uint32_t seen = 0;
  for (;;) {
    if (!spin_for(kSpinSeconds, [&] { return epoch_.load(std::memory_order_acquire) != seen; }))
      epoch_.wait(seen, std::memory_order_acquire);
    seen = epoch_.load(std::memory_order_acquire);  // runs that ended without this thread are passed over
    if (stop_.load(std::memory_order_relaxed)) return;
    take_part(thread, seen);
  }
}

void ThreadPool::wait_for(int32_t units) {
  const auto finished = [&] { return finished_.load(std::memory_order_acquire); };
  if (spin_for(kSpinSeconds, [&] { return finished() == units; })) return;
  for (int32_t n = finished(); n != units; n = finished()) finished_.wait(n, std::memory_order_acquire);
}

void ThreadPool::rethrow() {
  Failure* first = nullptr;
  for (Failure& failure : failures_)
    if (failure.error && (!first || failure.task < first->task)) first = &failure;
  if (!first) return;
  const std::exception_ptr error = first->error;
  for (Failure& failure : failures_) failure.error = nullptr;
  std::rethrow_exception(error);
}

}  // namespace situ
