// simd_info.cpp -- asks Highway, compiled for each instruction set, for the vector length of the one that was chosen.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/simd_info.cpp"  // NOLINT(misc-include-cleaner)
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <hwy/highway.h>

#include "backend/cpu/simd_info.h"

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
int64_t lanes() { return static_cast<int64_t>(hwy::HWY_NAMESPACE::Lanes(hwy::HWY_NAMESPACE::ScalableTag<float>())); }
int64_t target() { return HWY_TARGET; }
bool multiply_adds() { return HWY_NATIVE_FMA; }
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <strings.h>

#include <cstdlib>

#include "base/error.h"
#if HWY_ARCH_ARM_A64
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#if HWY_ARCH_X86
#include <cpuid.h>
#endif

namespace situ::cpu {
HWY_EXPORT(lanes);
HWY_EXPORT(target);
HWY_EXPORT(multiply_adds);

namespace {

#if HWY_ARCH_ARM_A64
// Not Highway's own answer: where the AES instructions are missing (Raspberry Pi) it denies NEON and warns on stderr.
// No kernel uses them.
int64_t sets_of_processor() {
  const bool has_sve = getauxval(AT_HWCAP) & HWCAP_SVE;
  return HWY_NEON | (has_sve ? HWY_SVE : 0);
}
#else
int64_t sets_of_processor() { return hwy::SupportedTargets(); }
#endif

// One bit per set, the lowest the best. The baseline is there, or the program would not run.
int64_t usable_sets() { return HWY_TARGETS & (sets_of_processor() | HWY_STATIC_TARGET); }

int64_t wanted_sets() {
  const int64_t sets = usable_sets();
  const char* wanted = std::getenv("SITU_SIMD");
  if (!wanted || !*wanted) return sets;
  for (int64_t rest = sets; rest; rest &= rest - 1)
    if (strcasecmp(hwy::TargetName(rest & -rest), wanted) == 0) return rest & -rest;
  fail("SITU_SIMD: `{}` is no instruction set of this processor: use one of {}", wanted, fmt::join(simd_sets(), ", "));
}

// AMD's cores since Zen have two units that multiply and add and two that only add. With sixteen registers, and without
// operations that read one value for all lanes, that is of no use to a product (paired.h), so AVX-512 is needed, too.
bool adds_beside_products(int64_t set) {
#if HWY_ARCH_X86
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool amd = __get_cpuid(0, &a, &b, &c, &d) && b == signature_AMD_ebx;
  return amd && (set == HWY_AVX3 || set == HWY_AVX3_DL);
#else
  static_cast<void>(set);
  return false;
#endif
}

}  // namespace

std::vector<std::string> simd_sets() {
  std::vector<std::string> names;
  for (int64_t rest = usable_sets(); rest; rest &= rest - 1) names.emplace_back(hwy::TargetName(rest & -rest));
  return names;
}

SimdInfo simd_info() {
  hwy::GetChosenTarget().Update(wanted_sets());  // from here on every dispatch is one table look-up
  SimdInfo info;
  info.name = hwy::TargetName(HWY_DYNAMIC_DISPATCH(target)());
  info.lanes = HWY_DYNAMIC_DISPATCH(lanes)();
  // Two units that multiply and add, or one of each.
  info.flops_per_cycle = (HWY_DYNAMIC_DISPATCH(multiply_adds)() ? 4.0 : 2.0) * static_cast<double>(info.lanes);
  info.adds_beside = adds_beside_products(HWY_DYNAMIC_DISPATCH(target)());
  return info;
}
}  // namespace situ::cpu
#endif
