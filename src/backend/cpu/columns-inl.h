// columns-inl.h -- statistics of columns: moments by Chan's formula, and the two sums of a normalisation's gradient.
//
// Rows are taken in blocks that stay in the L1 cache; each block has its own mean, and blocks are joined in order:
//   n = na + nb, d = mean_b - mean_a, mean = mean_a + d nb / n, m2 = m2_a + m2_b + d^2 na nb / n
// so that nothing cancels, however far the mean lies from 0.
#if defined(SITU_BACKEND_CPU_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SITU_BACKEND_CPU_COLUMNS_INL_H_
#undef SITU_BACKEND_CPU_COLUMNS_INL_H_
#else
#define SITU_BACKEND_CPU_COLUMNS_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "backend/cpu/columns.h"
#include "backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {

template <bool FULL>
HWY_INLINE Floats load_columns(const float* p, int64_t n) {
  return FULL ? hn::LoadU(Tag(), p) : load_part(p, n);
}

// Joins `count` rows with these moments to the first n columns of `to`.
HWY_INLINE void join_moments(Moments& to, const float* mean, const float* m2, int64_t count, int64_t n) {
  const Tag d;
  const float share = static_cast<float>(count) / static_cast<float>(to.count + count);
  const Floats w = fill(share), cross = fill(static_cast<float>(to.count) * share);
  for (int64_t c = 0; c < n; c += lanes()) {
    const Floats a = hn::LoadU(d, to.mean + c), delta = hn::Sub(hn::LoadU(d, mean + c), a);
    const Floats squares = hn::Add(hn::LoadU(d, to.m2 + c), hn::LoadU(d, m2 + c));
    hn::StoreU(hn::MulAdd(delta, w, a), d, to.mean + c);
    hn::StoreU(hn::MulAdd(hn::Mul(delta, delta), cross, squares), d, to.m2 + c);
  }
  to.count += count;
}

// The mean of one vector of columns of a block of rows.
template <bool FULL>
HWY_INLINE void block_mean(const float* x, int64_t pitch, int64_t rows, int64_t n, float* mean) {
  Floats a0 = zeros(), a1 = zeros(), a2 = zeros(), a3 = zeros();
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    a0 = hn::Add(a0, load_columns<FULL>(x + r * pitch, n));
    a1 = hn::Add(a1, load_columns<FULL>(x + (r + 1) * pitch, n));
    a2 = hn::Add(a2, load_columns<FULL>(x + (r + 2) * pitch, n));
    a3 = hn::Add(a3, load_columns<FULL>(x + (r + 3) * pitch, n));
  }
  for (; r < rows; ++r) a0 = hn::Add(a0, load_columns<FULL>(x + r * pitch, n));
  const Floats sum = hn::Add(hn::Add(a0, a1), hn::Add(a2, a3));
  hn::StoreU(hn::Div(sum, fill(static_cast<float>(rows))), Tag(), mean);
}

// Of four vectors side by side: memory is read in the order it lies in, which the prefetcher follows.
HWY_INLINE void block_mean_of_four(const float* x, int64_t pitch, int64_t rows, float* mean) {
  const Tag d;
  const int64_t w = lanes();
  Floats a0 = zeros(), a1 = zeros(), a2 = zeros(), a3 = zeros();
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = x + r * pitch;
    a0 = hn::Add(a0, hn::LoadU(d, from));
    a1 = hn::Add(a1, hn::LoadU(d, from + w));
    a2 = hn::Add(a2, hn::LoadU(d, from + 2 * w));
    a3 = hn::Add(a3, hn::LoadU(d, from + 3 * w));
  }
  const Floats n = fill(static_cast<float>(rows));
  hn::StoreU(hn::Div(a0, n), d, mean);
  hn::StoreU(hn::Div(a1, n), d, mean + w);
  hn::StoreU(hn::Div(a2, n), d, mean + 2 * w);
  hn::StoreU(hn::Div(a3, n), d, mean + 3 * w);
}

// The sum of squares around that mean.
template <bool FULL>
HWY_INLINE void block_squares(const float* x, int64_t pitch, int64_t rows, int64_t n, const float* mean, float* m2) {
  const Floats m = hn::LoadU(Tag(), mean);
  Floats a0 = zeros(), a1 = zeros();
  int64_t r = 0;
  for (; r + 2 <= rows; r += 2) {
    const Floats d0 = hn::Sub(load_columns<FULL>(x + r * pitch, n), m);
    const Floats d1 = hn::Sub(load_columns<FULL>(x + (r + 1) * pitch, n), m);
    a0 = hn::MulAdd(d0, d0, a0);
    a1 = hn::MulAdd(d1, d1, a1);
  }
  if (r < rows) {
    const Floats d0 = hn::Sub(load_columns<FULL>(x + r * pitch, n), m);
    a0 = hn::MulAdd(d0, d0, a0);
  }
  hn::StoreU(hn::Add(a0, a1), Tag(), m2);
}

HWY_INLINE void block_moments(const float* x, int64_t pitch, int64_t rows, int64_t n, float* mean, float* m2) {
  int64_t c = 0;
  for (; c + 4 * lanes() <= n; c += 4 * lanes()) block_mean_of_four(x + c, pitch, rows, mean + c);
  for (; c + lanes() <= n; c += lanes()) block_mean<true>(x + c, pitch, rows, 0, mean + c);
  if (c < n) block_mean<false>(x + c, pitch, rows, n - c, mean + c);
  for (c = 0; c + lanes() <= n; c += lanes()) block_squares<true>(x + c, pitch, rows, 0, mean + c, m2 + c);
  if (c < n) block_squares<false>(x + c, pitch, rows, n - c, mean + c, m2 + c);
}

// Joins the moments of n <= kNormColumns columns over all rows to `total`.
inline void column_moments(const float* x, int64_t pitch, int64_t rows, int64_t n, Moments& total) {
  Moments few;
  for (int64_t row = 0; row < rows; row += kNormRows) {
    Moments block;
    const int64_t height = std::min(kNormRows, rows - row);
    block_moments(x + row * pitch, pitch, height, n, block.mean, block.m2);
    join_moments(few, block.mean, block.m2, height, n);
    if (few.count < kNormRows * kNormBlocks && row + height < rows) continue;
    join_moments(total, few.mean, few.m2, few.count, n);
    few = Moments();
  }
}

// mean, unbiased variance and rstd of n columns from their moments.
inline void finish_moments(const Moments& m, float eps, int64_t n, float* mean, float* var, float* rstd) {
  for (int64_t c = 0; c < n; ++c) {
    mean[c] = m.mean[c];
    var[c] = m.m2[c] / static_cast<float>(std::max<int64_t>(1, m.count - 1));
    rstd[c] = 1.0f / std::sqrt(m.m2[c] / static_cast<float>(m.count) + eps);
  }
}

// What stands beside dy in the first sum: x - shift[column], (x - shift[row]) scale[row], or x scale[row].
enum class Centre { column, row, none };

// x and dy of some rows; shift and scale by column or by row of the block.
struct SumBlock {
  const float *x, *dy;
  int64_t x_pitch, dy_pitch, rows;
  const float *shift, *scale;
};

template <Centre CENTRE>
HWY_INLINE Floats centred(Floats x, Floats column_shift, const SumBlock& b, int64_t row) {
  if constexpr (CENTRE == Centre::column) return hn::Sub(x, column_shift);
  if constexpr (CENTRE == Centre::row) return hn::Mul(hn::Sub(x, fill(b.shift[row])), fill(b.scale[row]));
  return hn::Mul(x, fill(b.scale[row]));
}

// Adds a block to the sums of one vector of columns.
template <Centre CENTRE, bool FULL>
HWY_INLINE void add_block(const SumBlock& b, int64_t col, int64_t n, float* products, float* plain) {
  const Tag d;
  Floats p0 = zeros(), p1 = zeros(), s0 = zeros(), s1 = zeros();
  const Floats shift = CENTRE == Centre::column ? hn::LoadU(d, b.shift + col) : zeros();
  const float *x = b.x + col, *dy = b.dy + col;
  int64_t r = 0;
  for (; r + 2 <= b.rows; r += 2) {
    const Floats g0 = load_columns<FULL>(dy + r * b.dy_pitch, n), g1 = load_columns<FULL>(dy + (r + 1) * b.dy_pitch, n);
    const Floats x0 = load_columns<FULL>(x + r * b.x_pitch, n), x1 = load_columns<FULL>(x + (r + 1) * b.x_pitch, n);
    p0 = hn::MulAdd(g0, centred<CENTRE>(x0, shift, b, r), p0);
    p1 = hn::MulAdd(g1, centred<CENTRE>(x1, shift, b, r + 1), p1);
    s0 = hn::Add(s0, g0);
    s1 = hn::Add(s1, g1);
  }
  if (r < b.rows) {
    const Floats g0 = load_columns<FULL>(dy + r * b.dy_pitch, n), x0 = load_columns<FULL>(x + r * b.x_pitch, n);
    p0 = hn::MulAdd(g0, centred<CENTRE>(x0, shift, b, r), p0);
    s0 = hn::Add(s0, g0);
  }
  hn::StoreU(hn::Add(hn::LoadU(d, products + col), hn::Add(p0, p1)), d, products + col);
  hn::StoreU(hn::Add(hn::LoadU(d, plain + col), hn::Add(s0, s1)), d, plain + col);
}

// The same for two vectors side by side, which follow memory's order better.
template <Centre CENTRE>
HWY_INLINE void add_block_of_two(const SumBlock& b, int64_t col, float* products, float* plain) {
  const Tag d;
  const int64_t w = lanes();
  const bool by_column = CENTRE == Centre::column;
  const Floats shift0 = by_column ? hn::LoadU(d, b.shift + col) : zeros();
  const Floats shift1 = by_column ? hn::LoadU(d, b.shift + col + w) : zeros();
  Floats p0 = zeros(), p1 = zeros(), s0 = zeros(), s1 = zeros();
  for (int64_t r = 0; r < b.rows; ++r) {
    const float *x = b.x + r * b.x_pitch + col, *dy = b.dy + r * b.dy_pitch + col;
    const Floats g0 = hn::LoadU(d, dy), g1 = hn::LoadU(d, dy + w);
    p0 = hn::MulAdd(g0, centred<CENTRE>(hn::LoadU(d, x), shift0, b, r), p0);
    p1 = hn::MulAdd(g1, centred<CENTRE>(hn::LoadU(d, x + w), shift1, b, r), p1);
    s0 = hn::Add(s0, g0);
    s1 = hn::Add(s1, g1);
  }
  hn::StoreU(hn::Add(hn::LoadU(d, products + col), p0), d, products + col);
  hn::StoreU(hn::Add(hn::LoadU(d, products + col + w), p1), d, products + col + w);
  hn::StoreU(hn::Add(hn::LoadU(d, plain + col), s0), d, plain + col);
  hn::StoreU(hn::Add(hn::LoadU(d, plain + col + w), s1), d, plain + col + w);
}

// Adds sum dy (x centred) and sum dy of n <= kNormColumns columns of a block to buffers with room for a whole vector.
template <Centre CENTRE>
HWY_INLINE void add_sums(const SumBlock& b, int64_t n, float* products, float* plain) {
  int64_t c = 0;
  for (; c + 2 * lanes() <= n; c += 2 * lanes()) add_block_of_two<CENTRE>(b, c, products, plain);
  for (; c + lanes() <= n; c += lanes()) add_block<CENTRE, true>(b, c, 0, products, plain);
  if (c < n) add_block<CENTRE, false>(b, c, n - c, products, plain);
}

// The same over any number of rows, centred by columns.
inline void column_sums(const Matrix& x, const Matrix& dy, int64_t row0, int64_t row1, int64_t col, int64_t n,
                        const float* shift, float* products, float* plain) {
  for (int64_t row = row0; row < row1; row += kNormRows) {
    const int64_t height = std::min(kNormRows, row1 - row);
    add_sums<Centre::column>({x.at(row, col), dy.at(row, col), x.pitch, dy.pitch, height, shift, nullptr}, n, products,
                             plain);
  }
}

}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SITU_BACKEND_CPU_COLUMNS_INL_H_
