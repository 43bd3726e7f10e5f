# Language, warnings, sanitizers, ccache: everything that reaches the compiler's command line, as target situ_options.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)  # clang-tidy and editors read it

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release or Debug" FORCE)
endif()

find_program(SITU_CCACHE ccache)
if(SITU_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${SITU_CCACHE}")
endif()

add_library(situ_options INTERFACE)
target_compile_options(situ_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow
  $<$<BOOL:${SITU_WERROR}>:-Werror>
  # a*b+c is contracted only where a kernel says so; otherwise losses would change with compiler and inlining.
  -ffp-contract=off
  # gcc 12 warns of "text" + std::string as an overlapping copy (gcc bug 105651).
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>)

# Highway compiles a kernel once per instruction set and picks at run time (backend/cpu/simd_info.h). Each set costs build
# time in every kernel file, so these are left out: SSSE3 (older machines run the SSE2 baseline), and the forms of SVE
# beside the one that serves every vector length; SVE2 adds nothing to arithmetic on floats.
target_compile_definitions(situ_options INTERFACE
  "HWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_SVE2|HWY_SVE_256|HWY_SVE2_128)"
  CL_TARGET_OPENCL_VERSION=300)

if(SITU_SANITIZE)
  set(flags "-fsanitize=${SITU_SANITIZE}" -fno-sanitize-recover=all -fno-omit-frame-pointer)
  # gcc's flow warnings see the sanitizers' own branches and report what is not there.
  target_compile_options(situ_options INTERFACE ${flags} -Wno-error=maybe-uninitialized)
  target_link_options(situ_options INTERFACE ${flags})
endif()
