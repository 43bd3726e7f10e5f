// device.h -- the oracle as a device: every op by its plain reference, every element a double, one thread, no tricks.
#pragma once
#include <cstdint>
#include <memory>

#include "device/device.h"

namespace situ::ref {
// noise: if not 0, every result is off by up to half a unit of float32's rounding of its terms (ops/magnitude.h), drawn
// from this seed. What a program computes then differs from the exact run by what float32 may honestly make of it.
std::unique_ptr<device::Device> make_device(uint64_t noise = 0);
}  // namespace situ::ref
