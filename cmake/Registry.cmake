# situ_registry(DIR folder NAMESPACE ns ELEMENT type HEADER header FUNCTION ns::function OUT variable)
#
# Every folder/NAME.cpp defines `ELEMENT NAME()` in namespace NAMESPACE. The generated source declares them all and
# defines `std::vector<ELEMENT> FUNCTION()`, which calls them in the order of their names. A new file needs no edit
# elsewhere: the build looks at the folder each time it runs. OUT receives the path of the generated source.
function(situ_registry)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "DIR;NAMESPACE;ELEMENT;HEADER;FUNCTION;OUT" "")
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${arg_DIR}/*.cpp")
  list(SORT sources)  # by byte, so that the order is the same on every machine

  set(declarations "")
  set(calls "")
  foreach(source IN LISTS sources)
    cmake_path(GET source STEM LAST_ONLY name)
    if(NOT name MATCHES "^[a-z][a-z0-9_]*$")
      message(FATAL_ERROR "${source}: rename it to a C++ name in lower case; it becomes ${arg_NAMESPACE}::name().")
    endif()
    string(APPEND declarations "${arg_ELEMENT} ${name}();\n")
    list(APPEND calls "${arg_NAMESPACE}::${name}()")
  endforeach()
  list(JOIN calls ",\n          " calls)

  string(REGEX MATCH "^(.*)::([^:]+)$" matched "${arg_FUNCTION}")
  set(parent "${CMAKE_MATCH_1}")
  set(function "${CMAKE_MATCH_2}")
  string(REPLACE "::" "_" stem "${arg_FUNCTION}")
  set(path "${SITU_GENERATED_DIR}/${stem}.cpp")
  file(CONFIGURE OUTPUT "${path}" @ONLY CONTENT [[
// Generated from the names of the files in @arg_DIR@. Do not edit.
#include "@arg_HEADER@"

#include <vector>

namespace @arg_NAMESPACE@ {
@declarations@}  // namespace @arg_NAMESPACE@

namespace @parent@ {
std::vector<@arg_ELEMENT@> @function@() {
  return {@calls@};
}
}  // namespace @parent@
]])
  set(${arg_OUT} "${path}" PARENT_SCOPE)
endfunction()
