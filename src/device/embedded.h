// embedded.h -- the tuning files of devices/, carried inside the program.
//
// The build embeds every devices/*.json; a tuning file found at run time goes before one of these.
#pragma once
#include <string_view>
#include <utility>
#include <vector>

namespace situ::device {

// (file name such as "pocl.json", JSON text), in the order of the names.
const std::vector<std::pair<std::string_view, std::string_view>>& embedded_tuning_files();

}  // namespace situ::device
