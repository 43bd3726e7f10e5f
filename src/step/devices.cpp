#include "step/devices.h"

#include "backend/cpu/device.h"
#include "backend/opencl/device.h"
#include "backend/ref/device.h"
#include "base/error.h"
#include "step/trial.h"

namespace situ::step {

std::unique_ptr<device::Device> open_device(std::string_view spec, device::DeviceOptions options) {
  const size_t colon = spec.find(':');
  const std::string_view kind = spec.substr(0, colon);
  if (colon != std::string_view::npos) options.name = spec.substr(colon + 1);
  if (options.activations != DType::f32 && (kind == "cpu" || kind == "ref"))
    fail("the device {} stores activations as fp32 only: use --device opencl, or --precision fp32", kind);
  if (kind == "cpu") return cpu::make_device(options);
  if (kind == "opencl") {
    auto device = opencl::make_device(options);
    device->activations = options.activations;
    device->trials_folder = options.cache_folder;
    load_left_out(*device);  // what is known to be wrong stays out, tried or not
    if (!options.self_test) device->trials_folder.clear();
    return device;
  }
  if (kind == "ref") return ref::make_device();
  fail("there is no device `{}`: use cpu, opencl, opencl:NAME or ref (`situ devices` lists what is here)", spec);
}

}  // namespace situ::step
