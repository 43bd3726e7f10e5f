// embedded.h -- the kernels' source texts, carried inside the program.
//
// The build embeds every kernels/*.cl and *.clh under its file name ("gemm.cl"): an installed situ needs no data files.
#pragma once
#include <string_view>

namespace situ::opencl {

// The text of a kernel file, zero-terminated, valid for the whole run; nullptr if there is no such file.
const char* embedded_source(std::string_view file_name);
std::string_view embedded_fingerprint();  // a hash of all of them

}  // namespace situ::opencl
