#include "harness.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "step/devices.h"

namespace situ::test {

device::Device* device_under_test(const std::string& name) {
  static std::map<std::string, std::unique_ptr<device::Device>> devices;
  const char* only = std::getenv("SITU_TEST_DEVICES");
  if (only && std::string(only).find(name) == std::string::npos) return nullptr;
  auto it = devices.find(name);
  if (it != devices.end()) return it->second.get();
  device::DeviceOptions options;
  options.cache_folder = (std::filesystem::temp_directory_path() / "situ-test-cache").string();
  return (devices[name] = step::open_device(name, options)).get();
}

std::string scratch_folder() {
  struct Folder {
    std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("situ-test-" + std::to_string(static_cast<long>(getpid())));
    Folder() { std::filesystem::create_directories(path); }
    ~Folder() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  };
  static const Folder folder;
  return folder.path.string();
}

}  // namespace situ::test
