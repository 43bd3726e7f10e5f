// winograd_lines.cpp -- see the header. AVX-512 alone has the registers, and vectors that fit an array.
#include "backend/cpu/winograd_lines.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/winograd_lines.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <algorithm>

#include "backend/cpu/epilogue-inl.h"
#include "backend/cpu/winograd-inl.h"

#ifndef SITU_BACKEND_CPU_WINOGRAD_LINES_ONCE_
#define SITU_BACKEND_CPU_WINOGRAD_LINES_ONCE_
namespace situ::cpu {
namespace {
// Points lie as [vector of channels, tile, point]: distances are constants, which addresses contain.
constexpr int64_t kVector = 16, kPoints = 16;
constexpr int64_t kSquare = kPoints * kVector, kSquares = kLineTiles * kSquare;  // floats: of a tile, of all tiles
}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

#undef SITU_TILE_LINES
#define SITU_TILE_LINES (HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL)
#if SITU_TILE_LINES

// A column of four pixels, transformed down: B^T x.
struct Column {
  Floats v[4];
};

// Four lines of pixels of one vector of channels; those outside the image are zeros.
struct PixelLines {
  const float* at[4];
  int64_t step[4];
  int64_t width;
  PixelLines(const TiledImages& x, const TilePlace& place, int64_t channel) : width(x.w) {
    for (int64_t r = 0; r < 4; ++r) {
      const bool inside = static_cast<uint64_t>(place.y + r) < static_cast<uint64_t>(x.h);
      step[r] = inside ? x.pitch : 0;
      at[r] = inside ? x.data + ((place.image * x.h + place.y + r) * x.w) * x.pitch + channel : x.zeros;
    }
  }
  HWY_INLINE Column column(int64_t pixel) const {
    if (static_cast<uint64_t>(pixel) >= static_cast<uint64_t>(width)) return {{zeros(), zeros(), zeros(), zeros()}};
    const auto load = [&](int r) HWY_ATTR { return hn::LoadU(Tag(), at[r] + pixel * step[r]); };
    const Floats x0 = load(0), x1 = load(1), x2 = load(2), x3 = load(3);
    return {{hn::Sub(x0, x2), hn::Add(x1, x2), hn::Sub(x2, x1), hn::Sub(x1, x3)}};
  }
};

// The points of `count` tiles from a pixel on, of one vector of channels.
HWY_INLINE void transform_line(const PixelLines& lines, int64_t pixel, int64_t count, float* v) {
  Column c0 = lines.column(pixel), c1 = lines.column(pixel + 1);
  for (int64_t t = 0; t < count; ++t, v += kSquare) {
    pixel += 2;
    const Column c2 = lines.column(pixel), c3 = lines.column(pixel + 1);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      float* const to = v + 4 * i * kVector;
      hn::StoreU(hn::Sub(c0.v[i], c2.v[i]), Tag(), to);
      hn::StoreU(hn::Add(c1.v[i], c2.v[i]), Tag(), to + kVector);
      hn::StoreU(hn::Sub(c2.v[i], c1.v[i]), Tag(), to + 2 * kVector);
      hn::StoreU(hn::Sub(c1.v[i], c3.v[i]), Tag(), to + 3 * kVector);
    }
    c0 = c2;
    c1 = c3;
  }
}

// Lines of results and of what their epilogue reads.
HWY_INLINE void ask_for_results(const TileLines& t, int64_t row) {
  for (int64_t j = 0; j < t.y.channels; j += kVector) {
    __builtin_prefetch(t.y.data + row * t.y.pitch + j, 1);
    for (int e = 0; e < t.epilogue.count; ++e) {
      const TileEpilogue::Word& word = t.epilogue.words[static_cast<size_t>(e)];
      if (ops::takes_like_result(word.kind)) __builtin_prefetch(word.operand + row * word.pitch + j);
    }
  }
}

void transform_images(const TileLines& t, int64_t first, int64_t last, float* v) {
  for (int64_t tile = first; tile < last;) {
    const TilePlace from(t.x, tile), to(t.y, tile);
    const int64_t count = std::min(last - tile, t.x.tiles_w - to.x / 2);
    float* points = v + (tile - first) * kSquare;
    for (int64_t c = 0; c < t.x.channels; c += kVector, points += kSquares)
      transform_line(PixelLines(t.x, from, c), from.x, count, points);
    for (int64_t r = 0; r < std::min<int64_t>(2, t.y.h - to.y); ++r) {
      const int64_t row = (to.image * t.y.h + to.y + r) * t.y.w + to.x;
      for (int64_t s = 0; s < std::min(2 * count, t.y.w - to.x); ++s) ask_for_results(t, row + s);
    }
    tile += count;
  }
}

// Sixteen terms of ROWS tiles at one point, for one vector of results.
template <int ROWS>
HWY_INLINE void multiply_rows(const float* v, const Floats* weights, bool accumulate, float* m) {
  Floats sum[ROWS];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) sum[r] = zeros();
#pragma GCC unroll 16
  for (int k = 0; k < kVector; ++k)
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) sum[r] = plus_product(weights[k], v + r * kSquare + k, sum[r]);
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) {
    float* const to = m + r * kSquare;
    hn::StoreU(accumulate ? hn::Add(sum[r], hn::LoadU(Tag(), to)) : sum[r], Tag(), to);
  }
}

void multiply(const TileLines& t, int64_t count, const float* v, float* m) {
  for (int64_t point = 0; point < kPoints; ++point)
    for (int64_t o = 0; o < t.y.channels; o += kVector)
      for (int64_t c = 0; c < t.x.channels; c += kVector) {
        const float* const u = t.u + o / t.columns * t.panel + point * t.plane + c * t.columns + o % t.columns;
        Floats weights[kVector];
#pragma GCC unroll 16
        for (int k = 0; k < kVector; ++k) weights[k] = kept(hn::LoadU(Tag(), u + k * t.columns));
        const float* const from = v + c / kVector * kSquares + point * kVector;
        float* const to = m + o / kVector * kSquares + point * kVector;
        if (count == kLineTiles) {
          multiply_rows<kLineTiles>(from, weights, c > 0, to);
          continue;
        }
        for (int64_t i = 0; i < count; ++i) multiply_rows<1>(from + i * kSquare, weights, c > 0, to + i * kSquare);
      }
}

void transform_results(const TileLines& t, int64_t first, int64_t last, const float* m) {
  TilePlace place(t.y, first);
  for (int64_t tile = first; tile < last; ++tile, place.next(t.y), m += kSquare) {
    const int64_t row = (place.image * t.y.h + place.y) * t.y.w + place.x;
    const bool below = place.y + 1 < t.y.h, right = place.x + 1 < t.y.w;
    const float* points = m;
    for (int64_t o = 0; o < t.y.channels; o += kVector, points += kSquares) {
      const auto store = [&](Floats v, int64_t to) HWY_ATTR {
        hn::StoreU(apply_epilogue(t.epilogue, v, to, o, kVector), Tag(), t.y.data + to * t.y.pitch + o);
      };
      Floats upper[4], lower[4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const auto load = [&](int i) HWY_ATTR { return hn::LoadU(Tag(), points + (4 * i + j) * kVector); };
        const Floats m1 = load(1), m2 = load(2);
        upper[j] = hn::Add(load(0), hn::Add(m1, m2));
        lower[j] = hn::Sub(hn::Sub(m1, m2), load(3));
      }
      store(hn::Add(hn::Add(upper[0], upper[1]), upper[2]), row);
      if (right) store(hn::Sub(hn::Sub(upper[1], upper[2]), upper[3]), row + 1);
      if (below) store(hn::Add(hn::Add(lower[0], lower[1]), lower[2]), row + t.y.w);
      if (below && right) store(hn::Sub(hn::Sub(lower[1], lower[2]), lower[3]), row + t.y.w + 1);
    }
  }
}

void run_tile_lines(const TileLines& t, int64_t first, int64_t last, float* scratch) {
  // One vector of either: a point's products take the place of what they were made of, and more stays in the L1 cache.
  const bool alone = t.x.channels == kVector && t.y.channels == kVector;
  float* const m = alone ? scratch : scratch + t.x.channels / kVector * kSquares;
  for (int64_t tile = first; tile < last; tile += kLineTiles) {
    const int64_t end = std::min(last, tile + kLineTiles);
    transform_images(t, tile, end, scratch);
    multiply(t, end - tile, scratch, m);
    transform_results(t, tile, end, m);
  }
}

// --- weight gradients -----------------------------------------------------------------------------------------------
// Points of a block of tiles, as [vector of channels, tile, point].
template <class Line>
void transform_block(const TiledImages& images, int64_t first, int64_t last, int64_t block, float* to) {
  constexpr int64_t kSquare = Line::kTo * Line::kTo * kVector;
  TilePlace place(images, first);
  for (int64_t tile = first; tile < last; ++tile, to += kSquare, place.next(images)) {
    const TilePixels<Line::kFrom> pixels(images, place);
    for (int64_t c = 0; c < images.channels; c += kVector)
      transform_pixels<Line>(pixels, c, kVector, to + c / kVector * block * kSquare, kVector);
  }
}

// Adds, or sets, the sums of one vector of channels by one of results: m[point, channel, result].
template <int POINTS>
void add_products(int64_t count, const float* v, const float* e, bool fresh, float* m) {
  for (int64_t point = 0; point < POINTS; ++point, m += kVector * kVector) {
    Floats sum[kVector];
#pragma GCC unroll 16
    for (int i = 0; i < kVector; ++i) sum[i] = zeros();
    const float *a = v + point * kVector, *b = e + point * kVector;
    for (int64_t t = 0; t < count; ++t, a += POINTS * kVector, b += POINTS * kVector) {
      const Floats column = kept(hn::LoadU(Tag(), b));
#pragma GCC unroll 16
      for (int i = 0; i < kVector; ++i) sum[i] = plus_product(column, a + i, sum[i]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kVector; ++i) {
      float* const to = m + i * kVector;
      hn::StoreU(fresh ? sum[i] : hn::Add(sum[i], hn::LoadU(Tag(), to)), Tag(), to);
    }
  }
}

template <class S>
void run_tile_gradient(const TileGradient& g, int64_t first, int64_t last, float* scratch) {
  constexpr int kPoints = S::kSide * S::kSide;
  constexpr int64_t kSquare = kPoints * kVector, kSums = kSquare * kVector;
  const int64_t channels = g.x.channels, results = g.dy.channels, vector = g.block * kSquare;
  float *const v = scratch, *const e = v + channels / kVector * vector, *const m = e + results / kVector * vector;
  for (int64_t tile = first; tile < last; tile += g.block) {
    const int64_t end = std::min(last, tile + g.block);
    transform_block<InputLine<S>>(g.x, tile, end, g.block, v);
    transform_block<DyLine<S>>(g.dy, tile, end, g.block, e);
    float* sums = m;
    for (int64_t c = 0; c < channels / kVector; ++c)
      for (int64_t o = 0; o < results / kVector; ++o, sums += kSums)
        add_products<kPoints>(end - tile, v + c * vector, e + o * vector, tile == first, sums);
  }
  const float* sums = m;
  for (int64_t c0 = 0; c0 < channels; c0 += kVector)
    for (int64_t o = 0; o < results; o += kVector, sums += kSums)
      for (int64_t c = 0; c < kVector; ++c)
        transform<DwLine<S>>(
            [&](int i, int j)
                HWY_ATTR { return hn::LoadU(Tag(), sums + ((i * S::kSide + j) * kVector + c) * kVector); },
            [&](int r, int s, Floats w)
                HWY_ATTR { hn::StoreU(w, Tag(), g.dw + (r * S::kKernel + s) * g.tap + (c0 + c) * g.dw_pitch + o); });
}

TileLinesFunction tile_lines() { return run_tile_lines; }
TileGradientFunction tile_gradient(int64_t out) {
  return out == 4 ? run_tile_gradient<Tiles43> : run_tile_gradient<Tiles23>;
}
#else
TileLinesFunction tile_lines() { return nullptr; }
TileGradientFunction tile_gradient(int64_t) { return nullptr; }
#endif

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(tile_lines);
HWY_EXPORT(tile_gradient);

bool are_vectors(int64_t channels, int64_t results, const device::Tuning& tuning) {
  return tuning.get("simd.lanes", 8) == kVector && channels % kVector == 0 && results % kVector == 0;
}
}  // namespace

TileLinesFunction tile_lines_function(int64_t channels, int64_t results, const ops::winograd::Tiles& tiles,
                                      const device::Tuning& tuning) {
  const bool few = std::max(channels, results) <= 4 * kVector;
  const bool fits = tiles.out == 2 && tiles.side == 4 && few && are_vectors(channels, results, tuning);
  return fits ? HWY_DYNAMIC_DISPATCH(tile_lines)() : nullptr;
}

TileGradientFunction tile_gradient_function(int64_t channels, int64_t results, const ops::winograd::Tiles& tiles,
                                            const device::Tuning& tuning) {
  const bool fits = tiles.side == tiles.out + 2 && are_vectors(channels, results, tuning);
  return fits ? HWY_DYNAMIC_DISPATCH(tile_gradient)(tiles.out) : nullptr;
}

}  // namespace situ::cpu
#endif
