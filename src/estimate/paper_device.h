// paper_device.h -- a device that exists on paper: it compiles programs as the real one would, and runs nothing.
#pragma once
#include <memory>

#include "device/device.h"

namespace situ::estimate {

// With the kernels and candidates of target.backend, `cpu` or `opencl`.
std::unique_ptr<device::Device> make_paper_device(const device::Target& target);

}  // namespace situ::estimate
