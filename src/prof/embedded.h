// embedded.h -- the files of page/, carried inside the program.
#pragma once
#include <string_view>
#include <utility>
#include <vector>

namespace situ::prof {

// (file name such as "page.html", text), in the order of the names.
const std::vector<std::pair<std::string_view, std::string_view>>& embedded_page_files();

}  // namespace situ::prof
