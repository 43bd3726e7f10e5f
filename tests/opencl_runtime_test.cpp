// opencl_runtime_test.cpp -- the OpenCL runtime with kernels of its own: memory, binding, queueing, tickets, profiling,
// recording, and the sentences users see when something is missing.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <numeric>

#include "backend/opencl/device.h"
#include "backend/opencl/devices.h"
#include "backend/opencl/loader.h"
#include "base/error.h"
#include "base/file.h"
#include "icd/opencl_fixture.h"

namespace situ::opencl {
namespace {

using device::DeviceOptions;
using device::EventKind;
using device::LaunchSpec;
using test::axpy_launch;
using test::Matrix;
using test::OpenclTest;
using test::Rig;

class OpenclRuntime : public OpenclTest {};

std::vector<float> ramp(size_t n, float start = 0) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), start);
  return values;
}

std::string failure_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no failure";
}

// --- devices --------------------------------------------------------------------------------------------------------
TEST_F(OpenclRuntime, ListsDevicesWithTheirLimits) {
  const std::vector<DeviceInfo> devices = list_devices();
  ASSERT_FALSE(devices.empty());
  for (const DeviceInfo& info : devices) {
    EXPECT_FALSE(info.platform.empty());
    EXPECT_FALSE(info.name.empty());
    EXPECT_NE(info.version.find("OpenCL"), std::string::npos);
    EXPECT_GE(info.compute_units, 1);
    EXPECT_GT(info.memory, 0);
    EXPECT_GT(info.max_alloc, 0);
    EXPECT_LE(info.max_alloc, info.memory);
  }
}

TEST_F(OpenclRuntime, ChoosesByPartOfTheNameWhateverTheCase) {
  std::string part = list_devices().front().name.substr(1);
  for (char& c : part) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  DeviceOptions options;
  options.name = part;
  EXPECT_NE(make_device(options)->target().name.find(list_devices().front().name), std::string::npos);
}

TEST_F(OpenclRuntime, UnknownNameListsWhatThereIs) {
  DeviceOptions options;
  options.name = "no such device";
  const std::string failure = failure_of([&] { make_device(options); });
  EXPECT_NE(failure.find("no OpenCL device matches 'no such device'"), std::string::npos) << failure;
  EXPECT_NE(failure.find(list_devices().front().name), std::string::npos) << failure;
}

TEST_F(OpenclRuntime, MissingLibraryNamesTheVariable) {
  const test::Environment environment("SITU_OPENCL_LIBRARY", "/nowhere/libOpenCL.so");
  const std::string failure = failure_of([] { make_device({}); });
  EXPECT_NE(failure.find("SITU_OPENCL_LIBRARY"), std::string::npos) << failure;
  EXPECT_FALSE(opencl_installed());
}

TEST_F(OpenclRuntime, LibraryWithoutOpenClNamesTheMissingFunction) {
  const test::Environment environment("SITU_OPENCL_LIBRARY", "libm.so.6");
  const std::string failure = failure_of([] { make_device({}); });
  EXPECT_NE(failure.find("lacks clGetPlatformIDs"), std::string::npos) << failure;
}

TEST_F(OpenclRuntime, TargetTakesOptionsOverTuningFiles) {
  DeviceOptions options;
  options.tuning.set("device.gflops", 7);
  options.tuning.set("some.key", 3);
  const auto device = make_device(options);
  EXPECT_EQ(device->target().peak_flops, 7e9);
  EXPECT_EQ(device->target().tuning.get("some.key", 0), 3);
  EXPECT_GE(device->target().alignment, 128);
}

// --- memory ---------------------------------------------------------------------------------------------------------
TEST_F(OpenclRuntime, SlabsStartAsZerosAndHoldWhatIsWritten) {
  Rig rig;
  auto storage = rig.device->allocate({40000, 1000});
  std::vector<float> values(10000, 1.0f);
  rig.device->read(*storage, 0, 0, values.data(), 40000);
  EXPECT_EQ(values, std::vector<float>(10000, 0.0f));
  const std::vector<float> ramp_values = ramp(100);
  rig.device->write(*storage, 1, 400, ramp_values.data(), 400);
  values.assign(100, 0);
  rig.device->read(*storage, 1, 400, values.data(), 400);
  EXPECT_EQ(values, ramp_values);
  const device::Counters& counters = rig.device->counters();
  EXPECT_EQ(counters.writes, 1);
  EXPECT_EQ(counters.bytes_in, 400);
  EXPECT_EQ(counters.reads, 2);
  EXPECT_EQ(counters.bytes_out, 40400);
  EXPECT_EQ(counters.waits, 2);
}

TEST_F(OpenclRuntime, TooLargeAnAllocationSaysWhatIsNeededAndThere) {
  Overrides overrides = test::test_kernels();
  overrides.target = [](device::Target& target) {
    target.max_slab = 1 << 20;
    target.memory = 3 << 20;
  };
  Rig rig({}, overrides);
  const auto sentence = [&](std::vector<int64_t> slabs) { return failure_of([&] { rig.device->allocate(slabs); }); };
  EXPECT_NE(sentence({2 << 20}).find("an allocation of 2.0 MiB is more than"), std::string::npos)
      << sentence({2 << 20});
  const std::vector<int64_t> four(4, 1 << 20);
  EXPECT_NE(sentence(four).find("4.0 MiB are needed"), std::string::npos) << sentence(four);
  auto two = rig.device->allocate({1 << 20, 1 << 20});
  EXPECT_NE(sentence({1 << 20, 1 << 20}).find("2.0 MiB are in use"), std::string::npos);
  two.reset();
  EXPECT_EQ(sentence({1 << 20, 1 << 20}), "no failure");
}

TEST_F(OpenclRuntime, DriverLimitHoldsWithoutOverrides) {
  Rig rig;
  const std::string failure = failure_of([&] { rig.device->allocate({int64_t{1} << 50}); });
  EXPECT_NE(failure.find("use a smaller batch"), std::string::npos) << failure;
}

TEST_F(OpenclRuntime, AccessOutsideASlabIsABug) {
  Rig rig;
  auto storage = rig.device->allocate({1024});
  float value = 0;
  EXPECT_THROW(rig.device->read(*storage, 0, 1024, &value, 4), Error);
  EXPECT_THROW(rig.device->write(*storage, 1, 0, &value, 4), Error);
}

// --- launches -------------------------------------------------------------------------------------------------------
TEST_F(OpenclRuntime, RunsLaunchesInOrderOnPitchedTensors) {
  Rig rig;
  auto storage = rig.device->allocate({1 << 16, 1 << 16});
  const Matrix x{1, 16384, 5, 3, 7}, y{0, 20480, 5, 3, 4};  // slab, offset, rows, cols, pitch
  const std::vector<float> x_values = ramp(35), y_values = ramp(20, 100);
  rig.device->write(*storage, x.slab, x.offset, x_values.data(), 140);
  rig.device->write(*storage, y.slab, y.offset, y_values.data(), 80);
  const std::vector<LaunchSpec> launches = {axpy_launch(x, y, 2), axpy_launch(y, y, 1)};
  auto executable = rig.device->bind(launches, *storage);
  EXPECT_EQ(executable->launches(), 2);
  executable->enqueue();
  std::vector<float> result(20);
  rig.device->read(*storage, y.slab, y.offset, result.data(), 80);
  for (size_t r = 0; r < 5; ++r)
    for (size_t c = 0; c < 4; ++c) {
      const float before = y_values[r * 4 + c];
      EXPECT_EQ(result[r * 4 + c], c < 3 ? 2 * (before + 2 * x_values[r * 7 + c]) : before) << r << "," << c;
    }
  EXPECT_EQ(rig.device->counters().launches, 2);
}

TEST_F(OpenclRuntime, EnqueuesAPart) {
  Rig rig;
  auto storage = rig.device->allocate({1 << 16});
  const Matrix x{0, 16384, 1, 8, 8}, y{0, 20480, 1, 8, 8};
  const std::vector<float> x_values(8, 1.0f);
  rig.device->write(*storage, 0, x.offset, x_values.data(), 32);
  const std::vector<LaunchSpec> launches = {axpy_launch(x, y, 1), axpy_launch(x, y, 10), axpy_launch(x, y, 100)};
  auto executable = rig.device->bind(launches, *storage);
  executable->enqueue(1, 1);
  rig.device->finish();
  executable->enqueue(2, 1);
  float value = 0;
  rig.device->read(*storage, 0, y.offset, &value, 4);
  EXPECT_EQ(value, 110);
  EXPECT_EQ(rig.device->counters().launches, 2);
  EXPECT_EQ(rig.device->counters().waits, 2);
  EXPECT_THROW(executable->enqueue(2, 2), Error);
}

TEST_F(OpenclRuntime, TablesAndIncludesReachTheKernel) {
  Rig rig;
  auto storage = rig.device->allocate({1 << 16});
  const Matrix y{0, 16384, 1, 4, 4};
  auto executable = rig.device->bind(std::vector{test::table_launch(y, {3, 1, 4, 1})}, *storage);
  executable->enqueue();
  std::vector<float> result(4);
  rig.device->read(*storage, 0, y.offset, result.data(), 16);
  EXPECT_EQ(result, (std::vector<float>{1003, 1001, 1004, 1001}));
}

TEST_F(OpenclRuntime, OversizedGroupIsLeftToTheDriverUnlessTheKernelNeedsIt) {
  Rig rig;
  auto storage = rig.device->allocate({1 << 20});
  const int huge = 1 << 16;  // more than any device's limit
  const Matrix y{0, 16384, 1, huge, huge};
  auto free_group = rig.device->bind(std::vector{test::grouped_launch("test_grouped", y, huge)}, *storage);
  free_group->enqueue();
  std::vector<float> result(static_cast<size_t>(huge));
  rig.device->read(*storage, 0, y.offset, result.data(), huge * 4);
  EXPECT_EQ(result, std::vector<float>(static_cast<size_t>(huge), 1.0f));
  const std::string failure =
      failure_of([&] { rig.device->bind(std::vector{test::grouped_launch("test_shared", y, huge)}, *storage); });
  EXPECT_NE(failure.find("needs groups of 65536x1x1 work-items"), std::string::npos) << failure;
}

TEST_F(OpenclRuntime, BuildFailureShowsFileOptionsAndLog) {
  Rig rig;
  auto storage = rig.device->allocate({1 << 16});
  const Matrix y{0, 16384, 1, 4, 4};
  const std::string failure =
      failure_of([&] { rig.device->bind(std::vector{test::named_launch("test_broken", y)}, *storage); });
  EXPECT_NE(failure.find("broken.cl"), std::string::npos) << failure;
  EXPECT_NE(failure.find("-DWIDTH=4"), std::string::npos) << failure;
  EXPECT_NE(failure.find("no_such_thing"), std::string::npos) << failure;
}

TEST_F(OpenclRuntime, WrongArgumentCountAndUnknownKernelAreBugs) {
  Rig rig;
  auto storage = rig.device->allocate({1 << 16});
  const Matrix y{0, 16384, 1, 4, 4};
  const auto failure = [&](const char* kernel) {
    return failure_of([&] { rig.device->bind(std::vector{test::named_launch(kernel, y)}, *storage); });
  };
  EXPECT_NE(failure("test_too_few").find("takes 8 arguments, its call gives 3"), std::string::npos)
      << failure("test_too_few");
  EXPECT_NE(failure("no_such_kernel").find("there is no OpenCL kernel 'no_such_kernel'"), std::string::npos);
  EXPECT_TRUE(rig.device->has_kernel("test_axpy"));
  EXPECT_FALSE(rig.device->has_kernel("no_such_kernel"));
}

TEST_F(OpenclRuntime, ManyProgramsBuildInParallel) {
  Rig rig;
  auto storage = rig.device->allocate({1 << 16});
  std::vector<LaunchSpec> launches;
  launches.reserve(6);
  for (int i = 0; i < 6; ++i) launches.push_back(test::variant_launch({0, 16384 + i * 128, 1, 4, 4}, i));
  auto executable = rig.device->bind(launches, *storage);
  executable->enqueue();
  for (int i = 0; i < 6; ++i) {
    float value = 0;
    rig.device->read(*storage, 0, 16384 + i * 128, &value, 4);
    EXPECT_EQ(value, static_cast<float>(i));
  }
}

// --- tickets --------------------------------------------------------------------------------------------------------
TEST_F(OpenclRuntime, TicketsCompleteInOrderWithoutCountingWhatIsDone) {
  Rig rig;
  auto storage = rig.device->allocate({1 << 16});
  const Matrix x{0, 16384, 1, 8, 8}, y{0, 20480, 1, 8, 8};
  auto executable = rig.device->bind(std::vector{axpy_launch(x, y, 1)}, *storage);
  executable->enqueue();
  const device::Ticket first = rig.device->submit();
  executable->enqueue();
  const device::Ticket second = rig.device->submit();
  EXPECT_EQ(second, first + 1);
  rig.device->wait(second);
  const int64_t waits = rig.device->counters().waits;
  EXPECT_LE(waits, 1);
  rig.device->wait(first);
  rig.device->wait(second);
  EXPECT_EQ(rig.device->counters().waits, waits);
}

TEST_F(OpenclRuntime, AReadCompletesEarlierTickets) {
  Rig rig;
  auto storage = rig.device->allocate({1 << 16});
  float value = 0;
  for (int i = 0; i < 50; ++i) {
    const device::Ticket ticket = rig.device->submit();
    rig.device->read(*storage, 0, 0, &value, 4);
    rig.device->wait(ticket);
  }
  EXPECT_EQ(rig.device->counters().waits, 50);
}

TEST_F(OpenclRuntime, MoreTicketsThanTheRingHolds) {
  Rig rig;
  auto storage = rig.device->allocate({1 << 16});
  const Matrix x{0, 16384, 1, 8, 8}, y{0, 20480, 1, 8, 8};
  const std::vector<float> ones(8, 1.0f);
  rig.device->write(*storage, 0, x.offset, ones.data(), 32);
  auto executable = rig.device->bind(std::vector{axpy_launch(x, y, 1)}, *storage);
  device::Ticket ticket = 0;
  for (int i = 0; i < 500; ++i) {
    executable->enqueue();
    ticket = rig.device->submit();
  }
  rig.device->wait(ticket);
  float value = 0;
  rig.device->read(*storage, 0, y.offset, &value, 4);
  EXPECT_EQ(value, 500);
  EXPECT_THROW(rig.device->wait(ticket + 1), Error);
}

TEST_F(OpenclRuntime, ADeviceMayGoWhileWorkIsQueued) {
  for (int i = 0; i < 5; ++i) {
    Rig rig;
    auto storage = rig.device->allocate({1 << 16});
    auto executable = rig.device->bind(std::vector{axpy_launch({0, 16384, 1, 8, 8}, {0, 20480, 1, 8, 8}, 1)}, *storage);
    for (int j = 0; j < 10; ++j) executable->enqueue();
    rig.device->submit();
  }
}

// --- profiling and recording ----------------------------------------------------------------------------------------
TEST_F(OpenclRuntime, ProfileTimesEveryCommand) {
  Rig rig;
  auto storage = rig.device->allocate({1 << 16});
  const Matrix x{0, 16384, 1, 8, 8}, y{0, 20480, 1, 8, 8};
  const std::vector<float> ones(8, 1.0f);
  auto executable = rig.device->bind(std::vector{axpy_launch(x, y, 1), axpy_launch(x, y, 10)}, *storage);
  executable->enqueue();  // unprofiled work before it is kept apart and in order
  rig.device->start_profile();
  rig.device->write(*storage, 0, x.offset, ones.data(), 32);
  executable->enqueue();
  float value = 0;
  rig.device->read(*storage, 0, y.offset, &value, 4);
  const device::Timeline timeline = rig.device->stop_profile();
  EXPECT_EQ(value, 11);
  ASSERT_EQ(timeline.events.size(), 4u);
  const EventKind kinds[] = {EventKind::write, EventKind::kernel, EventKind::kernel, EventKind::read};
  const int indices[] = {-1, 0, 1, -1};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(timeline.events[i].kind, kinds[i]) << i;
    EXPECT_EQ(timeline.events[i].launch, indices[i]) << i;
    EXPECT_LE(timeline.events[i].start, timeline.events[i].end) << i;
    if (i > 0) {
      EXPECT_LE(timeline.events[i - 1].end, timeline.events[i].start) << i;
    }
  }
  for (size_t i = 0; i < 4; ++i) EXPECT_LE(timeline.events[i].queued, timeline.events[i].start) << i;
  double blocked = 0;
  for (const device::HostSpan& span : timeline.host) {
    EXPECT_LE(span.start, span.end);
    if (span.kind == device::HostKind::blocked) blocked += span.end - span.start;
  }
  EXPECT_GT(blocked, 0);  // in the read
  EXPECT_LT(timeline.events.back().end - timeline.events.front().start, 60);
  executable->enqueue();  // and work after it goes on as before
  rig.device->read(*storage, 0, y.offset, &value, 4);
  EXPECT_EQ(value, 22);
  rig.device->start_profile();
  EXPECT_TRUE(rig.device->stop_profile().events.empty());
}

TEST_F(OpenclRuntime, RecordedAndPlainReplayAgree) {
  std::vector<std::vector<float>> results;
  for (int record : {0, 1}) {
    DeviceOptions options;
    options.tuning.set("submit.record", record);
    options.tuning.set("submit.flush", record == 0 ? 2 : 0);
    Rig rig(options);
    auto storage = rig.device->allocate({1 << 16});
    const Matrix x{0, 16384, 4, 8, 8}, y{0, 20480, 4, 8, 8};
    const std::vector<float> x_values = ramp(32, 1);
    rig.device->write(*storage, 0, x.offset, x_values.data(), 128);
    const std::vector<LaunchSpec> launches = {axpy_launch(x, y, 0.5f), axpy_launch(y, x, 0.25f),
                                              axpy_launch(x, x, 0.125f)};
    auto executable = rig.device->bind(launches, *storage);
    device::Ticket ticket = 0;
    for (int step = 0; step < 10; ++step) {
      executable->enqueue();
      ticket = rig.device->submit();
    }
    rig.device->wait(ticket);
    results.emplace_back(32);
    rig.device->read(*storage, 0, y.offset, results.back().data(), 128);
    EXPECT_EQ(rig.device->counters().launches, 30);
    if (list_devices().front().command_buffer) {
      EXPECT_TRUE(notes_of(*rig.device).empty()) << notes_of(*rig.device)[0];
    }
  }
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace
}  // namespace situ::opencl
