// depthwise3-inl.h -- what sums of three kernel rows by three taps are made of, for rows from far memory
// (kernels/depthwise3.cpp) and near ones (depthwise3.cpp).
#if defined(SITU_BACKEND_CPU_DEPTHWISE3_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SITU_BACKEND_CPU_DEPTHWISE3_INL_H_
#undef SITU_BACKEND_CPU_DEPTHWISE3_INL_H_
#else
#define SITU_BACKEND_CPU_DEPTHWISE3_INL_H_
#endif

#include "backend/cpu/depthwise3.h"
#include "backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {

// Tap s of the three kernel rows. Three references, because vectors of unknown length are no members of a struct.
HWY_INLINE void load_weights(const DepthwiseWeights& w, int64_t s, int64_t c, int64_t left, Floats& x, Floats& y,
                             Floats& z) {
  x = load_up_to(w.row[0] + s * w.along + c, left);
  y = load_up_to(w.row[1] + s * w.along + c, left);
  z = load_up_to(w.row[2] + s * w.along + c, left);
}
// sum + x u + y v + z w
HWY_INLINE Floats plus(Floats sum, Floats x, Floats y, Floats z, Floats u, Floats v, Floats w) {
  return hn::MulAdd(z, w, hn::MulAdd(y, v, hn::MulAdd(x, u, sum)));
}
// What sums begin with.
HWY_INLINE Floats begin_of(const SumRange& range, int64_t c, int64_t left) {
  return range.bias ? load_up_to(range.bias + c, left) : zeros();
}

}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SITU_BACKEND_CPU_DEPTHWISE3_INL_H_
