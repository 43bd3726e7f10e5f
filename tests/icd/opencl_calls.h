// opencl_calls.h -- for tests that see the OpenCL runtime from outside: a fixture that counts every call, and a step.
#pragma once
#include <optional>

#include "icd/counting_icd.h"
#include "icd/opencl_fixture.h"

#ifdef SITU_TEST_ICD
namespace situ::opencl::test {

class OpenclCalls : public OpenclTest {
 protected:
  void SetUp() override {
    OpenclTest::SetUp();
    if (IsSkipped()) return;
    icd.emplace(SITU_TEST_ICD);
    through_icd.emplace("SITU_OPENCL_LIBRARY", SITU_TEST_ICD);
  }
  std::optional<situ::test::CountingIcd> icd;
  std::optional<Environment> through_icd;
};

// A step as training does it: upload, launches, submit, at most two in flight.
struct Stepper {
  explicit Stepper(int record, const std::string& cache = "") : Stepper(options(record, cache)) {}
  explicit Stepper(const device::DeviceOptions& how) : rig(how) {
    storage = rig.device->allocate({1 << 16});
    const std::vector<device::LaunchSpec> launches = {axpy_launch(x, y, 1), axpy_launch(y, z, 1),
                                                      axpy_launch(x, z, -1)};
    executable = rig.device->bind(launches, *storage);
  }
  static device::DeviceOptions options(int record, const std::string& cache) {
    device::DeviceOptions result;
    result.tuning.set("submit.record", record);
    result.tuning.set("submit.lend", 0);
    result.cache_folder = cache;
    return result;
  }
  void step() {
    rig.device->wait(tickets[turn]);
    rig.device->write(*storage, 0, x.offset, batch.data(), 32);
    executable->enqueue();
    tickets[turn] = rig.device->submit();
    turn ^= 1;
  }
  float result() {
    float value = 0;
    rig.device->read(*storage, 0, z.offset, &value, 4);
    return value;
  }
  static float expected(int steps) { return 0.5f * static_cast<float>(steps * (steps - 1)); }  // y = n, z += n - 1

  const Matrix x{0, 16384, 1, 8, 8}, y{0, 20480, 1, 8, 8}, z{0, 24576, 1, 8, 8};
  const std::vector<float> batch = std::vector<float>(8, 1.0f);
  Rig rig;
  std::unique_ptr<device::Storage> storage;
  std::unique_ptr<device::Executable> executable;
  device::Ticket tickets[2] = {0, 0};
  int turn = 0;
};

}  // namespace situ::opencl::test
#endif
