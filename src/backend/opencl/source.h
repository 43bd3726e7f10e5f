// source.h -- the text a driver compiles: a kernel file with its includes put in place, after the call's prelude.
#pragma once
#include <functional>
#include <string>
#include <string_view>

namespace situ::opencl {

// The text of a kernel file by name, or null.
using FindSource = std::function<const char*(std::string_view file)>;

// Drivers have no include path, so each `#include "x.clh"` is replaced by that file's text, once. #line directives keep
// the drivers' messages pointing at the real files.
std::string assemble_source(const std::string& prelude, const std::string& file, const FindSource& find);

// True where nothing in the text depends on the work-group: no local memory, barrier, local or group index.
bool runs_in_any_group(std::string_view text);

}  // namespace situ::opencl
