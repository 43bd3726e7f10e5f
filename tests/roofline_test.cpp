// roofline_test.cpp -- measured rates: their kernels compute what they say, sizes and files are right. Nothing is
// timed.
#include "step/roofline.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/file.h"
#include "harness.h"

namespace situ::test {
namespace {

device::Roofline some() {
  device::Roofline r;
  r.peak_flops = 100e9;
  r.levels = {{1 << 10, 80e9}, {1 << 14, 40e9}, {1 << 20, 10e9}};
  r.copy_in_bandwidth = 5e9;
  r.copy_out_bandwidth = 4e9;
  r.write_seconds = 1e-6;
  r.read_seconds = 9e-6;
  r.launch_seconds = 2e-6;
  r.wait_seconds = 20e-6;
  r.device = "a device";
  r.driver = "1.0";
  r.measured = "2026-11-16";
  return r;
}

TEST(Roofline, BandwidthFollowsTheWorkingSet) {
  const device::Roofline r = some();
  EXPECT_EQ(r.bandwidth(1), 80e9);
  EXPECT_EQ(r.bandwidth(1 << 10), 80e9);
  EXPECT_NEAR(r.bandwidth(1 << 12), 60e9, 1);  // halfway between two levels, by the logarithm
  EXPECT_NEAR(r.bandwidth(1 << 14), 40e9, 1);
  EXPECT_NEAR(r.bandwidth(1 << 17), 25e9, 1);
  EXPECT_EQ(r.bandwidth(int64_t{1} << 40), 10e9);
}

TEST(Roofline, ALaunchTakesNoLessThanItsArithmeticAndItsBytes) {
  const device::Roofline r = some();
  EXPECT_NEAR(r.seconds(1e9, 1 << 20), 0.01, 1e-9);
  EXPECT_TRUE(r.compute_bound(1e9, 1 << 20));
  EXPECT_NEAR(r.seconds(1e3, 1 << 20), (1 << 20) / 10e9, 1e-9);
  EXPECT_FALSE(r.compute_bound(1e3, 1 << 20));
}

TEST(Roofline, SurvivesItsFile) {
  const TemporaryFolder folder;
  device::Target target;
  target.name = "a device";
  EXPECT_FALSE(step::load_roofline(target, folder.path()));
  step::save_roofline(some(), target, folder.path());
  const auto read = step::load_roofline(target, folder.path());
  ASSERT_TRUE(read);
  EXPECT_EQ(device::to_json(*read), device::to_json(some()));
  target.compute_units = 2;
  EXPECT_FALSE(step::load_roofline(target, folder.path())) << "other threads, other rates";
  target.compute_units = 1;
  target.driver = "2.0";
  EXPECT_FALSE(step::load_roofline(target, folder.path())) << "another driver";
}

TEST(Roofline, AFileThatIsNoneSaysWhatMakesOne) {
  for (const char* text : {"", "[]", "{\"device\": 1}", "not JSON"})
    expect_error([&] { device::roofline_from_json(text, "x.json"); }, "x.json holds no measured rates");
  device::Roofline zero = some();
  zero.levels[1].bandwidth = 0;
  expect_error([&] { device::roofline_from_json(device::to_json(zero), "x.json"); }, "not positive");
}

TEST(Roofline, TheOracleHasNothingToMeasure) {
  if (device::Device* ref = device_under_test("ref"))
    expect_error([&] { step::measure_roofline(*ref); }, "nothing to measure");
}

class Rooflines : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    device_ = device_under_test(GetParam());
    if (!device_) GTEST_SKIP();
  }
  device::Device* device_ = nullptr;
};

device::TensorArg tensor(int64_t offset, int64_t rows, int64_t cols) {
  return {2, device::kZeroRun + offset, cols, {DType::f32, Shape{rows, cols}}};
}

TEST_P(Rooflines, KernelsComputeWhatIsCounted) {
  constexpr int64_t kCount = 3 * 128;  // an odd number of parts
  const auto storage = device_->allocate({device::kZeroRun, device::kZeroRun, device::kZeroRun + (1 << 20)});
  std::vector<float> a(kCount), b(kCount), c(kCount), rows(3 * 160);
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<float>(i);
    b[i] = 1.0f / static_cast<float>(i + 1);
  }
  constexpr int64_t kBytes = kCount * 4;
  device_->write(*storage, 2, device::kZeroRun, a.data(), kBytes);
  device_->write(*storage, 2, device::kZeroRun + kBytes, b.data(), kBytes);
  const auto arrays = tensor(0, 1, kCount);
  const auto chains = tensor(65536, 3, 160);
  const std::vector<device::LaunchSpec> launches = {{{"peak_triad", {}, {}, {{"rounds", int64_t{2}}}},
                                                     {arrays, tensor(kBytes, 1, kCount)},
                                                     {tensor(2 * kBytes, 1, kCount)}},
                                                    {{"peak_flops", {}, {}, {{"rounds", int64_t{50}}}}, {}, {chains}}};
  const auto executable = device_->bind(launches, *storage);
  executable->enqueue();
  device_->read(*storage, 2, device::kZeroRun + 2 * kBytes, c.data(), kBytes);
  for (size_t i = 0; i < c.size(); ++i) EXPECT_FLOAT_EQ(c[i], a[i] / 2 + b[i]) << i;
  device_->read(*storage, 2, device::kZeroRun + 65536, rows.data(), static_cast<int64_t>(rows.size() * 4));
  const double expected = 1 - std::pow(0.999, 50);  // the fixed point of y a + b is 1
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_NEAR(rows[i], expected, 1e-5) << i;
}

TEST_P(Rooflines, MeasuresEveryPartOfIt) {
  step::RooflineOptions options;
  options.seconds = 0;
  options.largest = 1 << 20;
  int turns = 0;
  options.progress = [&](int turn, int) { turns = turn; };
  const device::Roofline r = step::measure_roofline(*device_, options);
  EXPECT_GE(turns, 3);
  EXPECT_GT(r.peak_flops, 1e6);
  ASSERT_EQ(r.levels.size(), 4u);  // 16 KiB, 64 KiB, 256 KiB, 1 MiB
  for (size_t i = 0; i < r.levels.size(); ++i) {
    EXPECT_EQ(r.levels[i].bytes, int64_t{16384} << (2 * i));
    EXPECT_GT(r.levels[i].bandwidth, 1e6);
  }
  for (double rate : {r.copy_in_bandwidth, r.copy_out_bandwidth, r.write_seconds, r.read_seconds, r.launch_seconds})
    EXPECT_GT(rate, 0);
  EXPECT_GE(r.wait_seconds, 0);
  EXPECT_EQ(r.device, device_->target().name);
  EXPECT_EQ(r.measured.size(), 10u);
  EXPECT_EQ(device::to_json(device::roofline_from_json(device::to_json(r), "")), device::to_json(r));
}

INSTANTIATE_TEST_SUITE_P(Devices, Rooflines, testing::Values("cpu", "opencl"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace situ::test
