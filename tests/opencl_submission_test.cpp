// opencl_submission_test.cpp -- how a step is handed to the driver: recorded and replayed, cut into pieces, with hints;
// seen from outside (opencl_calls_test.cpp).
#include <gtest/gtest.h>

#include <cstdlib>

#include "backend/opencl/devices.h"
#include "backend/opencl/loader.h"
#include "base/error.h"
#include "icd/opencl_calls.h"

#ifdef SITU_TEST_ICD
namespace situ::opencl {
namespace {

using test::axpy_launch;
using test::OpenclCalls;
using test::Stepper;

TEST_F(OpenclCalls, RecordingReplaysOneCallPerStep) {
  if (!choose_device(load_opencl(), "").info.command_buffer) GTEST_SKIP() << "the driver has no command buffers";
  Stepper stepper(1);
  icd->reset();
  for (int i = 0; i < 5; ++i) {
    stepper.step();
    stepper.rig.device->wait(stepper.tickets[stepper.turn ^ 1]);  // some drivers replay one at a time
  }
  EXPECT_EQ(icd->calls("clEnqueueNDRangeKernel"), 0);
  EXPECT_EQ(icd->calls("clEnqueueCommandBufferKHR"), 5);
}

TEST_F(OpenclCalls, RefusedRecordingFallsBackWithANote) {
  if (!choose_device(load_opencl(), "").info.command_buffer) GTEST_SKIP() << "the driver has no command buffers";
  for (const char* call : {"clCreateCommandBufferKHR", "clCommandNDRangeKernelKHR", "clFinalizeCommandBufferKHR"}) {
    icd->fail(call, 1, CL_INVALID_OPERATION);
    Stepper stepper(1);
    ASSERT_EQ(notes_of(*stepper.rig.device).size(), 1u) << call;
    EXPECT_NE(notes_of(*stepper.rig.device)[0].find(call), std::string::npos);
    stepper.step();
    stepper.step();
    EXPECT_EQ(stepper.result(), Stepper::expected(2));
  }
}

TEST_F(OpenclCalls, ReplayRefusedAtRunTimeQueuesOneByOne) {
  Stepper stepper(1);
  icd->fail("clEnqueueCommandBufferKHR", 2, CL_INVALID_OPERATION);
  for (int i = 0; i < 4; ++i) stepper.step();
  EXPECT_EQ(stepper.result(), Stepper::expected(4));
  EXPECT_EQ(stepper.rig.device->counters().launches, 12);
}

// --- cl_qcom_recordable_queues --------------------------------------------------------------------------------------
TEST_F(OpenclCalls, ARecordableQueueReplaysOneCallPerStep) {
  if (std::getenv("SITU_LIMITS")) GTEST_SKIP() << "SITU_LIMITS may forbid recording";
  icd->pretend(true);
  Stepper stepper(2);
  EXPECT_TRUE(notes_of(*stepper.rig.device).empty());
  icd->reset();
  for (int i = 0; i < 5; ++i) stepper.step();
  EXPECT_EQ(icd->calls("clEnqueueNDRangeKernel"), 0);
  EXPECT_EQ(icd->calls("clEnqueueRecordingQCOM"), 5);
  EXPECT_EQ(icd->total("kernels"), 15);
  EXPECT_EQ(stepper.result(), Stepper::expected(5));
  EXPECT_EQ(stepper.rig.device->counters().launches, 15);
}

TEST_F(OpenclCalls, ARefusedRecordableQueueFallsBackWithANote) {
  if (std::getenv("SITU_LIMITS")) GTEST_SKIP() << "SITU_LIMITS may forbid recording";
  icd->pretend(true);
  const std::pair<const char*, int> calls[] = {{"clCreateCommandQueue", 2},  // the first is the ordinary one
                                               {"clNewRecordingQCOM", 1},
                                               {"clEnqueueNDRangeKernel", 2},
                                               {"clEndRecordingQCOM", 1}};
  for (const auto& [call, nth] : calls) {
    icd->reset();
    icd->fail(call, nth, CL_OUT_OF_RESOURCES);
    Stepper stepper(2);
    ASSERT_EQ(notes_of(*stepper.rig.device).size(), 1u) << call;
    EXPECT_NE(notes_of(*stepper.rig.device)[0].find(call), std::string::npos);
    stepper.step();
    stepper.step();
    EXPECT_EQ(stepper.result(), Stepper::expected(2)) << call;
    auto again = stepper.rig.device->bind(std::vector{axpy_launch(stepper.x, stepper.y, 5)}, *stepper.storage);
    EXPECT_EQ(notes_of(*stepper.rig.device).size(), 1u) << "after a refusal the queue records again: " << call;
  }
  icd->pretend(false);
  Stepper without(2);
  ASSERT_EQ(notes_of(*without.rig.device).size(), 1u);
  EXPECT_NE(notes_of(*without.rig.device)[0].find("has no cl_qcom_recordable_queues"), std::string::npos);
  without.step();
  EXPECT_EQ(without.result(), Stepper::expected(1));
}

TEST_F(OpenclCalls, RecordingsOfARecordableQueueAreReleased) {
  if (std::getenv("SITU_LIMITS")) GTEST_SKIP() << "SITU_LIMITS may forbid recording";
  icd->pretend(true);
  {
    Stepper stepper(2);
    stepper.step();
  }
  EXPECT_EQ(icd->calls("clNewRecordingQCOM"), 1);
  EXPECT_EQ(icd->calls("clReleaseRecordingQCOM"), 1);
  EXPECT_EQ(icd->calls("clCreateCommandQueue"), icd->calls("clReleaseCommandQueue"));
}

// --- how much is submitted at once ----------------------------------------------------------------------------------
// Each launch is estimated at a millisecond.
device::DeviceOptions cut_at(int64_t max_us, int record = 0) {
  device::DeviceOptions options;
  options.tuning.set("device.launch_ns", 1'000'000);
  options.tuning.set("submit.flush", 0);
  options.tuning.set("submit.max_us", max_us);
  options.tuning.set("submit.record", record);
  options.tuning.set("submit.lend", 0);
  return options;
}

TEST_F(OpenclCalls, LongSubmissionsAreCutAndNobodyWaits) {
  const std::pair<int64_t, int64_t> flushes_at[] = {{0, 1}, {500, 3}, {2500, 2}, {3000, 1}, {100'000, 1}};
  for (const auto& [max_us, flushes] : flushes_at) {  // of three launches
    Stepper stepper(cut_at(max_us));
    icd->reset();
    for (int i = 0; i < 4; ++i) stepper.step();
    EXPECT_EQ(icd->calls("clFlush"), 4 * flushes) << max_us;
    EXPECT_EQ(icd->total("waits"), 0);
    EXPECT_EQ(stepper.result(), Stepper::expected(4));
  }
}

TEST_F(OpenclCalls, RecordingsAreCutToo) {
  if (std::getenv("SITU_LIMITS")) GTEST_SKIP() << "SITU_LIMITS may forbid recording";
  icd->pretend(true);
  Stepper stepper(cut_at(2500, 2));
  icd->reset();
  for (int i = 0; i < 4; ++i) stepper.step();
  EXPECT_EQ(icd->calls("clEnqueueRecordingQCOM"), 8);
  EXPECT_EQ(icd->calls("clFlush"), 8);
  EXPECT_EQ(icd->total("kernels"), 12);
  EXPECT_EQ(stepper.result(), Stepper::expected(4));
}

TEST_F(OpenclCalls, MeasuredTimesTakeThePlaceOfEstimates) {
  Stepper stepper(cut_at(2500));
  stepper.rig.device->start_profile();
  stepper.step();
  stepper.rig.device->stop_profile();
  icd->reset();
  stepper.step();
  EXPECT_EQ(icd->calls("clFlush"), 1) << "eight additions take no millisecond";
}

TEST_F(OpenclCalls, HintsReachTheQueue) {
  icd->pretend(true);
  device::DeviceOptions options;
  options.tuning.set("submit.priority", 1);
  options.tuning.set("submit.throttle", 3);
  Stepper stepper(options);
  EXPECT_EQ(icd->total("priority"), 4);  // CL_QUEUE_PRIORITY_LOW_KHR
  EXPECT_EQ(icd->total("throttle"), 1);  // CL_QUEUE_THROTTLE_HIGH_KHR
  EXPECT_EQ(icd->calls("clCreateCommandQueue"), 0);
  EXPECT_TRUE(notes_of(*stepper.rig.device).empty());
  stepper.rig.device->start_profile();
  stepper.step();
  EXPECT_EQ(stepper.rig.device->stop_profile().events.size(), 4u);
  icd->fail("clCreateCommandQueueWithProperties", 1, CL_INVALID_QUEUE_PROPERTIES);
  Stepper refused(options);
  ASSERT_EQ(notes_of(*refused.rig.device).size(), 1u);
  EXPECT_NE(notes_of(*refused.rig.device)[0].find("refuses the queue's hints"), std::string::npos);
  refused.step();
  EXPECT_EQ(refused.result(), Stepper::expected(1));
}

TEST_F(OpenclCalls, HintsThatTheDriverLacksAreNoted) {
  device::DeviceOptions options;
  options.tuning.set("submit.priority", 1);
  const DeviceInfo info = choose_device(load_opencl(), "").info;
  if (info.priority_hints) GTEST_SKIP() << "the driver has priority hints";
  Stepper stepper(options);
  ASSERT_EQ(notes_of(*stepper.rig.device).size(), 1u);
  EXPECT_NE(notes_of(*stepper.rig.device)[0].find("no cl_khr_priority_hints"), std::string::npos);
}

TEST_F(OpenclCalls, ImpossibleSubmissionsAreNamed) {
  device::DeviceOptions options;
  options.tuning.set("submit.record", 7);
  try {
    make_device(options);
    FAIL() << "no failure";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("submit.record = 7 is not possible: use a number from 0 to 2"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace situ::opencl
#endif
