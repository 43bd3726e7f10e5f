# situ_embed(KIND opencl|tuning|page|phones GLOBS pattern... OUT variable)
#
# Puts the text of the matching files into the program, through a generated source that is made again when a file is
# edited, added or removed. KIND chooses the function it defines (see embed_files.cmake). OUT receives the path of the
# source.
set(SITU_EMBED_SCRIPT "${CMAKE_CURRENT_LIST_DIR}/embed_files.cmake")

function(situ_embed)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "KIND;OUT" "GLOBS")
  file(GLOB files CONFIGURE_DEPENDS ${arg_GLOBS})
  list(SORT files)
  # The list is a file, and a dependency, because ninja does not notice an input that is gone.
  set(list_file "${SITU_GENERATED_DIR}/embedded_${arg_KIND}.txt")
  list(JOIN files "\n" lines)
  file(CONFIGURE OUTPUT "${list_file}" CONTENT "${lines}" @ONLY)

  set(path "${SITU_GENERATED_DIR}/embedded_${arg_KIND}.cpp")
  add_custom_command(
    OUTPUT "${path}"
    COMMAND "${CMAKE_COMMAND}" -DKIND=${arg_KIND} "-DLIST=${list_file}" "-DOUT=${path}" -P "${SITU_EMBED_SCRIPT}"
    DEPENDS ${files} "${list_file}" "${SITU_EMBED_SCRIPT}"
    COMMENT "Embedding files (${arg_KIND})"
    VERBATIM)
  set(${arg_OUT} "${path}" PARENT_SCOPE)
endfunction()
