// device.h -- the oracle as a device: every op by its plain reference, every element a double, one thread, no tricks.
#pragma once
#include <memory>

#include "device/device.h"

namespace situ::ref {
std::unique_ptr<device::Device> make_device();
}
