// harness.h -- what test files share: devices opened once, and a folder that vanishes.
#pragma once
#include <string>

#include "device/device.h"

namespace situ::test {

// "ref", "cpu" or "opencl", opened once. Null if SITU_TEST_DEVICES is set and does not name it.
device::Device* device_under_test(const std::string& name);
std::string scratch_folder();  // of this process, removed at exit

}  // namespace situ::test
