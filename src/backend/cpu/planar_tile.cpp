#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/planar_tile.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <algorithm>

#include "backend/cpu/epilogue-inl.h"
#include "backend/cpu/planar_tile.h"
#include "backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

void interleave(const float* tile, int64_t m, int64_t n, float* to, int64_t step) {
  int64_t whole_m = 0, whole_n = 0;
#if HWY_TARGET != HWY_SCALAR
  whole_m = m / 2 * 2;
  whole_n = n / 4 * 4;
  for (int64_t i = 0; i < whole_n; i += 4) {
    int64_t o = 0;
    for (; o + 4 <= m; o += 4) transpose_4x4(tile + o * kPlanarColumns + i, kPlanarColumns, to + i * step + o, step);
    if (o + 2 <= m) transpose_2x4(tile + o * kPlanarColumns + i, kPlanarColumns, to + i * step + o, step);
  }
#endif
  for (int64_t i = 0; i < n; ++i)
    for (int64_t o = i < whole_n ? whole_m : 0; o < m; ++o) to[i * step + o] = tile[o * kPlanarColumns + i];
}

void store_planar(const PlanarTile& t) {
  if (!t.epilogue) return interleave(t.tile, t.m, t.n, t.y, t.y_step);
  HWY_ALIGN float pixels[kPlanarColumns * kMaxTileRows];
  interleave(t.tile, t.m, t.n, pixels, kMaxTileRows);
  for (int64_t i = 0; i < t.n; ++i)
    for (int64_t o = 0; o < t.m; o += lanes()) {
      const Floats v = load_up_to(pixels + i * kMaxTileRows + o, t.m - o);
      store_up_to(apply_epilogue(*t.epilogue, v, t.row + i * t.row_step, t.col + o, t.m - o), t.y + i * t.y_step + o,
                  t.m - o);
    }
}

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(store_planar);
}  // namespace

PlanarStore planar_store() { return &HWY_DYNAMIC_DISPATCH(store_planar); }

int64_t planar_columns(int64_t rows, const device::Tuning& tuning) {
  const int64_t lanes = tuning.get("simd.lanes", 8), vectors = panel_width(tuning) / lanes;
  return std::min(kPlanarColumns / lanes, rows <= 6 ? vectors : std::max<int64_t>(1, vectors / 2)) * lanes;
}

std::vector<TileEpilogue> planar_epilogues(const TileEpilogue& whole, int64_t results, int64_t rows) {
  std::vector<TileEpilogue> parts;
  for (int64_t o = 0; o < results; o += rows) {
    TileEpilogue part = whole;
    for (int e = 0; e < part.count; ++e) {
      TileEpilogue::Word& word = part.words[static_cast<size_t>(e)];
      if (ops::takes_like_result(word.kind)) return {};
      if (word.kind == ops::Epilogue::bias) word.operand += o;
    }
    parts.push_back(part);
  }
  return parts;
}

}  // namespace situ::cpu
#endif
