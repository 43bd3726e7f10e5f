// devices.cpp -- device queries over every platform.
#include "backend/opencl/devices.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "backend/opencl/check.h"
#include "backend/opencl/kernels/tunables.h"
#include "backend/opencl/limits.h"
#include "backend/opencl/loader.h"
#include "base/error.h"

namespace situ::opencl {
namespace {

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\0' || std::isspace(static_cast<unsigned char>(text.back()))))
    text.pop_back();
  const size_t start = text.find_first_not_of(' ');
  return start == std::string::npos ? std::string() : text.substr(start);
}

std::string platform_text(const Api& cl, cl_platform_id platform, cl_platform_info what) {
  size_t size = 0;
  if (cl.clGetPlatformInfo(platform, what, 0, nullptr, &size) != CL_SUCCESS) return "";
  std::string text(size, '\0');
  if (cl.clGetPlatformInfo(platform, what, size, text.data(), nullptr) != CL_SUCCESS) return "";
  return trimmed(text);
}

std::string device_text(const Api& cl, cl_device_id device, cl_device_info what) {
  size_t size = 0;
  if (cl.clGetDeviceInfo(device, what, 0, nullptr, &size) != CL_SUCCESS) return "";
  std::string text(size, '\0');
  if (cl.clGetDeviceInfo(device, what, size, text.data(), nullptr) != CL_SUCCESS) return "";
  return trimmed(text);
}

template <typename T>
T device_number(const Api& cl, cl_device_id device, cl_device_info what, T otherwise = {}) {
  T value = otherwise;
  return cl.clGetDeviceInfo(device, what, sizeof(value), &value, nullptr) == CL_SUCCESS ? value : otherwise;
}

DeviceType type_of(cl_device_type bits) {
  if (bits & CL_DEVICE_TYPE_GPU) return DeviceType::gpu;
  if (bits & CL_DEVICE_TYPE_CPU) return DeviceType::cpu;
  if (bits & CL_DEVICE_TYPE_ACCELERATOR) return DeviceType::accelerator;
  return DeviceType::other;
}

// Sub-groups are built-in from OpenCL C 2.0 on, which a 3.0 driver need not offer; older ones have Intel's extension.
std::string sub_group_option(const std::string& version) {
  const bool at_least_3 = version.compare(0, 7, "OpenCL ") == 0 && version.compare(7, 1, "3") >= 0;
  const bool at_least_2 = version.compare(0, 7, "OpenCL ") == 0 && version.compare(7, 1, "2") >= 0;
  return at_least_3 ? " -cl-std=CL3.0" : at_least_2 ? " -cl-std=CL2.0" : "";
}

ImageLimits with_planes(const Api& cl, cl_device_id device, ImageLimits images) {
  images.width = static_cast<int64_t>(device_number<size_t>(cl, device, CL_DEVICE_IMAGE2D_MAX_WIDTH));
  images.height = static_cast<int64_t>(device_number<size_t>(cl, device, CL_DEVICE_IMAGE2D_MAX_HEIGHT));
  images.pitch = device_number<cl_uint>(cl, device, CL_DEVICE_IMAGE_PITCH_ALIGNMENT);
  images.base = std::max(1u, device_number<cl_uint>(cl, device, CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT));
  return images;
}

DeviceInfo describe(const Api& cl, cl_platform_id platform, cl_device_id device) {
  DeviceInfo info;
  info.platform = platform_text(cl, platform, CL_PLATFORM_NAME);
  info.platform_version = platform_text(cl, platform, CL_PLATFORM_VERSION);
  info.name = device_text(cl, device, CL_DEVICE_NAME);
  info.version = device_text(cl, device, CL_DEVICE_VERSION);
  info.driver = device_text(cl, device, CL_DRIVER_VERSION);
  info.type = type_of(device_number<cl_device_type>(cl, device, CL_DEVICE_TYPE));
  info.compute_units = static_cast<int>(std::max(1u, device_number<cl_uint>(cl, device, CL_DEVICE_MAX_COMPUTE_UNITS)));
  info.clock_mhz = static_cast<int>(device_number<cl_uint>(cl, device, CL_DEVICE_MAX_CLOCK_FREQUENCY));
  info.memory = static_cast<int64_t>(device_number<cl_ulong>(cl, device, CL_DEVICE_GLOBAL_MEM_SIZE));
  info.max_alloc = static_cast<int64_t>(device_number<cl_ulong>(cl, device, CL_DEVICE_MAX_MEM_ALLOC_SIZE));
  info.alignment = static_cast<int64_t>(device_number<cl_uint>(cl, device, CL_DEVICE_MEM_BASE_ADDR_ALIGN)) / 8;
  // A driver with more axes than three refuses the short answer: then only the kernel's own limit counts.
  constexpr size_t unknown = std::numeric_limits<size_t>::max();
  info.max_items =
      device_number<std::array<size_t, 3>>(cl, device, CL_DEVICE_MAX_WORK_ITEM_SIZES, {unknown, unknown, unknown});
  info.max_group = device_number<size_t>(cl, device, CL_DEVICE_MAX_WORK_GROUP_SIZE, unknown);
  info.images = device_number<cl_bool>(cl, device, CL_DEVICE_IMAGE_SUPPORT) == CL_TRUE;
  info.image_limits.line = static_cast<int64_t>(device_number<size_t>(cl, device, CL_DEVICE_IMAGE_MAX_BUFFER_SIZE));
  info.extensions = device_text(cl, device, CL_DEVICE_EXTENSIONS);
  const std::string extensions = " " + info.extensions + " ";
  const auto has = [&](const char* name) { return extensions.find(fmt::format(" {} ", name)) != std::string::npos; };
  info.command_buffer = has("cl_khr_command_buffer");
  info.recordable_queue = has("cl_qcom_recordable_queues");
  info.priority_hints = has("cl_khr_priority_hints");
  info.throttle_hints = has("cl_khr_throttle_hints");
  info.fp16 = has("cl_khr_fp16");
  info.subgroups = has("cl_khr_subgroups") || has("cl_intel_subgroups") ||
                   device_number<cl_uint>(cl, device, CL_DEVICE_MAX_NUM_SUB_GROUPS) > 0;
  info.sub_group_option = sub_group_option(info.version);
  if (has("cl_khr_image2d_from_buffer")) info.image_limits = with_planes(cl, device, info.image_limits);
  if (const char* limits = std::getenv("SITU_LIMITS")) impose(limits, info);
  return info;
}

std::vector<cl_platform_id> platforms(const Api& cl) {
  cl_uint count = 0;
  const cl_int code = cl.clGetPlatformIDs(0, nullptr, &count);
  if (code == -1001 || (code == CL_SUCCESS && count == 0)) return {};  // the loader found no driver
  check("clGetPlatformIDs", code);
  std::vector<cl_platform_id> ids(count);
  check("clGetPlatformIDs", cl.clGetPlatformIDs(count, ids.data(), nullptr));
  return ids;
}

std::vector<cl_device_id> devices_of(const Api& cl, cl_platform_id platform) {
  cl_uint count = 0;  // a platform without devices answers CL_DEVICE_NOT_FOUND; a broken one must not hide the others
  if (cl.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count) != CL_SUCCESS || count == 0) return {};
  std::vector<cl_device_id> ids(count);
  if (cl.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, ids.data(), nullptr) != CL_SUCCESS) return {};
  return ids;
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

std::string names_of(const std::vector<FoundDevice>& found) {
  std::string names;
  for (const FoundDevice& one : found)
    names += fmt::format("{}'{}' ({})", names.empty() ? "" : ", ", one.info.name, one.info.platform);
  return names;
}

const FoundDevice* pick(const std::vector<FoundDevice>& found, std::string_view name) {
  if (name.empty()) {
    for (const FoundDevice& one : found)
      if (one.info.type == DeviceType::gpu) return &one;
    return &found.front();
  }
  for (const FoundDevice& one : found)
    if (lower(one.info.full_name()).find(lower(name)) != std::string::npos) return &one;
  return nullptr;
}

bool at_least_1_2(const std::string& version) {  // "OpenCL 1.2 vendor's text"
  int major = 0, minor = 0;
  if (std::sscanf(version.c_str(), "OpenCL %d.%d", &major, &minor) != 2) return true;  // unknown: let the calls decide
  return major > 1 || (major == 1 && minor >= 2);
}

void need_usable(const Api& cl, const FoundDevice& one) {
  if (!at_least_1_2(one.info.version))
    fail_environment("the device '{}' offers {} but situ needs OpenCL 1.2: update its driver or use the device cpu",
                     one.info.name, one.info.version);
  if (!device_number<cl_bool>(cl, one.device, CL_DEVICE_COMPILER_AVAILABLE, CL_TRUE))
    fail_environment(
        "the driver of the device '{}' has no kernel compiler: install a complete one or use the device cpu",
        one.info.name);
}

int64_t largest_value(std::string_view key, int64_t most) {
  int64_t best = 1;
  for (const kernels::Tunable& t : kernels::tunables())
    if (t.key == key)
      for (int64_t value : t.values)
        if (value <= most) best = std::max(best, value);
  return best;
}

// Groups no larger than the device takes, whatever its record says.
void fit_groups(device::Target& target, size_t max_group) {
  const auto most = static_cast<int64_t>(std::min<size_t>(max_group, 1 << 20));
  for (const char* key : {"gemm.WX", "vector.WX", "reduce.WX", "rows.ITEMS"})
    if (kernels::tuned(target, key) > most) target.tuning.set(key, largest_value(key, most));
  const int64_t left = most / kernels::tuned(target, "gemm.WX");
  if (kernels::tuned(target, "gemm.WY") > left) target.tuning.set("gemm.WY", largest_value("gemm.WY", left));
}

double rough_flops(const DeviceInfo& info) {
  const double hz = info.clock_mhz > 0 ? info.clock_mhz * 1e6 : 1e9;
  const double flops_per_cycle =
      info.type == DeviceType::gpu ? 128 : 32;  // 64 lanes, two AVX2 units; a multiply and an add
  return hz * info.compute_units * flops_per_cycle;
}

}  // namespace

std::string_view name_of(DeviceType type) {
  switch (type) {
    case DeviceType::cpu:
      return "CPU";
    case DeviceType::gpu:
      return "GPU";
    case DeviceType::accelerator:
      return "accelerator";
    case DeviceType::other:
      break;
  }
  return "other";
}

std::vector<FoundDevice> find_devices(const Api& cl) {
  std::vector<FoundDevice> found;
  for (cl_platform_id platform : platforms(cl))
    for (cl_device_id device : devices_of(cl, platform))
      found.push_back({platform, device, describe(cl, platform, device)});
  return found;
}

std::vector<DeviceInfo> list_devices() {
  std::vector<DeviceInfo> infos;
  for (FoundDevice& one : find_devices(load_opencl())) infos.push_back(std::move(one.info));
  return infos;
}

FoundDevice choose_device(const Api& cl, std::string_view name) {
  const std::vector<FoundDevice> found = find_devices(cl);
  if (found.empty())
    fail_environment(
        "OpenCL is installed but has no device: install a driver such as pocl-opencl-icd, or use the device cpu");
  const FoundDevice* one = pick(found, name);
  if (one == nullptr) fail("no OpenCL device matches '{}': choose one of {}", name, names_of(found));
  need_usable(cl, *one);
  return *one;
}

device::Target target_of(const DeviceInfo& info, const device::Tuning& overrides) {
  device::Target target;
  target.backend = "opencl";
  target.name = fmt::format("{} ({})", info.name, info.platform);
  target.driver = info.driver + " " + info.platform_version;
  target.alignment = std::max<int64_t>(128, info.alignment);
  if (info.memory > 0) target.memory = info.memory;
  target.max_slab = info.max_alloc > 0 ? info.max_alloc : target.memory;
  target.compute_units = info.compute_units;
  // Some drivers name the model in the version alone: "QUALCOMM Adreno(TM)", "OpenCL 3.0 Adreno(TM) 740".
  target.tuning = device::tuning_for("opencl", info.full_name() + " " + info.version);
  for (const auto& [key, value] : overrides.values()) target.tuning.set(key, value);
  fit_groups(target, info.max_group);
  set_image_limits(target, info.images ? info.image_limits : ImageLimits());
  set_sub_groups(target, info.subgroups);
  if (target.tuning.get("gemm.IMAGE", 0) == 2)  // a plane starts at a tensor's own place
    target.alignment = std::max(target.alignment, image_limits(target).base * int64_t{16});
  const bool gpu = info.type == DeviceType::gpu;
  const auto rate = [&](std::string_view key, double unit, double otherwise) {
    const int64_t value = target.tuning.get(key, 0);
    return value > 0 ? static_cast<double>(value) * unit : otherwise;
  };
  target.peak_flops = rate("device.gflops", 1e9, rough_flops(info));
  target.bandwidth = rate("device.gbytes", 1e9, gpu ? 30e9 : 20e9);
  target.launch_seconds = rate("device.launch_ns", 1e-9, gpu ? 20e-6 : 2e-6);
  return target;
}

}  // namespace situ::opencl
