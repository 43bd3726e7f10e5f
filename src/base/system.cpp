#include "base/system.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>

namespace situ {
namespace {

using Facts = std::vector<std::pair<std::string, std::string>>;

// Files that name a kind of machine. Beside some of them lie serial numbers, so each is named here.
constexpr std::pair<const char*, const char*> kFiles[] = {
    {"board", "/sys/firmware/devicetree/base/model"}, {"chip", "/sys/devices/soc0/machine"},
    {"chip family", "/sys/devices/soc0/family"},      {"chip id", "/sys/devices/soc0/soc_id"},
    {"gpu", "/sys/class/kgsl/kgsl-3d0/gpu_model"},    {"gpu clock", "/sys/class/kgsl/kgsl-3d0/max_gpuclk"},
    {"gpu", "/sys/class/misc/mali0/device/gpuinfo"},
};

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  std::erase_if(line, [](char c) { return static_cast<unsigned char>(c) < ' '; });
  return line.substr(0, 200);
}

// The distinct values of some keys of /proc/cpuinfo, which on some phones ends with a serial number.
void add_processors(Facts& facts) {
  std::ifstream file("/proc/cpuinfo");
  std::set<std::pair<std::string, std::string>> seen;
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string key = line.substr(0, std::min(line.find('\t'), colon));
    const std::string value = colon + 2 < line.size() ? line.substr(colon + 2) : "";
    for (const char* wanted : {"model name", "Hardware", "CPU implementer", "CPU part", "CPU variant"})
      if (key == wanted && seen.insert({key, value}).second) facts.emplace_back(key, value);
  }
}

void add_clocks(Facts& facts, int64_t cores) {
  std::string clocks;
  for (int64_t i = 0; i < cores; ++i) {
    const std::string khz = first_line("/sys/devices/system/cpu/cpu" + std::to_string(i) + "/cpufreq/cpuinfo_max_freq");
    if (!khz.empty()) clocks += (clocks.empty() ? "" : " ") + khz;
  }
  if (!clocks.empty()) facts.emplace_back("highest clocks kHz", clocks);
}

}  // namespace

Facts describe_system() {
  Facts facts;
  utsname names{};
  if (uname(&names) == 0) {  // nodename is the host's, and version may name who built the kernel
    facts.emplace_back("system", names.sysname);
    facts.emplace_back("release", names.release);
    facts.emplace_back("machine", names.machine);
  }
  const int64_t cores = sysconf(_SC_NPROCESSORS_ONLN), pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  facts.emplace_back("processors", std::to_string(cores));
  facts.emplace_back("memory MiB", std::to_string((pages * page) >> 20));
  add_processors(facts);
  add_clocks(facts, cores);
  for (const auto& [name, path] : kFiles)
    if (const std::string line = first_line(path); !line.empty()) facts.emplace_back(name, line);
  facts.emplace_back("built by", __VERSION__);
  return facts;
}

}  // namespace situ
