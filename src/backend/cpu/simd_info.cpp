// simd_info.cpp -- asks Highway, compiled for each instruction set, for the vector length of the one it chose.
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
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
HWY_EXPORT(lanes);
HWY_EXPORT(target);

SimdInfo simd_info() {
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());  // from here on every dispatch is one table look-up
  SimdInfo info;
  info.name = hwy::TargetName(HWY_DYNAMIC_DISPATCH(target)());
  info.lanes = HWY_DYNAMIC_DISPATCH(lanes)();
  const bool emulated = info.name == "Scalar" || info.name == "Emu128";
  info.flops_per_cycle = emulated ? 2 : 4.0 * static_cast<double>(info.lanes);  // two multiply-add units
  return info;
}
}  // namespace situ::cpu
#endif
