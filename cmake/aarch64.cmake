# Toolchain of the preset aarch64: Debian's cross compiler, arm64 libraries by multiarch (`scripts/setup aarch64`).
# What was built runs under qemu-user (tools/run_qemu.sh).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)
