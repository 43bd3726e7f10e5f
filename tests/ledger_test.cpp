// ledger_test.cpp -- the ledger checked from outside: a stand-in OpenCL library forwards and counts every call, and the
// test program counts allocations. Steps 10 to 110 of resident LeNet-5 must be what the ledger says, and nothing else.
#include <gtest/gtest.h>

#include <cstdlib>

#include "alloc_count.h"
#include "base/clock.h"
#include "harness.h"
#include "model/init.h"
#include "prof/report.h"
#include "step/devices.h"
#include "step/programs.h"
#include "step/session.h"

#ifdef SITU_TEST_ICD
#include "icd/counting_icd.h"

namespace situ::test {
namespace {

constexpr int64_t kBatch = 64;

class Ledgers : public testing::Test {
 protected:
  void SetUp() override {
    if (!device_under_test("opencl")) GTEST_SKIP() << "opencl is left out by SITU_TEST_DEVICES";
    setenv("SITU_OPENCL_LIBRARY", SITU_TEST_ICD, 1);
    device::DeviceOptions options;
    options.cache_folder = scratch_folder();
    options.tuning = tuning();
    device_ = step::open_device("opencl", options);
    unsetenv("SITU_OPENCL_LIBRARY");
  }
  virtual device::Tuning tuning() const { return asleep(); }
  // Flow control without an OpenCL wait, whatever the device's record says.
  static device::Tuning asleep() {
    device::Tuning tuning;
    tuning.set("submit.lend", 0);
    return tuning;
  }
  std::unique_ptr<step::Session> session(step::Residency residency) {
    step::SessionOptions options;
    options.residency = residency;
    auto made = std::make_unique<step::Session>(
        *device_, std::vector<ir::Graph>{step::train_program({model_, kBatch, {}})}, options);
    for (const ir::State& s : made->states()) made->set(s.name, model::initial_values(s, 1));
    return made;
  }
  static void step(step::Session& session, int number) {
    step::Batch& batch = session.next_batch();
    for (float& v : batch.f32("x")) v = static_cast<float>(number % 7) * 0.1f;
    for (int32_t& v : batch.i32("labels")) v = number % 10;
    for (float& v : batch.f32("weight")) v = 1;
    batch.set("lr", 0.01f);
    batch.set("scale", 1.0f / kBatch);
    session.run(0, batch);
  }
  const CountingIcd icd_{SITU_TEST_ICD};
  const model::Model model_ = model::find_model("lenet5");
  std::unique_ptr<device::Device> device_;
};

TEST_F(Ledgers, ResidentStepsDoWhatTheLedgerSaysAndNothingElse) {
  const auto lenet = session(step::Residency::resident);
  for (int i = 0; i < 10; ++i) step(*lenet, i);
  const step::Ledger ledger = lenet->ledger(0);
  icd_.reset();
  int64_t allocations = 0;
  std::string first;
  {
    const CountAllocations counted(icd_.depth());
    for (int i = 10; i < 110; ++i) step(*lenet, i);
    allocations = counted.count();
    if (allocations) first = counted.first();
  }
  EXPECT_EQ(icd_.total("waits"), 0);
  EXPECT_EQ(icd_.calls("clFinish"), 0);
  EXPECT_EQ(icd_.calls("clWaitForEvents"), 0);
  EXPECT_EQ(icd_.total("creations"), 0);
  EXPECT_EQ(icd_.total("kernels"), 100 * ledger.launches);
  EXPECT_EQ(icd_.calls("clEnqueueWriteBuffer"), 0);
  EXPECT_EQ(icd_.calls("clEnqueueMapBuffer"), 100);
  EXPECT_EQ(icd_.calls("clEnqueueUnmapMemObject"), 100);
  EXPECT_EQ(icd_.calls("clEnqueueCopyBuffer"), 0);
  EXPECT_EQ(icd_.total("bytes_in"), 100 * ledger.bytes_in);
  EXPECT_EQ(icd_.total("bytes_out"), 0);
  if (can_count_allocations()) {
    EXPECT_EQ(allocations, 0) << first;
  }
  const int64_t minibatch = kBatch * (28 * 28 + 1 + 1) * 4, control = 256;
  if (device_under_test("opencl")->target().alignment <= control) {  // a coarser one leaves gaps in the one write
    EXPECT_EQ(ledger.bytes_in, minibatch + control);
  }
  EXPECT_EQ(ledger.waits, 0);

  icd_.reset();
  lenet->get(step::kTrainMetrics);  // the loss, when somebody asks
  EXPECT_EQ(icd_.total("bytes_out"), 16);
  EXPECT_EQ(icd_.total("waits"), 1);
}

class CopiedLedgers : public Ledgers {
  device::Tuning tuning() const override {
    device::Tuning tuning = asleep();
    tuning.set("submit.map", 0);
    return tuning;
  }
};

TEST_F(CopiedLedgers, WithoutMappingAStepIsOneWriteAndTrainsAlike) {
  const auto lenet = session(step::Residency::resident);
  for (int i = 0; i < 10; ++i) step(*lenet, i);
  icd_.reset();
  int64_t allocations = 0;
  {
    const CountAllocations counted(icd_.depth());
    for (int i = 10; i < 30; ++i) step(*lenet, i);
    allocations = counted.count();
  }
  EXPECT_EQ(icd_.total("waits"), 0);
  EXPECT_EQ(icd_.total("creations"), 0);
  EXPECT_EQ(icd_.calls("clEnqueueWriteBuffer"), 20);
  EXPECT_EQ(icd_.calls("clEnqueueMapBuffer"), 0);
  EXPECT_EQ(icd_.total("bytes_in"), 20 * lenet->ledger(0).bytes_in);
  if (can_count_allocations()) {
    EXPECT_EQ(allocations, 0);
  }
  step::Session mapped(*device_under_test("opencl"), {step::train_program({model_, kBatch, {}})});
  for (const ir::State& s : mapped.states()) mapped.set(s.name, model::initial_values(s, 1));
  for (int i = 0; i < 30; ++i) step(mapped, i);
  for (const ir::State& s : mapped.states()) EXPECT_EQ(mapped.get(s.name), lenet->get(s.name)) << s.name;
}

class LendingLedgers : public Ledgers {
  device::Tuning tuning() const override {
    device::Tuning tuning;
    tuning.set("submit.lend", 1);
    return tuning;
  }
};

TEST_F(LendingLedgers, AThreadThatWaitsForAnEarlierStepWaitsInsideTheDriver) {
  const auto lenet = session(step::Residency::resident);
  step::Session asleep(*device_under_test("opencl"), {step::train_program({model_, kBatch, {}})});
  for (const ir::State& s : asleep.states()) asleep.set(s.name, model::initial_values(s, 1));
  icd_.reset();
  for (int i = 0; i < 30; ++i) {
    step(*lenet, i);
    step(asleep, i);
  }
  EXPECT_GT(icd_.calls("clWaitForEvents"), 0);
  EXPECT_LE(icd_.calls("clWaitForEvents"), 30);
  EXPECT_EQ(icd_.calls("clFinish"), 0);
  for (const ir::State& s : asleep.states()) EXPECT_EQ(asleep.get(s.name), lenet->get(s.name)) << s.name;
}

class CutLedgers : public Ledgers {
  device::Tuning tuning() const override {
    device::Tuning tuning = asleep();
    tuning.set("submit.flush", 0);
    tuning.set("submit.max_us", 100);
    return tuning;
  }
};

// With a screen that shares the device, a step goes over in pieces; it still waits for nothing.
TEST_F(CutLedgers, StepsInPiecesDoNotWaitEither) {
  const auto lenet = session(step::Residency::resident);
  for (int i = 0; i < 10; ++i) step(*lenet, i);
  icd_.reset();
  int64_t allocations = 0;
  {
    const CountAllocations counted(icd_.depth());
    for (int i = 10; i < 60; ++i) step(*lenet, i);
    allocations = counted.count();
  }
  EXPECT_EQ(icd_.total("waits"), 0);
  EXPECT_EQ(icd_.total("creations"), 0);
  EXPECT_EQ(icd_.total("kernels"), 50 * lenet->ledger(0).launches);
  EXPECT_GE(icd_.calls("clFlush"), 50 * 3);
  EXPECT_LT(icd_.calls("clFlush"), icd_.total("kernels"));
  if (can_count_allocations()) {
    EXPECT_EQ(allocations, 0);
  }
}

// The ledger's times of launches, added up, are what the driver itself says its kernels took.
TEST_F(Ledgers, LaunchTimesAreTheDriversOwn) {
  const auto lenet = session(step::Residency::resident);
  for (int i = 0; i < 3; ++i) step(*lenet, i);
  device_->finish();
  icd_.reset();
  const prof::Measured m = prof::measure(*lenet, 0, {.seconds = 0, .min_steps = 1, .warmup = 1, .classes = 10});
  ASSERT_EQ(m.launch_seconds.size(), static_cast<size_t>(lenet->ledger(0).launches));
  for (double seconds : m.launch_seconds) EXPECT_GT(seconds, 0);
  icd_.reset();
  device_->start_profile();
  for (int i = 0; i < 5; ++i) step(*lenet, i);
  const double begin = now();
  device_->finish();
  const double end = now();
  const device::Timeline timeline = device_->stop_profile();
  double told = 0;
  int64_t kernels = 0;
  for (const device::Event& e : timeline.events)
    if (e.kind == device::EventKind::kernel) {
      told += e.end - e.start;
      ++kernels;
    }
  EXPECT_EQ(kernels, 5 * lenet->ledger(0).launches);
  EXPECT_NEAR(told, 1e-9 * static_cast<double>(icd_.total("kernel_ns")), 1e-7);
  EXPECT_LE(timeline.events.back().end, end) << "on the host's clock";
  EXPECT_LT(begin - timeline.events.front().start, 60);
}

TEST_F(Ledgers, NaiveAndWeightsPayWhatTheLedgerSays) {
  for (step::Residency residency : {step::Residency::naive, step::Residency::weights}) {
    const auto lenet = session(residency);
    const step::Ledger ledger = lenet->ledger(0);
    step(*lenet, 0);
    icd_.reset();
    for (int i = 1; i < 4; ++i) step(*lenet, i);
    EXPECT_EQ(icd_.total("kernels"), 3 * ledger.launches) << name_of(residency);
    EXPECT_EQ(icd_.total("bytes_in"), 3 * ledger.bytes_in) << name_of(residency);
    EXPECT_EQ(icd_.total("bytes_out"), 3 * ledger.bytes_out) << name_of(residency);
    EXPECT_EQ(icd_.total("waits"), 3 * ledger.waits) << name_of(residency);
    EXPECT_EQ(icd_.total("creations"), 0) << name_of(residency);
    EXPECT_GT(ledger.waits, ledger.launches) << name_of(residency);
  }
}

}  // namespace
}  // namespace situ::test
#endif
