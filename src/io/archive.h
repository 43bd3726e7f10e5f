// archive.h -- files as one .tar.gz, which every system can open. Owners are not written down.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace situ::io {

using NamedFiles = std::vector<std::pair<std::string, std::string>>;  // name (below 100 bytes), contents

std::string tar_gz(const NamedFiles& files);

}  // namespace situ::io
