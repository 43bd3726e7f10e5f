// device.h -- the OpenCL back end behind device/device.h.
//
// Storages and executables belong to their device and go before it. One thread at a time uses a device.
// Profiling empties the queue when it starts and when it stops; those two waits are not counted.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/opencl/kernel.h"
#include "device/device.h"

namespace situ::opencl {

// What a caller may add or pretend: kernels of its own, and a weaker device than there is.
struct Overrides {
  std::vector<KernelList> kernels;                          // go before the built-in ones of the same name
  std::map<std::string, std::string, std::less<>> sources;  // file name -> text, before the embedded files
  std::function<void(device::Target&)> target;  // changes limits; every part asks the target, never the driver
};

std::unique_ptr<device::Device> make_device(const device::DeviceOptions& options, const Overrides& overrides = {});

// What works differently from what was asked for (no cache folder, no recording), for the log. Empty for other devices.
std::vector<std::string> notes_of(const device::Device& device);

}  // namespace situ::opencl
