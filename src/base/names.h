// names.h -- names people type: the nearest known one, and patterns with * and ?.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace situ {

std::string nearest_name(std::string_view name, const std::vector<std::string_view>& known);  // by edit distance
bool matches(std::string_view pattern, std::string_view name);                                // * any run, ? any one
std::vector<std::string> split_list(std::string_view text, char separator);                   // empty parts dropped

}  // namespace situ
