// opencl_calls_test.cpp -- the OpenCL runtime seen from outside, through a library that counts and forwards every call.
//
// What a step does: as many launches and bytes as the counters say, no wait, no creation, no allocation. What happens
// when any one call fails: an Error, or the right result; never a crash.
#include "icd/opencl_calls.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <numeric>

#include "alloc_count.h"
#include "backend/opencl/devices.h"
#include "backend/opencl/loader.h"
#include "base/error.h"
#include "base/file.h"

#ifdef SITU_TEST_ICD
namespace situ::opencl {
namespace {

using device::Counters;
using test::axpy_launch;
using test::Matrix;
using test::OpenclCalls;
using test::Rig;
using test::Stepper;

class OpenclCallsRecorded : public OpenclCalls, public ::testing::WithParamInterface<int> {};

TEST_P(OpenclCallsRecorded, StepsNeitherWaitNorCreateNorAllocate) {
  icd->pretend(GetParam() == 2);
  Stepper stepper(GetParam());
  for (int i = 0; i < 10; ++i) stepper.step();
  icd->reset();
  const Counters before = stepper.rig.device->counters();
  int64_t allocations = 0;
  std::string where;
  {
    const situ::test::CountAllocations counted(icd->depth());
    for (int i = 0; i < 100; ++i) stepper.step();
    allocations = counted.count();
    where = counted.first();
  }
  const Counters& after = stepper.rig.device->counters();
  EXPECT_EQ(allocations, 0) << where;
  EXPECT_EQ(icd->total("waits"), 0);
  EXPECT_EQ(icd->total("creations"), 0);
  EXPECT_EQ(icd->total("kernels"), 300);
  EXPECT_EQ(after.launches - before.launches, 300);
  EXPECT_EQ(icd->total("bytes_in"), 3200);
  EXPECT_EQ(after.bytes_in - before.bytes_in, 3200);
  EXPECT_EQ(icd->total("bytes_out"), 0);
  EXPECT_EQ(icd->calls("clFinish"), 0);
  EXPECT_EQ(icd->calls("clWaitForEvents"), 0);
  EXPECT_EQ(icd->calls("clSetKernelArg"), 0);
  EXPECT_EQ(stepper.result(), Stepper::expected(110));
  EXPECT_EQ(icd->total("waits"), 1);
}

// The batch is written into feeds in turn; x lies in slab 0, the rest elsewhere.
struct FedStepper {
  explicit FedStepper(int record) : rig(Stepper::options(record, "")) {
    storage = rig.device->allocate({1 << 16, 1 << 16}, kFeeds);
    const std::vector<device::LaunchSpec> launches = {axpy_launch(x, y, 1), axpy_launch(y, z, 1),
                                                      axpy_launch(x, z, -1)};
    executable = rig.device->bind(launches, *storage);
    for (int feed = 0; feed < kFeeds; ++feed) map(feed);
    rig.device->wait(rig.device->submit());
  }
  void map(int feed) { room[feed] = reinterpret_cast<float*>(rig.device->map(*storage, feed, x.offset, 32)); }
  void step(float value) {
    rig.device->wait(tickets[turn]);
    std::fill(room[turn], room[turn] + 8, value);
    rig.device->unmap(*storage, turn, 32);
    executable->enqueue(turn);
    map(turn);
    tickets[turn] = rig.device->submit();
    turn = (turn + 1) % kFeeds;
  }
  std::array<float, 2> result() {
    std::array<float, 2> value{};
    rig.device->read(*storage, 1, y.offset, &value[0], 4);
    rig.device->read(*storage, 1, z.offset, &value[1], 4);
    return value;
  }
  static constexpr int kFeeds = 3;
  const Matrix x{0, 16384, 1, 8, 8}, y{1, 20480, 1, 8, 8}, z{1, 24576, 1, 8, 8};
  Rig rig;
  std::unique_ptr<device::Storage> storage;
  std::unique_ptr<device::Executable> executable;
  std::array<float*, kFeeds> room{};
  device::Ticket tickets[kFeeds] = {};
  int turn = 0;
};

TEST_P(OpenclCallsRecorded, FedStepsNeitherWaitNorCreateNorCopy) {
  icd->pretend(GetParam() == 2);
  FedStepper stepper(GetParam());
  for (int i = 0; i < 10; ++i) stepper.step(1);
  icd->reset();
  int64_t allocations = 0;
  std::string where;
  float y = 10, z = 45;  // y adds x up, z what y was before
  {
    const situ::test::CountAllocations counted(icd->depth());
    for (int i = 0; i < 100; ++i) {
      const float x = static_cast<float>(i % 4);
      stepper.step(x);
      y += x;
      z += y - x;
    }
    allocations = counted.count();
    where = counted.first();
  }
  EXPECT_EQ(allocations, 0) << where;
  EXPECT_EQ(icd->total("waits"), 0);
  EXPECT_EQ(icd->total("creations"), 0);
  EXPECT_EQ(icd->total("kernels"), 300);
  EXPECT_EQ(icd->total("bytes_in"), 3200);
  EXPECT_EQ(icd->total("bytes_out"), 0);
  EXPECT_EQ(icd->calls("clEnqueueMapBuffer"), 100);
  EXPECT_EQ(icd->calls("clEnqueueUnmapMemObject"), 100);
  EXPECT_EQ(icd->calls("clEnqueueWriteBuffer"), 0);
  EXPECT_EQ(icd->calls("clEnqueueCopyBuffer"), 0);
  EXPECT_EQ(stepper.rig.device->counters().bytes_in, 110 * 32);
  EXPECT_EQ(stepper.result(), (std::array<float, 2>{y, z}));
}

TEST_F(OpenclCalls, OnlyLaunchesThatReadAFeedAreBoundForEach) {
  FedStepper stepper(0);
  EXPECT_EQ(icd->calls("clCreateKernel"), 3 + 1 + 3);
  EXPECT_EQ(icd->calls("clCreateBuffer"), 2 + 2);
}

TEST_F(OpenclCalls, FeedsAreUnmappedBeforeTheyGo) {
  {
    FedStepper stepper(0);
    for (int i = 0; i < 5; ++i) stepper.step(1);
  }
  EXPECT_EQ(icd->calls("clEnqueueMapBuffer"), icd->calls("clEnqueueUnmapMemObject"));
  EXPECT_EQ(icd->calls("clCreateBuffer"), icd->calls("clReleaseMemObject"));
}

TEST_F(OpenclCalls, AFailingMapIsAnError) {
  for (const char* call : {"clEnqueueMapBuffer", "clEnqueueUnmapMemObject"}) {
    FedStepper stepper(0);
    icd->fail(call, 1, CL_OUT_OF_RESOURCES);
    try {
      stepper.step(1);
      FAIL() << "no failure of " << call;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::environment) << error.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(PlainAndRecorded, OpenclCallsRecorded, ::testing::Values(0, 1, 2));

TEST_F(OpenclCalls, SameProgramIsBuiltOncePerDevice) {
  Stepper stepper(0);
  EXPECT_EQ(icd->calls("clBuildProgram"), 1);
  auto again = stepper.rig.device->bind(std::vector{axpy_launch(stepper.x, stepper.y, 5)}, *stepper.storage);
  EXPECT_EQ(icd->calls("clBuildProgram"), 1);
  EXPECT_EQ(icd->calls("clCreateKernel"), 4);
}

TEST_F(OpenclCalls, ProfilingQueueIsUsedOnlyWhileProfiling) {
  Stepper stepper(0);
  icd->reset();
  stepper.rig.device->start_profile();
  stepper.step();
  const device::Timeline timeline = stepper.rig.device->stop_profile();
  EXPECT_EQ(timeline.events.size(), 4u);
  EXPECT_EQ(icd->calls("clCreateCommandQueue"), 1);
  stepper.rig.device->start_profile();
  stepper.rig.device->stop_profile();
  EXPECT_EQ(icd->calls("clCreateCommandQueue"), 1);
  EXPECT_EQ(stepper.rig.device->counters().waits, 0);
}

TEST_F(OpenclCalls, EverythingMadeIsReleased) {
  {
    Stepper stepper(1);
    stepper.rig.device->start_profile();
    for (int i = 0; i < 3; ++i) stepper.step();
    stepper.rig.device->stop_profile();
    for (int i = 0; i < 100; ++i) stepper.step();
  }
  const auto made_and_released = [&](const char* make, const char* release) {
    EXPECT_EQ(icd->calls(make), icd->calls(release)) << make;
  };
  made_and_released("clCreateContext", "clReleaseContext");
  made_and_released("clCreateCommandQueue", "clReleaseCommandQueue");
  made_and_released("clCreateBuffer", "clReleaseMemObject");
  made_and_released("clCreateProgramWithSource", "clReleaseProgram");
  made_and_released("clCreateKernel", "clReleaseKernel");
  made_and_released("clCreateCommandBufferKHR", "clReleaseCommandBufferKHR");
  EXPECT_EQ(icd->calls("clReleaseEvent"), 103 + 12);  // a marker per step, four commands in each profiled one
}

TEST_F(OpenclCalls, NoPlatformNamesADriver) {
  icd->fail("clGetPlatformIDs", 1, -1001);
  try {
    make_device({});
    FAIL() << "a device without a platform";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::environment);
    EXPECT_NE(std::string(error.what()).find("install a driver such as pocl-opencl-icd"), std::string::npos);
  }
}

TEST_F(OpenclCalls, NoDeviceNamesADriver) {
  icd->fail("clGetDeviceIDs", 1, CL_DEVICE_NOT_FOUND);
  if (!list_devices().empty()) GTEST_SKIP() << "more than one platform";
  icd->fail("clGetDeviceIDs", 1, CL_DEVICE_NOT_FOUND);
  EXPECT_THROW(make_device({}), Error);
}

TEST_F(OpenclCalls, AllocationThatTheDriverRefusesSaysHowMuch) {
  Rig rig;
  icd->fail("clEnqueueFillBuffer", 2, CL_MEM_OBJECT_ALLOCATION_FAILURE);
  try {
    rig.device->allocate({1 << 20, 3 << 20});
    FAIL() << "no failure";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("3.0 MiB cannot be allocated"), std::string::npos) << error.what();
  }
  EXPECT_EQ(icd->calls("clReleaseMemObject"), 2);
}

// Every call of a whole run fails once, at each place it is made.
TEST_F(OpenclCalls, AnyFailingCallBecomesAnErrorOrChangesNothing) {
  const TemporaryFolder cache;  // so that each run loads its program instead of compiling it
  const auto run = [&] {
    Stepper stepper(1, cache.path());
    stepper.step();
    stepper.rig.device->start_profile();
    stepper.step();
    stepper.rig.device->stop_profile();
    stepper.step();
    stepper.rig.device->finish();
    return stepper.result();
  };
  EXPECT_EQ(run(), Stepper::expected(3));
  int failures = 0;
  for (int nth = 1;; ++nth) {
    icd->reset();
    icd->fail("*", nth, CL_OUT_OF_RESOURCES);
    const int64_t calls_before = icd->total("calls");
    try {
      EXPECT_EQ(run(), Stepper::expected(3)) << "call " << nth;
    } catch (const Error& error) {
      ++failures;
      EXPECT_EQ(error.kind(), ErrorKind::environment) << error.what();
    }
    if (icd->total("calls") - calls_before < nth) break;  // the whole run is shorter
    ASSERT_LT(nth, 2000);
  }
  EXPECT_GT(failures, 30);
}

// The compiler may not leave out an allocation whose pointer it must hand out.
void hand_out(const void* pointer) { asm volatile("" : : "r"(pointer) : "memory"); }

TEST(CountAllocations, CountsThisThreadsOwnAndNotTheDriversOnes) {
  if (!situ::test::can_count_allocations()) GTEST_SKIP() << "the sanitizer brings its own allocator";
  const auto allocate_three = [] {
    hand_out(std::make_unique<int>(1).get());
    hand_out(std::vector<double>(100).data());
    void* raw = std::malloc(10);
    hand_out(raw);
    std::free(raw);
  };
  {
    const situ::test::CountAllocations counted;
    allocate_three();
    EXPECT_EQ(counted.count(), 3);
    EXPECT_FALSE(counted.first().empty());
  }
  const situ::test::CountAllocations inside([] { return 1; });
  allocate_three();
  EXPECT_EQ(inside.count(), 0);
}

}  // namespace
}  // namespace situ::opencl
#endif  // SITU_TEST_ICD
