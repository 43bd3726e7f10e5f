// thread_pool_test.cpp -- every task once, whatever the number of threads; errors reach the caller; no nesting.
#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>

#include "alloc_count.h"
#include "base/error.h"
#include "base/file.h"

namespace situ {
namespace {

TEST(ThreadPool, RunsEveryTaskOnceOnAnyNumberOfThreads) {
  for (int threads : {1, 2, 3, 8})
    for (int64_t tasks : {0, 1, 2, 7, 8, 9, 1000}) {
      ThreadPool pool(threads);
      EXPECT_EQ(pool.threads(), threads);
      std::vector<int> runs(static_cast<size_t>(tasks));
      pool.run(tasks, [&](int64_t i) { ++runs[static_cast<size_t>(i)]; });
      EXPECT_EQ(runs, std::vector<int>(static_cast<size_t>(tasks), 1)) << threads << " threads, " << tasks << " tasks";
    }
}

TEST(ThreadPool, EveryThreadStartsOnItsOwnRange) {
  ThreadPool pool(2);
  std::atomic<bool> begun[2] = {false, false};
  std::atomic<int> calls = 0;
  std::vector<std::thread::id> by(10);
  std::vector<int> turn(10);
  pool.run(10, [&](int64_t i) {
    by[static_cast<size_t>(i)] = std::this_thread::get_id();
    turn[static_cast<size_t>(i)] = calls++;
    if (i % 5 != 0) return;
    // The first task of each range holds its thread until that of the other has begun, so that neither thread, however
    // late the other comes, is done with its range and takes the other's first task.
    begun[i / 5] = true;
    while (!begun[1 - i / 5]) std::this_thread::yield();
  });
  EXPECT_EQ(by[0], std::this_thread::get_id());
  EXPECT_NE(by[5], std::this_thread::get_id());
  EXPECT_LT(turn[0] + turn[5], 2) << "another task came before a thread's own";
}

// Says of cores what the kernel does, in a folder of its own: the biggest is 1024.
void write_capacities(const TemporaryFolder& folder, const std::vector<std::pair<int, std::string>>& cores) {
  for (const auto& [core, text] : cores) {
    const std::string path = folder.file(fmt::format("cpu{}", core));
    make_folders(path);
    write_file_atomic(path + "/cpu_capacity", text);
  }
}

void move_to(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(core), &set);
  ASSERT_EQ(pthread_setaffinity_np(pthread_self(), sizeof(set), &set), 0);
}

TEST(ThreadPool, KnowsTheCapacityOfCores) {
  const TemporaryFolder system;
  write_capacities(system, {{0, "1024\n"}, {1, "250\n"}, {2, "0\n"}, {3, "much\n"}});
  EXPECT_EQ(core_capacity(0, system.path()), 1024);
  EXPECT_EQ(core_capacity(1, system.path()), 250);
  for (int unknown : {2, 3, 4}) EXPECT_EQ(core_capacity(unknown, system.path()), 1024);
}

// Of ten tasks a core of a quarter of the caller's capacity begins with the last two.
TEST(ThreadPool, RangesAreAsLongAsCoresAreBig) {
  const std::vector<int> cores = usable_cores();
  if (cores.size() < 2) GTEST_SKIP() << "one core";
  const TemporaryFolder system;
  std::vector<std::pair<int, std::string>> capacities;
  for (int core : cores) capacities.push_back({core, core == cores[1] ? "1024" : "256"});
  write_capacities(system, capacities);
  std::thread([&] {  // its own thread, which may be moved about
    ThreadPool pool(2, system.path());
    move_to(cores[1]);
    std::atomic<bool> begun = false;
    std::atomic<int> of_the_first = 0;
    std::vector<std::thread::id> by(10);
    pool.run(10, [&](int64_t i) {
      by[static_cast<size_t>(i)] = std::this_thread::get_id();
      if (i == 8) begun = true;
      while (i == 0 && !begun) std::this_thread::yield();  // nobody takes the other's first task,
      if (i < 8) ++of_the_first;
      while (i == 8 && of_the_first < 8) std::this_thread::yield();  // nor helps with what comes before it
    });
    for (size_t i = 0; i < 8; ++i) EXPECT_EQ(by[i], std::this_thread::get_id()) << i;
    EXPECT_NE(by[8], std::this_thread::get_id());
  })
      .join();
}

TEST(ThreadPool, WhatDoesNotDivideGoesToTheBiggerCores) {
  const std::vector<int64_t> shares = {0, 1024, 2048, 3072, 4096, 4352, 4608, 4864, 5120};  // four big, four little
  const auto begins = [&](int64_t units) {
    std::vector<int64_t> list;
    for (int64_t share : shares) list.push_back(first_of_range(units, share, shares.back()));
    return list;
  };
  EXPECT_EQ(begins(4), (std::vector<int64_t>{0, 1, 2, 3, 4, 4, 4, 4, 4}));
  EXPECT_EQ(begins(20), (std::vector<int64_t>{0, 4, 8, 12, 16, 17, 18, 19, 20}));
}

TEST(ThreadPool, TakesOverTheTasksOfASlowThread) {
  ThreadPool pool(2);
  std::atomic<int> others = 0;
  std::vector<std::thread::id> by(10);
  pool.run(10, [&](int64_t i) {  // whoever runs task 5 is stuck until all others are done
    by[static_cast<size_t>(i)] = std::this_thread::get_id();
    while (i == 5 && others < 9) std::this_thread::yield();
    if (i != 5) ++others;
  });
  for (size_t i = 6; i < 10; ++i) EXPECT_NE(by[i], by[5]);
}

TEST(ThreadPool, UsesOnlyCoresOfTheProcessByDefault) {
  EXPECT_EQ(ThreadPool().threads(), static_cast<int>(usable_cores().size()));
}

TEST(ThreadPool, AWorkerLeavesTheCoreToWhichTheCallerIsMoved) {
  const std::vector<int> cores = usable_cores();
  if (cores.size() < 2) GTEST_SKIP() << "one core";
  std::thread([&] {  // its own thread, which may be moved about
    ThreadPool pool(2);
    for (int core : {cores[1], cores[0], cores[1]}) {
      move_to(core);
      std::atomic<int> begun = 0;
      std::vector<int> at(2, -1);
      pool.run(2, [&](int64_t i) {
        ++begun;
        while (begun < 2) std::this_thread::yield();  // so that each thread has one of the two
        at[static_cast<size_t>(i)] = sched_getcpu();
      });
      EXPECT_EQ(at[0], core);
      EXPECT_NE(at[1], core);
    }
  })
      .join();
}

TEST(ThreadPool, SeesWhatTheRunBeforeWrote) {
  ThreadPool pool(3);
  std::vector<int64_t> values(999, 0);
  const std::function<void(int64_t)> step = [&](int64_t i) { values[static_cast<size_t>(998 - i)] += i % 7; };
  for (int round = 0; round < 2000; ++round) pool.run(999, step);  // the threads meet other threads' elements
  const int64_t sum = std::accumulate(values.begin(), values.end(), int64_t{0});
  EXPECT_EQ(sum, 2000 * (999 / 7 * 21 + 0 + 1 + 2 + 3 + 4));
}

TEST(ThreadPool, WakesUpAfterALongPause) {
  ThreadPool pool(4);
  for (int round = 0; round < 3; ++round) {
    std::atomic<int> count = 0;
    pool.run(100, [&](int64_t) { ++count; });
    EXPECT_EQ(count, 100);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // long past the spinning
  }
}

TEST(ThreadPool, CarriesTheFirstErrorOutAndGoesOn) {
  for (int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    try {
      pool.run(8, [](int64_t i) {
        if (i % 2 == 1) fail("task {} fails", i);
      });
      FAIL() << "nothing was thrown";
    } catch (const Error& e) {
      EXPECT_STREQ(e.what(), "task 1 fails");
    }
    std::atomic<int> count = 0;
    pool.run(8, [&](int64_t) { ++count; });
    EXPECT_EQ(count, 8);
  }
}

TEST(ThreadPool, RefusesToRunInsideItsOwnTask) {
  for (int threads : {1, 2}) {
    ThreadPool pool(threads);
    EXPECT_THROW(pool.run(2, [&](int64_t) { pool.run(2, [](int64_t) {}); }), Error);
  }
}

// Tasks that one thread runs share its number, and nothing else does at the time: what scratch memory relies on.
TEST(ThreadPool, TellsTasksWhichThreadRunsThem) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    std::vector<std::atomic<int>> inside(static_cast<size_t>(threads));
    std::atomic<bool> fine{true};
    for (int round = 0; round < 20; ++round)
      pool.run(64, [&](int64_t) {
        const int thread = ThreadPool::this_thread();
        if (thread < 0 || thread >= threads || inside[static_cast<size_t>(thread)]++ != 0) fine = false;
        std::this_thread::yield();
        --inside[static_cast<size_t>(thread)];
      });
    EXPECT_TRUE(fine) << threads;
  }
}
TEST(ThreadPool, TheCallerIsItsFirstThreadInsideAnotherPoolToo) {
  ThreadPool outer(3), inner(1);
  std::atomic<bool> fine{true};
  std::mutex one_at_a_time;
  outer.run(30, [&](int64_t) {
    const int before = ThreadPool::this_thread();
    const std::lock_guard lock(one_at_a_time);
    inner.run(2, [&](int64_t) { fine = fine && ThreadPool::this_thread() == 0; });
    fine = fine && ThreadPool::this_thread() == before;
  });
  EXPECT_TRUE(fine);
}

TEST(ThreadPool, SeveralPoolsWorkSideBySide) {
  ThreadPool outer(2), inner(2);
  std::atomic<int> count = 0;
  outer.run(1, [&](int64_t) { inner.run(50, [&](int64_t) { ++count; }); });
  std::thread other([&] { inner.run(50, [&](int64_t) { ++count; }); });
  outer.run(50, [&](int64_t) { ++count; });
  other.join();
  EXPECT_EQ(count, 150);
}

TEST(ThreadPool, AllocatesNothingWhileRunning) {
  ThreadPool pool(2);
  std::vector<int> runs(64);
  const std::function<void(int64_t)> task = [&](int64_t i) { ++runs[static_cast<size_t>(i)]; };
  pool.run(64, task);
  const test::CountAllocations counted;  // of this thread: the caller takes part
  for (int round = 0; round < 100; ++round) pool.run(64, task);
  EXPECT_EQ(counted.count(), 0) << counted.first();
}

}  // namespace
}  // namespace situ
