// personal.h -- takes out of a text what says whose machine it is, before it goes to strangers.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace situ {

// What is taken out, and what stands in its place. Paths are replaced wherever they occur; names only as whole words,
// since a user may be called `a`.
struct Personal {
  std::vector<std::pair<std::string, std::string>> paths, names;
};

// Home folder, folder at hand, temporary folder and `folders`; names of user and host.
Personal personal_data(const std::vector<std::pair<std::string, std::string>>& folders = {});

std::string without(const Personal& personal, std::string_view text);

}  // namespace situ
