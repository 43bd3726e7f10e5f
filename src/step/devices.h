// devices.h -- devices by name: `cpu`, `ref`, `opencl`, `opencl:PART-OF-A-NAME`.
#pragma once
#include <memory>
#include <string_view>

#include "device/device.h"

namespace situ::step {
std::unique_ptr<device::Device> open_device(std::string_view spec, device::DeviceOptions options = {});
}
