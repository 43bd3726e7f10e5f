// tile.cpp -- the register tile's inner loop, written once for every vector length.
//
// Accumulators are named variables, c<row><vector>, because vectors of unknown length (SVE, RVV) fit no array. The
// macros below only spell out rows; `if constexpr` removes what a given MR x NV does not have.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/tile.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include "backend/cpu/simd-inl.h"
#include "backend/cpu/tile.h"
#include "base/error.h"

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

constexpr int64_t kShortSum = 64;

#define SITU_ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define SITU_BEGIN(i) Floats c##i##0 = begin0, c##i##1 = begin1, c##i##2 = begin2, c##i##3 = begin3;

// Applies c = f(c, vector number) to the vectors a tile has.
#define SITU_ROW(i, F)                   \
  if constexpr (MR > i) {                \
    F(c##i##0, 0);                       \
    if constexpr (NV > 1) F(c##i##1, 1); \
    if constexpr (NV > 2) F(c##i##2, 2); \
    if constexpr (NV > 3) F(c##i##3, 3); \
  }

#define SITU_POINTER(i) const float* p##i = MR > i ? a[MR > i ? i : 0] : nullptr;
#define SITU_MULADD(i)                                          \
  if constexpr (MR > i) {                                       \
    const Floats x = fill(p##i[ka]);                            \
    c##i##0 = hn::MulAdd(x, b0, c##i##0);                       \
    if constexpr (NV > 1) c##i##1 = hn::MulAdd(x, b1, c##i##1); \
    if constexpr (NV > 2) c##i##2 = hn::MulAdd(x, b2, c##i##2); \
    if constexpr (NV > 3) c##i##3 = hn::MulAdd(x, b3, c##i##3); \
  }

#define SITU_THREE_TERMS(i)                                                                         \
  if constexpr (MR > i) {                                                                           \
    c##i##0 = three_terms<PLUS>(a + i, MR, first0, second0, third0, c##i##0);                       \
    if constexpr (NV > 1) c##i##1 = three_terms<PLUS>(a + i, MR, first1, second1, third1, c##i##1); \
  }
#define SITU_THREE_ROWS(PLUS_OR_MINUS)                                                                                \
  {                                                                                                                   \
    constexpr bool PLUS = PLUS_OR_MINUS;                                                                              \
    const Floats first0 = hn::LoadU(d, b), second0 = hn::LoadU(d, b + b_step), third0 = hn::LoadU(d, b + 2 * b_step); \
    const float* const next = b + (NV > 1 ? width : 0);                                                               \
    const Floats first1 = hn::LoadU(d, next), second1 = hn::LoadU(d, next + b_step),                                  \
                 third1 = hn::LoadU(d, next + 2 * b_step);                                                            \
    SITU_ROWS(SITU_THREE_TERMS)                                                                                       \
    a += 3 * MR;                                                                                                      \
    b += 3 * b_step;                                                                                                  \
  }
#define SITU_BEGIN_OWN(i)                                    \
  if constexpr (MR > i) {                                    \
    c##i##0 = plus_value(own0, a + i);                       \
    if constexpr (NV > 1) c##i##1 = plus_value(own1, a + i); \
  }
#define SITU_SCALE(i)                                                                    \
  if constexpr (MR > i) {                                                                \
    const Floats scale = fill(scales[i]);                                                \
    c##i##0 = hn::MulAdd(hn::Mul(c##i##0, scale), scale0, begin0);                       \
    if constexpr (NV > 1) c##i##1 = hn::MulAdd(hn::Mul(c##i##1, scale), scale1, begin1); \
  }

// A pair of terms and a plain one (paired.h), for a row of a whose values lie `step` apart. Additions read them where
// they lie: to load one into a register takes as long as to add it.
template <bool PLUS>
HWY_INLINE Floats three_terms(const float* a, int64_t step, Floats first, Floats second, Floats third, Floats c) {
  if constexpr (PLUS) {
    const Floats left = plus_value(second, a), right = plus_value(first, a + step);
    return hn::MulAdd(left, right, plus_product(third, a + 2 * step, c));
  } else {
    const Floats left = minus_value(second, a), right = minus_value(first, a + step);
    return hn::NegMulAdd(left, right, plus_product(third, a + 2 * step, c));
  }
}

// Vector j of a row that ends with the tile's last column.
template <int NV>
HWY_INLINE Floats load_vector(const float* p, int j, int64_t last) {
  p += j * lanes();
  return j + 1 == NV && last != lanes() ? load_part(p, last) : hn::LoadU(Tag(), p);
}
template <int NV>
HWY_INLINE void store_vector(Floats v, float* p, int j, int64_t last) {
  p += j * lanes();
  if (j + 1 == NV && last != lanes())
    store_part(v, p, last);
  else
    hn::StoreU(v, Tag(), p);
}

// Where a tile's terms come from: panels, whole vectors of a matrix in place or not, or paired panels.
enum class Terms { whole, edge, paired };

template <int MR, int NV, Terms TERMS>
void run_tile(const Tile& t) {
  const Tag d;
  const int64_t width = lanes(), last = t.n - (NV - 1) * width;
  float* const y = t.y + t.col;
  const int words = t.epilogue ? t.epilogue->count : 0;
  // A bias that comes first costs nothing where sums begin with it, or are scaled at the end. Where they are long and
  // are not it would cost no less than a thousandth, but they would be rounded at its size term by term.
  int64_t terms = 0;
  for (int64_t s = 0; s < t.count; ++s) terms += t.segments[s].length;
  const bool begins = words > 0 && t.epilogue->words[0].kind == ops::Epilogue::bias && !t.bias_by_row &&
                      (TERMS == Terms::paired || (!t.accumulate && terms <= kShortSum));
  const auto begin = [&](int j) HWY_ATTR {
    return begins ? load_vector<NV>(t.epilogue->words[0].operand + t.col, j, last) : zeros();
  };
  const Floats begin0 = begin(0);
  const Floats begin1 = NV > 1 ? begin(NV > 1 ? 1 : 0) : begin0;
  const Floats begin2 = NV > 2 ? begin(NV > 2 ? 2 : 0) : begin0;
  const Floats begin3 = NV > 3 ? begin(NV > 3 ? 3 : 0) : begin0;
  SITU_ROWS(SITU_BEGIN)

  if constexpr (TERMS == Terms::paired) {
    const float *a = t.a[0], *b = t.b + t.segments[0].offset;
    const int64_t length = t.segments[0].length, b_step = t.b_step, second = NV > 1 ? width : 0;
    const float *const scales = a + MR, *const b_scales = b + b_step;
    const Floats own0 = hn::LoadU(d, b), own1 = hn::LoadU(d, b + second);
    SITU_ROWS(SITU_BEGIN_OWN)
    a += 2 * MR;
    b += 2 * b_step;
    for (int64_t k = 0; k < length; k += kPairedStep) {
      SITU_THREE_ROWS(true)
      SITU_THREE_ROWS(false)
    }
    const Floats scale0 = hn::LoadU(d, b_scales), scale1 = hn::LoadU(d, b_scales + second);
    SITU_ROWS(SITU_SCALE)
  } else {
    const float* const* a = t.a;
    for (int64_t s = 0; s < t.count; ++s, a += MR) {
      SITU_ROWS(SITU_POINTER)
      const int64_t length = t.segments[s].length, a_step = t.a_step, b_step = t.b_step;
      const float* b = t.b + t.segments[s].offset;
      for (int64_t k = 0, ka = 0; k < length; ++k, ka += a_step, b += b_step) {
        const auto load_b = [&](int j) HWY_ATTR {
          if constexpr (TERMS == Terms::edge)
            if (j + 1 == NV) return load_part(b + j * width, last);
          return hn::LoadU(d, b + j * width);
        };
        const Floats b0 = load_b(0);
        const Floats b1 = load_b(NV > 1 ? 1 : 0);
        const Floats b2 = load_b(NV > 2 ? 2 : 0);
        const Floats b3 = load_b(NV > 3 ? 3 : 0);
        SITU_ROWS(SITU_MULADD)
      }
    }
  }

  // Sums of earlier segments are added at the end, not begun with: a long sum is one of sums, whose rounding errors
  // grow with their number and length, not with the number of terms.
  if (t.accumulate) {
#define SITU_ADD(c, j) c = hn::Add(c, load_vector<NV>(row, j, last))
#define SITU_ADD_ROW(i)                           \
  if (MR > i && t.m > i) {                        \
    const float* row = y + t.rows[i] * t.y_pitch; \
    SITU_ROW(i, SITU_ADD)                         \
  }
    SITU_ROWS(SITU_ADD_ROW)
  }

  for (int e = begins ? 1 : 0; e < words; ++e) {
    const TileEpilogue::Word& word = t.epilogue->words[static_cast<size_t>(e)];
    const float* operand = word.operand + t.col;
    switch (word.kind) {
      case ops::Epilogue::bias: {
        if (t.bias_by_row) {
#define SITU_ROW_BIAS(c, j) c = hn::Add(c, bias)
#define SITU_ROW_BIAS_ROW(i)                                    \
  if constexpr (MR > i) {                                       \
    const Floats bias = fill(t.m > i ? word.operand[i] : 0.0f); \
    SITU_ROW(i, SITU_ROW_BIAS)                                  \
  }
          SITU_ROWS(SITU_ROW_BIAS_ROW)
          break;
        }
        const Floats b0 = load_vector<NV>(operand, 0, last);
        const Floats b1 = NV > 1 ? load_vector<NV>(operand, NV > 1 ? 1 : 0, last) : b0;
        const Floats b2 = NV > 2 ? load_vector<NV>(operand, NV > 2 ? 2 : 0, last) : b0;
        const Floats b3 = NV > 3 ? load_vector<NV>(operand, NV > 3 ? 3 : 0, last) : b0;
#define SITU_BIAS(c, j) c = hn::Add(c, b##j)
#define SITU_BIAS_ROW(i) SITU_ROW(i, SITU_BIAS)
        SITU_ROWS(SITU_BIAS_ROW)
        break;
      }
      case ops::Epilogue::relu: {
#define SITU_RELU(c, j) c = relu_of(c)
#define SITU_RELU_ROW(i) SITU_ROW(i, SITU_RELU)
        SITU_ROWS(SITU_RELU_ROW)
        break;
      }
      case ops::Epilogue::relu6: {
#define SITU_RELU6(c, j) c = relu6_of(c)
#define SITU_RELU6_ROW(i) SITU_ROW(i, SITU_RELU6)
        SITU_ROWS(SITU_RELU6_ROW)
        break;
      }
      case ops::Epilogue::residual: {
#define SITU_RESIDUAL_ROW(i)                             \
  if (MR > i && t.m > i) {                               \
    const float* row = operand + t.rows[i] * word.pitch; \
    SITU_ROW(i, SITU_ADD)                                \
  }
        SITU_ROWS(SITU_RESIDUAL_ROW)
        break;
      }
      case ops::Epilogue::mask: {
#define SITU_MASK(c, j) c = hn::IfThenElseZero(hn::Gt(load_vector<NV>(row, j, last), zeros()), c)
#define SITU_MASK_ROW(i)                                 \
  if (MR > i && t.m > i) {                               \
    const float* row = operand + t.rows[i] * word.pitch; \
    SITU_ROW(i, SITU_MASK)                               \
  }
        SITU_ROWS(SITU_MASK_ROW)
        break;
      }
      case ops::Epilogue::mask6: {
#define SITU_MASK6(c, j) c = inside_six(load_vector<NV>(row, j, last), c)
#define SITU_MASK6_ROW(i)                                \
  if (MR > i && t.m > i) {                               \
    const float* row = operand + t.rows[i] * word.pitch; \
    SITU_ROW(i, SITU_MASK6)                              \
  }
        SITU_ROWS(SITU_MASK6_ROW)
        break;
      }
    }
  }

#define SITU_STORE(c, j) store_vector<NV>(c, row, j, last)
#define SITU_STORE_ROW(i)                   \
  if (MR > i && t.m > i) {                  \
    float* row = y + t.rows[i] * t.y_pitch; \
    SITU_ROW(i, SITU_STORE)                 \
  }
  SITU_ROWS(SITU_STORE_ROW)
}

#undef SITU_HALF_VECTORS
#define SITU_HALF_VECTORS (HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL)
#if SITU_HALF_VECTORS
// Eight rows of one and a half vectors, as three halves: two whole vectors would compute a third more. Halves have a
// size, so they fit an array.
void run_halves(const Tile& t) {
  constexpr int kRows = 8, kHalves = 3;
  const hn::FixedTag<float, 8> d;
  using Half = hn::Vec<decltype(d)>;
  Half c[kRows][kHalves];
  const auto each = [&](const auto& change) HWY_ATTR {
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 3
      for (int j = 0; j < kHalves; ++j) change(c[i][j], i, 8 * j);
  };
  each([&](Half& v, int, int) HWY_ATTR { v = hn::Zero(d); });
  const float* const* a = t.a;
  for (int64_t s = 0; s < t.count; ++s, a += kRows) {
    const float* p[kRows];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) p[i] = a[i];
    const float* b = t.b + t.segments[s].offset;
    const int64_t length = t.segments[s].length, a_step = t.a_step, b_step = t.b_step;
    for (int64_t k = 0, ka = 0; k < length; ++k, ka += a_step, b += b_step) {
      const Half b0 = hn::LoadU(d, b), b1 = hn::LoadU(d, b + 8), b2 = hn::LoadU(d, b + 16);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        const Half x = hn::Set(d, p[i][ka]);
        c[i][0] = hn::MulAdd(x, b0, c[i][0]);
        c[i][1] = hn::MulAdd(x, b1, c[i][1]);
        c[i][2] = hn::MulAdd(x, b2, c[i][2]);
      }
    }
  }
  // Rows beyond the last repeat it, so they may be read.
  float* const y = t.y + t.col;
  const auto like_y = [&](const float* from, int64_t pitch, int i, int n)
                          HWY_ATTR { return hn::LoadU(d, from + t.rows[i] * pitch + n); };
  if (t.accumulate) each([&](Half& v, int i, int n) HWY_ATTR { v = hn::Add(v, like_y(y, t.y_pitch, i, n)); });
  const Half zero = hn::Zero(d), six = hn::Set(d, 6.0f);
  for (int e = 0; t.epilogue && e < t.epilogue->count; ++e) {
    const TileEpilogue::Word& word = t.epilogue->words[static_cast<size_t>(e)];
    const float* operand = word.operand + t.col;
    switch (word.kind) {
      case ops::Epilogue::bias:
        each([&](Half& v, int, int n) HWY_ATTR { v = hn::Add(v, hn::LoadU(d, operand + n)); });
        break;
      case ops::Epilogue::relu:
        each([&](Half& v, int, int) HWY_ATTR { v = hn::Max(zero, v); });
        break;
      case ops::Epilogue::relu6:
        each([&](Half& v, int, int) HWY_ATTR { v = hn::Min(six, hn::Max(zero, v)); });
        break;
      case ops::Epilogue::residual:
        each([&](Half& v, int i, int n) HWY_ATTR { v = hn::Add(v, like_y(operand, word.pitch, i, n)); });
        break;
      case ops::Epilogue::mask:
        each([&](Half& v, int i, int n)
                 HWY_ATTR { v = hn::IfThenElseZero(hn::Gt(like_y(operand, word.pitch, i, n), zero), v); });
        break;
      case ops::Epilogue::mask6:
        each([&](Half& v, int i, int n) HWY_ATTR {
          const Half m = like_y(operand, word.pitch, i, n);
          v = hn::IfThenElseZero(hn::And(hn::Gt(m, zero), hn::Lt(m, six)), v);
        });
        break;
    }
  }
  each([&](Half& v, int i, int n) HWY_ATTR {
    if (i < t.m) hn::StoreU(v, d, y + t.rows[i] * t.y_pitch + n);
  });
}
TileFunction halves_tile() { return run_halves; }
#else
TileFunction halves_tile() { return nullptr; }
#endif

template <int MR, Terms TERMS>
TileFunction by_vectors(int64_t nv) {
  if (nv == 1) return run_tile<MR, 1, TERMS>;
  if (nv == 2) return run_tile<MR, 2, TERMS>;
  if (nv == 3) return run_tile<MR, 3, TERMS>;
  if constexpr (MR <= 6)
    if (nv == 4) return run_tile<MR, 4, TERMS>;
  return nullptr;
}
template <int MR>
TileFunction by_terms(int64_t nv, bool edge) {
  return edge ? by_vectors<MR, Terms::edge>(nv) : by_vectors<MR, Terms::whole>(nv);
}

TileFunction tile_for(int64_t mr, int64_t nv, bool edge) {
  if (mr == 4) return by_terms<4>(nv, edge);
  if (mr == 6) return by_terms<6>(nv, edge);
  if (mr == 8) return by_terms<8>(nv, edge);
  return nullptr;
}

TileFunction paired_tile_for(int64_t nv) {
  return nv == 1 ? run_tile<kPairedRows, 1, Terms::paired> : run_tile<kPairedRows, 2, Terms::paired>;
}

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
HWY_EXPORT(tile_for);
HWY_EXPORT(paired_tile_for);
HWY_EXPORT(halves_tile);

TileFunction tile_function(int64_t mr, int64_t nv, bool edge) {
  TileFunction function = HWY_DYNAMIC_DISPATCH(tile_for)(mr, nv, edge);
  SITU_ASSERT(function, "no tile of {} rows and {} vectors", mr, nv);
  return function;
}

TileFunction halves_tile_function() { return HWY_DYNAMIC_DISPATCH(halves_tile)(); }

TileFunction paired_tile_function(int64_t nv) { return HWY_DYNAMIC_DISPATCH(paired_tile_for)(nv); }

int64_t panel_width(const device::Tuning& tuning) {
  const int64_t width = tuning.get("simd.lanes", 8);
  return width * std::clamp<int64_t>(tuning.get("gemm.TN", 2 * width) / width, 1, kMaxTileVectors);
}

TileShape tile_shape(int64_t n, const device::Tuning& tuning) {
  TileShape shape;
  shape.nv = ceil_div(n, tuning.get("simd.lanes", 8));
  const int64_t mr = tuning.get("gemm.MR", 6);
  shape.mr = (shape.nv == 1 ? tuning.get("gemm.MR1", 8) : shape.nv == 2 ? tuning.get("gemm.MR2", mr) : mr) <= 6 ? 6 : 8;
  if (shape.nv == kMaxTileVectors) shape.mr = 6;  // eight rows would not fit any register file
  return shape;
}

TileEpilogue bind_epilogue(const Call& call, int first) {
  TileEpilogue epilogue;
  for (ops::Epilogue kind : ops::epilogue_of(call.attrs)) {
    SITU_ASSERT(epilogue.count < kMaxEpilogue, "an epilogue has at most {} words", kMaxEpilogue);
    TileEpilogue::Word& word = epilogue.words[static_cast<size_t>(epilogue.count++)];
    word.kind = kind;
    if (!ops::takes_operand(kind)) continue;
    const Operand& operand = call.in[static_cast<size_t>(first++)];
    word.operand = operand.f32();
    word.pitch = operand.pitch;
  }
  return epilogue;
}

bool is_range(const TileEpilogue& epilogue, SumRange* range) {
  SumRange found;
  bool limited = false;
  for (int e = 0; e < epilogue.count; ++e) {
    const TileEpilogue::Word& word = epilogue.words[static_cast<size_t>(e)];
    const bool bias = word.kind == ops::Epilogue::bias;
    if (limited || (bias && e > 0)) return false;
    if (bias) {
      found.bias = word.operand;
      continue;
    }
    if (word.kind != ops::Epilogue::relu && word.kind != ops::Epilogue::relu6) return false;
    found.low = 0;
    if (word.kind == ops::Epilogue::relu6) found.high = 6;
    limited = true;
  }
  *range = found;
  return true;
}

}  // namespace situ::cpu
#endif
