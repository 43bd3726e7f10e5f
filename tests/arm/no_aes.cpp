// no_aes.cpp -- a processor without the AES instructions, as in a Raspberry Pi: preloaded, it answers getauxval without
// them (and without SVE, which no such core has). qemu plays no core that lacks them.
#include <asm/hwcap.h>
#include <dlfcn.h>
#include <sys/auxv.h>

extern "C" unsigned long getauxval(unsigned long type) noexcept {
  using Function = unsigned long (*)(unsigned long);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "getauxval"));
  const unsigned long value = real(type);
  return type == AT_HWCAP ? value & ~static_cast<unsigned long>(HWCAP_AES | HWCAP_SVE) : value;
}
