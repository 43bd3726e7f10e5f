# The command as a Debian package and a tarball, for this processor or the one cross-built for (scripts/package).
include(GNUInstallDirs)
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)  # packing needs no tests
install(TARGETS situ RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES README.md CHANGELOG.md DESTINATION share/doc/situ)
install(FILES LICENSE DESTINATION share/doc/situ RENAME copyright)

set(architecture amd64)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(architecture arm64)
endif()
set(CPACK_PACKAGE_NAME situ)
set(CPACK_PACKAGE_CONTACT "the authors of situ <situ@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trains neural networks where the data lives, on GPU (OpenCL) and CPU")
set(CPACK_PACKAGE_FILE_NAME "situ-${PROJECT_VERSION}-${architecture}")
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE ${architecture})
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "ocl-icd-libopencl1")  # opened at run time, by name
include(CPack)
