// epilogue-inl.h -- an epilogue applied to one vector of the result: n columns from (row, col) on, or a full vector.
//
// For kernels that make a vector at a time; the register tile has its own form, word by word over all its vectors.
#if defined(SITU_BACKEND_CPU_EPILOGUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SITU_BACKEND_CPU_EPILOGUE_INL_H_
#undef SITU_BACKEND_CPU_EPILOGUE_INL_H_
#else
#define SITU_BACKEND_CPU_EPILOGUE_INL_H_
#endif

#include "backend/cpu/simd-inl.h"
#include "backend/cpu/tile.h"

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {

HWY_INLINE Floats apply_epilogue(const TileEpilogue& epilogue, Floats v, int64_t row, int64_t col, int64_t n) {
  for (int e = 0; e < epilogue.count; ++e) {
    const TileEpilogue::Word& word = epilogue.words[static_cast<size_t>(e)];
    const float* like_y = word.operand + row * word.pitch + col;
    switch (word.kind) {
      case ops::Epilogue::bias:
        v = hn::Add(v, load_up_to(word.operand + col, n));
        break;
      case ops::Epilogue::relu:
        v = relu_of(v);
        break;
      case ops::Epilogue::relu6:
        v = relu6_of(v);
        break;
      case ops::Epilogue::residual:
        v = hn::Add(v, load_up_to(like_y, n));
        break;
      case ops::Epilogue::mask:
        v = hn::IfThenElseZero(hn::Gt(load_up_to(like_y, n), zeros()), v);
        break;
      case ops::Epilogue::mask6:
        v = inside_six(load_up_to(like_y, n), v);
        break;
    }
  }
  return v;
}

}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SITU_BACKEND_CPU_EPILOGUE_INL_H_
