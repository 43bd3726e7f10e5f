// text.h -- text from strangers: is it UTF-8, and how to show it in an error without upsetting the terminal.
#pragma once
#include <string>
#include <string_view>

namespace situ::io {

// Well-formed UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text);

// At most 80 bytes of it, control characters replaced by '?'.
std::string shown(std::string_view text);

}  // namespace situ::io
