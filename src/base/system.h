// system.h -- the machine this runs on, for reports: kinds and sizes of things, never serial numbers or names.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace situ {
// ("memory MiB", "7890"), ..; what the system does not say is left out.
std::vector<std::pair<std::string, std::string>> describe_system();
}  // namespace situ
