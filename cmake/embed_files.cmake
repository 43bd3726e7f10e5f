# cmake -DKIND=opencl|tuning|page|phones -DLIST=file -DOUT=file.cpp -P embed_files.cmake
#
# Writes OUT: a table of (file name, text) for the files named in LIST, one per line, and the function that reads it.
# Texts become raw string literals, so the generated source can be read, and a compiler error in it points at the text.
file(STRINGS "${LIST}" files ENCODING UTF-8)

set(entries "")
foreach(path IN LISTS files)
  cmake_path(GET path FILENAME name)
  file(READ "${path}" text)
  string(FIND "${text}" ")situ_file\"" clash)
  if(NOT clash EQUAL -1)
    message(FATAL_ERROR "${path} holds the text )situ_file\", which ends the literal it is embedded in.")
  endif()
  string(APPEND entries "    {\"${name}\", R\"situ_file(${text})situ_file\"},\n")
endforeach()

string(SHA256 fingerprint "${entries}")
if(KIND STREQUAL "opencl")
  set(head "#include \"backend/opencl/embedded.h\"

#include <utility>
#include <vector>

namespace situ::opencl {

const char* embedded_source(std::string_view file_name) {
  static const std::vector<std::pair<std::string_view, const char*>> files = {
")
  set(tail "  };
  for (const auto& [name, text] : files) {
    if (name == file_name) return text;
  }
  return nullptr;
}

std::string_view embedded_fingerprint() { return \"${fingerprint}\"; }

}  // namespace situ::opencl
")
elseif(KIND STREQUAL "tuning" OR KIND STREQUAL "page")
  set(room device)
  if(KIND STREQUAL "page")
    set(room prof)
  endif()
  set(head "#include \"${room}/embedded.h\"

namespace situ::${room} {

const std::vector<std::pair<std::string_view, std::string_view>>& embedded_${KIND}_files() {
  static const std::vector<std::pair<std::string_view, std::string_view>> files = {
")
  set(tail "  };
  return files;
}

}  // namespace situ::${room}
")
elseif(KIND STREQUAL "phones")
  set(head "#include \"estimate/phone.h\"

namespace situ::estimate {

const std::vector<std::pair<std::string_view, std::string_view>>& embedded_phones() {
  static const std::vector<std::pair<std::string_view, std::string_view>> files = {
")
  set(tail "  };
  return files;
}

}  // namespace situ::estimate
")
else()
  message(FATAL_ERROR "KIND must be opencl, tuning, page or phones, not '${KIND}'.")
endif()

file(WRITE "${OUT}" "// Generated from files of the source tree. Do not edit.\n${head}${entries}${tail}")
