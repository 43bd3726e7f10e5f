// devices.h -- what OpenCL devices there are, what each can do, and which one a name means.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backend/opencl/cl_api.h"
#include "backend/opencl/features.h"
#include "device/target.h"

namespace situ::opencl {

enum class DeviceType { cpu, gpu, accelerator, other };
std::string_view name_of(DeviceType type);

struct DeviceInfo {
  std::string platform, name;
  std::string version, driver, platform_version;  // "OpenCL 3.0 PoCL ..", "3.1+debian", ..
  DeviceType type = DeviceType::other;
  int compute_units = 1, clock_mhz = 0;
  int64_t memory = 0, max_alloc = 0;         // bytes
  int64_t alignment = 128;                   // of a buffer's address, bytes
  std::array<size_t, 3> max_items{1, 1, 1};  // work-items in a work-group, along each axis
  size_t max_group = 1;                      // and together
  bool command_buffer = false, recordable_queue = false, fp16 = false, subgroups = false, images = false;
  bool priority_hints = false, throttle_hints = false;
  ImageLimits image_limits;      // where there are images
  std::string sub_group_option;  // what the compiler is told where they are used
  std::string extensions;        // as the driver lists them

  std::string full_name() const { return platform + " " + name; }
};

// All devices of all platforms, in the drivers' order, lowered to SITU_LIMITS (limits.h). Fails where no OpenCL library
// is installed.
std::vector<DeviceInfo> list_devices();

struct FoundDevice {
  cl_platform_id platform = nullptr;
  cl_device_id device = nullptr;
  DeviceInfo info;
};
std::vector<FoundDevice> find_devices(const Api& cl);

// The device whose platform or device name contains `name`, whatever the case; empty: the first GPU, else the first
// device. One sentence where there is none, listing what there is, or where it cannot run situ's kernels.
FoundDevice choose_device(const Api& cl, std::string_view name);

// Limits, rough rates and tuning of a device. Tuning keys device.gflops, device.gbytes (per second) and
// device.launch_ns correct the rates.
device::Target target_of(const DeviceInfo& info, const device::Tuning& overrides);

}  // namespace situ::opencl
