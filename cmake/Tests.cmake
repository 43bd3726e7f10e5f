# One test program from tests/*.cpp (a CTest entry per test), the counting OpenCL stand-in from tests/icd, and the
# checks of tools/ as entries of their own. Labels: unit, lint, oclgrind (`ctest -L lint`).
find_package(GTest REQUIRED)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
include(GoogleTest)

set(source_dir "${CMAKE_CURRENT_SOURCE_DIR}")
# Caches of kernels and programs live in the build folder: tests neither read nor fill those of the user.
set(cache_dir "${CMAKE_BINARY_DIR}/test-cache")
set(test_environment "XDG_CACHE_HOME=${cache_dir}" "POCL_CACHE_DIR=${cache_dir}/pocl")
if(SITU_SANITIZE)  # drivers and the compilers inside them are not built with the sanitizer
  list(APPEND test_environment
    "LSAN_OPTIONS=suppressions=${source_dir}/cmake/sanitizers/lsan.supp:print_suppressions=0"
    "TSAN_OPTIONS=suppressions=${source_dir}/cmake/sanitizers/tsan.supp:ignore_noninstrumented_modules=1"
    "UBSAN_OPTIONS=print_stacktrace=1")
endif()

file(GLOB icd_sources CONFIGURE_DEPENDS tests/icd/*.cpp)
if(icd_sources AND NOT CMAKE_CROSSCOMPILING)
  add_library(situ_counting_icd SHARED ${icd_sources})
  set_target_properties(situ_counting_icd PROPERTIES CXX_VISIBILITY_PRESET default)  # it exists to be found by name
  target_include_directories(situ_counting_icd PRIVATE src tests)
  target_link_libraries(situ_counting_icd PRIVATE situ_options OpenCL::Headers ${CMAKE_DL_LIBS})
endif()

file(GLOB test_sources CONFIGURE_DEPENDS tests/*.cpp)
if(CMAKE_CROSSCOMPILING)
  # The emulator has no OpenCL driver and starts no second program; and waiting for its tests to compile is what costs.
  list(FILTER test_sources EXCLUDE REGEX "/(opencl|oclgrind|program_cache|ledger|trial|tune|cli)[a-z_]*_test.cpp$")
  add_library(situ_no_aes SHARED tests/arm/no_aes.cpp)
  target_link_libraries(situ_no_aes PRIVATE situ_options ${CMAKE_DL_LIBS})
  set_target_properties(situ_no_aes PROPERTIES CXX_VISIBILITY_PRESET default)  # it exists to be found by name
endif()
if(test_sources)
  add_executable(situ_tests ${test_sources})
  target_include_directories(situ_tests PRIVATE "${source_dir}" tests)
  target_link_libraries(situ_tests PRIVATE situ_core GTest::gtest GTest::gtest_main)
  target_compile_definitions(situ_tests PRIVATE
    SITU_SOURCE_DIR="${source_dir}" SITU_TEST_DATA="${source_dir}/tests/data"
    $<$<TARGET_EXISTS:situ_counting_icd>:SITU_TEST_ICD="$<TARGET_FILE:situ_counting_icd>">
    $<$<TARGET_EXISTS:situ>:SITU_TEST_COMMAND="$<TARGET_FILE:situ>">)
  if(CMAKE_CROSSCOMPILING)
    target_compile_options(situ_tests PRIVATE -O1)
  endif()
  foreach(needed situ_counting_icd situ)
    if(TARGET ${needed})
      add_dependencies(situ_tests ${needed})
    endif()
  endforeach()
  gtest_discover_tests(situ_tests DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120 WORKING_DIRECTORY "${CMAKE_BINARY_DIR}"
    PROPERTIES LABELS unit TIMEOUT 600 ENVIRONMENT "${test_environment}")

  # The kernels with each instruction set that the machine has beside its best one.
  foreach(set AVX2 SSE4 SCALAR NEON)
    add_test(NAME simd.${set} COMMAND situ_tests "--gtest_filter=*Kernels*cpu*:Simd.*:*FastProducts.*:Twins.*" --gtest_brief=1)
    set_tests_properties(simd.${set} PROPERTIES LABELS unit TIMEOUT 600
      ENVIRONMENT "${test_environment};SITU_SIMD=${set};SITU_TEST_DEVICES=cpu"
      SKIP_REGULAR_EXPRESSION "SITU_SIMD: `${set}` is no instruction set of this processor")
  endforeach()

  find_program(SITU_OCLGRIND oclgrind)
  if(SITU_OCLGRIND)
    add_test(NAME oclgrind COMMAND "${source_dir}/tools/run_oclgrind.sh" $<TARGET_FILE:situ_tests>)
    set_tests_properties(oclgrind PROPERTIES LABELS oclgrind TIMEOUT 600 ENVIRONMENT "${test_environment}")
  endif()
endif()

if(TARGET situ_tests)
  add_test(NAME lint.mutants
    COMMAND Python3::Interpreter "${source_dir}/scripts/mutate" --check $<TARGET_FILE:situ_tests>)
  set_tests_properties(lint.mutants PROPERTIES LABELS lint TIMEOUT 120 ENVIRONMENT "${test_environment}")
endif()
if(TARGET situ AND NOT CMAKE_CROSSCOMPILING)
  add_test(NAME report.browser COMMAND "${source_dir}/tools/check_report.py" $<TARGET_FILE:situ>)
  set_tests_properties(report.browser PROPERTIES LABELS unit TIMEOUT 120 SKIP_RETURN_CODE 77
    ENVIRONMENT "${test_environment}")
endif()
add_test(NAME lint.format COMMAND "${source_dir}/tools/check_format.sh")
add_test(NAME lint.layers COMMAND Python3::Interpreter "${source_dir}/tools/check_layers.py" "${source_dir}")
add_test(NAME lint.kernels COMMAND "${source_dir}/tools/lint_kernels.sh")
set_tests_properties(lint.format lint.layers lint.kernels PROPERTIES LABELS lint TIMEOUT 120)
