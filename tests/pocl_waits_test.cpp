// pocl_waits_test.cpp -- waits that spin before they sleep: no signal is lost, no processor is kept, and PoCL gets
// them.
#include "backend/opencl/pocl_waits.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "icd/opencl_fixture.h"

namespace situ::opencl {
namespace {

using test::axpy_launch;
using test::Matrix;

class PoclWaiting : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!spin_in_pocl(0)) GTEST_SKIP() << "this build has the C library's waits";
  }
  // Waits until `turn` is `mine`, as everybody waits for a condition.
  void wait_for(int mine, double seconds) {
    while (turn != mine) ASSERT_EQ(spin_until_signalled(&changed, &mutex, seconds), 0);
  }
  // A thread that waits for turn 1; it has begun to when this returns.
  std::thread start_waiter(double seconds) {
    bool waiting = false;
    std::thread waiter([this, &waiting, seconds] {
      pthread_mutex_lock(&mutex);
      waiting = true;
      wait_for(1, seconds);
      pthread_mutex_unlock(&mutex);
    });
    for (bool begun = false; !begun;) {
      pthread_mutex_lock(&mutex);
      begun = waiting;
      pthread_mutex_unlock(&mutex);
    }
    return waiter;
  }
  void pass_on(int next) {
    pthread_mutex_lock(&mutex);
    turn = next;
    pthread_mutex_unlock(&mutex);
    pthread_cond_broadcast(&changed);  // after the mutex was released, when a signal is lost most easily
  }
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
  int turn = 0;
};

// Some waits end while they spin, others just after, others asleep.
TEST_F(PoclWaiting, LosesNoSignal) {
  constexpr int kTurns = 20'000;
  const auto play = [&](int mine) {
    for (int i = 0; i < kTurns; ++i) {
      pthread_mutex_lock(&mutex);
      wait_for(mine, i % 3 == 0 ? 0 : i % 3 == 1 ? 2e-7 : 5e-6);
      pthread_mutex_unlock(&mutex);
      pass_on(1 - mine);
    }
  };
  std::thread other(play, 1);
  play(0);
  other.join();
  EXPECT_EQ(turn, 0);
}

TEST_F(PoclWaiting, ASignalEndsTheSpinning) {
  const PoclWaits before = pocl_waits();
  std::thread waiter = start_waiter(1000);
  pass_on(1);
  waiter.join();
  EXPECT_EQ(pocl_waits().spun, before.spun + 1);
  EXPECT_EQ(pocl_waits().slept, before.slept);
}

TEST_F(PoclWaiting, SleepsAfterSpinningInVain) {
  const PoclWaits before = pocl_waits();
  std::thread waiter = start_waiter(1e-6);
  const double end = now() + 10;
  while (pocl_waits().slept == before.slept && now() < end) std::this_thread::yield();
  pass_on(1);
  waiter.join();
  EXPECT_EQ(pocl_waits().slept, before.slept + 1);
  EXPECT_EQ(pocl_waits().spun, before.spun);
}

class PoclThreads : public test::OpenclTest {};

TEST_F(PoclThreads, SpinWhereTheTuningSaysSo) {
  if (!spin_in_pocl(0)) GTEST_SKIP() << "this build has the C library's waits";
  if (usable_cores().size() < 2) GTEST_SKIP() << "one processor";
  const auto waits_of_steps = [&](int64_t microseconds) {
    device::DeviceOptions options;
    options.tuning.set("submit.spin", microseconds);
    const test::Rig rig(options);
    if (rig.device->target().name.find("Portable Computing Language") == std::string::npos) return int64_t{-1};
    const Matrix x{0, 16384, 1, 8, 8}, y{0, 20480, 1, 8, 8};
    const auto storage = rig.device->allocate({1 << 16});
    const auto executable =
        rig.device->bind(std::vector<device::LaunchSpec>{axpy_launch(x, y, 1), axpy_launch(y, x, 1)}, *storage);
    const PoclWaits before = pocl_waits();
    for (int i = 0; i < 100; ++i) {
      executable->enqueue();
      rig.device->finish();
    }
    const PoclWaits after = pocl_waits();
    return after.spun + after.slept - before.spun - before.slept;
  };
  const int64_t waits = waits_of_steps(30);
  if (waits < 0) GTEST_SKIP() << "this driver is not PoCL";
  EXPECT_GT(waits, 50);  // a thread that finds nothing to do waits, at least once in most steps
  EXPECT_EQ(waits_of_steps(0), 0);
}

}  // namespace
}  // namespace situ::opencl
