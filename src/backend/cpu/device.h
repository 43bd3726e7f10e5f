// device.h -- the processor itself as a device: slabs are host memory, launches run at once on a thread pool.
#pragma once
#include <memory>

#include "device/device.h"

namespace situ::cpu {

// Uses options.threads, and options.tuning over what devices/cpu.json says. The target's name holds the instruction set
// the kernels run with ("AMD EPYC (AVX2)"), so that tuning records can be matched to it.
std::unique_ptr<device::Device> make_device(const device::DeviceOptions& options = {});

}  // namespace situ::cpu
