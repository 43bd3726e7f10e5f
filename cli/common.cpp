// common.cpp -- what the verbs share: opening devices, the cache folder.
#include <cstdlib>

#include "backend/opencl/device.h"
#include "cli/verbs.h"
#include "step/devices.h"

namespace situ::cli {

std::string cache_folder() {
  if (const char* own = std::getenv("SITU_CACHE")) return own;
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg && *xdg) return std::string(xdg) + "/situ";
  if (const char* home = std::getenv("HOME"); home && *home) return std::string(home) + "/.cache/situ";
  return "";
}

void DeviceChoice::add_to(CLI::App& verb) {
  verb.add_option("--device", device, "cpu, opencl, opencl:PART-OF-A-NAME or ref")->capture_default_str();
  verb.add_option("--threads", threads, "CPU threads; 0: one per core. Results do not depend on it")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024));
}

std::unique_ptr<device::Device> DeviceChoice::open() const {
  device::DeviceOptions options;
  options.cache_folder = cache_folder();
  options.threads = threads;
  return step::open_device(device, options);
}

void print_notes(const device::Device& device) {
  for (const std::string& note : opencl::notes_of(device)) fmt::print(stderr, "situ: note: {}\n", note);
}

}  // namespace situ::cli
