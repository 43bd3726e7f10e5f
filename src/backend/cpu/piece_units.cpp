// piece_units.cpp -- the products of pieces.h and twins.h on AMX: eight registers that are matrices of 16 x 16 words,
// three or four for sums, the others for pieces of a and of b.
#include <cstdint>
#include <cstring>

#include "backend/cpu/twins.h"

#undef SITU_AMX
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__)
#define SITU_AMX 1
#else
#define SITU_AMX 0
#endif

#if SITU_AMX
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace situ::cpu {
namespace {

// --- loops ----------------------------------------------------------------------------------------------------------
float half_of(const float* words, int64_t i, bool upper) {
  uint32_t word = 0;
  std::memcpy(&word, words + i, sizeof(word));
  word = upper ? word & 0xFFFF0000u : word << 16;
  float value = 0;
  std::memcpy(&value, &word, sizeof(value));
  return value;
}

// A row of a tile of a times a column of one of b.
float sum_of_words(const float* a, const float* b) {
  float lower = 0, upper = 0;
  for (int64_t k = 0; k < 16; ++k) {
    lower += half_of(a, k, false) * half_of(b, k * 16, false);
    upper += half_of(a, k, true) * half_of(b, k * 16, true);
  }
  return lower + upper;
}

void multiply_with_loops(const PieceTiles& t) {
  constexpr int kOrder[][2] = {{0, 2}, {0, 1}, {1, 1}, {1, 0}, {2, 0}, {0, 0}};
  for (int64_t row = 0; row < (t.a_panel ? 32 : 16); ++row)
    for (int64_t col = 0; col < (t.b_panel ? 32 : 16); ++col) {
      float sum = t.begin ? t.begin[row * t.begin_pitch + col] : 0;
      for (int64_t i = 0; i < t.count; ++i)
        for (const auto& [a_piece, b_piece] : kOrder) {
          const float* a = t.a + row / 16 * t.a_panel + i * kPieceWords + a_piece * kTileWords + row % 16 * 16;
          const float* b = t.b + col / 16 * t.b_panel + i * kPieceWords + b_piece * kTileWords + col % 16;
          sum += sum_of_words(a, b);
        }
      t.sums[row * t.pitch + col] = sum;
    }
}

void multiply_twins_with_loops(const TwinTiles& t) {
  constexpr int kOrder[][2] = {{1, 0}, {0, 1}, {0, 2}};
  for (int64_t row = 0; row < 16 * t.tiles; ++row)
    for (int64_t col = 0; col < (t.b_panel ? 32 : 16); ++col) {
      float sum = t.begin[0] ? t.begin[row / 16][row % 16 * t.begin_pitch + col] : 0;
      for (int64_t tap = 0; tap < t.tap_count; ++tap)
        for (int64_t g = 0; g < t.groups; ++g)
          for (const auto& [a_words, b_words] : kOrder)
            sum += sum_of_words(
                t.a[row / 16] + row % 16 * t.a_row + t.taps[tap].a + g * kTwinWords + a_words * 16,
                t.b + col / 16 * t.b_panel + t.taps[tap].b + g * kTwinPanelWords + b_words * kTileWords + col % 16);
      t.sums[row / 16][row % 16 * t.pitch + col] = sum;
    }
}

#if SITU_AMX
// --- AMX ------------------------------------------------------------------------------------------------------------
constexpr long kLine = 64;  // bytes of a tile's row

#define SITU_LOAD_A(piece)                       \
  _tile_loadd(4, a + (piece)*kTileWords, kLine); \
  if constexpr (A == 2) _tile_loadd(5, a2 + (piece)*kTileWords, kLine);
#define SITU_LOAD_B(piece)                       \
  _tile_loadd(6, b + (piece)*kTileWords, kLine); \
  if constexpr (B == 2) _tile_loadd(7, b2 + (piece)*kTileWords, kLine);
#define SITU_MULTIPLY                                                                          \
  if constexpr (AHEAD)                                                                         \
    for (int64_t line = 0; line < lines; ++line, ahead += 16) __builtin_prefetch(ahead, 0, 2); \
  _tile_dpbf16ps(0, 4, 6);                                                                     \
  if constexpr (B == 2) _tile_dpbf16ps(1, 4, 7);                                               \
  if constexpr (A == 2) _tile_dpbf16ps(2, 5, 6);                                               \
  if constexpr (A == 2 && B == 2) _tile_dpbf16ps(3, 5, 7);

template <int A, int B, bool AHEAD>
__attribute__((target("amx-tile,amx-bf16"))) void multiply_panels(const PieceTiles& t) {
  const float *a = t.a, *a2 = t.a + t.a_panel, *b = t.b, *b2 = t.b + t.b_panel;
  if (t.begin) {
    const long step = t.begin_pitch * static_cast<long>(sizeof(float));
    const float* const below = t.begin + 16 * t.begin_pitch;
    _tile_loadd(0, t.begin, step);
    if constexpr (B == 2) _tile_loadd(1, t.begin + 16, step);
    if constexpr (A == 2) _tile_loadd(2, below, step);
    if constexpr (A == 2 && B == 2) _tile_loadd(3, below + 16, step);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  [[maybe_unused]] const float* ahead = t.ahead;
  [[maybe_unused]] const int64_t lines = t.ahead_lines;
  for (int64_t i = 0; i < t.count; ++i) {
    SITU_LOAD_A(0)
    SITU_LOAD_B(2)
    SITU_MULTIPLY
    SITU_LOAD_B(1)
    SITU_MULTIPLY
    SITU_LOAD_A(1)
    SITU_MULTIPLY
    SITU_LOAD_B(0)
    SITU_MULTIPLY
    SITU_LOAD_A(2)
    SITU_MULTIPLY
    SITU_LOAD_A(0)
    SITU_MULTIPLY
    a += kPieceWords;
    a2 += kPieceWords;
    b += kPieceWords;
    b2 += kPieceWords;
  }
  const long pitch = t.pitch * static_cast<long>(sizeof(float));
  float* const below = t.sums + 16 * t.pitch;
  _tile_stored(0, t.sums, pitch);
  if constexpr (B == 2) _tile_stored(1, t.sums + 16, pitch);
  if constexpr (A == 2) _tile_stored(2, below, pitch);
  if constexpr (A == 2 && B == 2) _tile_stored(3, below + 16, pitch);
}
#undef SITU_LOAD_A
#undef SITU_LOAD_B
#undef SITU_MULTIPLY

template <bool AHEAD>
void multiply_some(const PieceTiles& t) {
  if (t.a_panel)
    t.b_panel ? multiply_panels<2, 2, AHEAD>(t) : multiply_panels<2, 1, AHEAD>(t);
  else
    t.b_panel ? multiply_panels<1, 2, AHEAD>(t) : multiply_panels<1, 1, AHEAD>(t);
}
void multiply_with_units(const PieceTiles& t) { t.ahead_lines ? multiply_some<true>(t) : multiply_some<false>(t); }

// One panel of b, A tiles of a: sums 0 to 2, a 3 to 5, b 6 and 7.
#define SITU_LOAD_A(words)                                 \
  _tile_loadd(3, a + (words), step);                       \
  if constexpr (A > 1) _tile_loadd(4, a2 + (words), step); \
  if constexpr (A > 2) _tile_loadd(5, a3 + (words), step);
#define SITU_MULTIPLY(b_tile)                        \
  _tile_dpbf16ps(0, 3, b_tile);                      \
  if constexpr (A > 1) _tile_dpbf16ps(1, 4, b_tile); \
  if constexpr (A > 2) _tile_dpbf16ps(2, 5, b_tile);
template <int A>
__attribute__((target("amx-tile,amx-bf16"))) void multiply_twins_by_one(const TwinTiles& t) {
  if (t.begin[0]) {
    const long begin_step = t.begin_pitch * static_cast<long>(sizeof(float));
    _tile_loadd(0, t.begin[0], begin_step);
    if constexpr (A > 1) _tile_loadd(1, t.begin[1], begin_step);
    if constexpr (A > 2) _tile_loadd(2, t.begin[2], begin_step);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
  }
  const long step = t.a_row * static_cast<long>(sizeof(float));
  for (int64_t tap = 0; tap < t.tap_count; ++tap) {
    const int64_t at = t.taps[tap].a;
    const float *a = t.a[0] + at, *b = t.b + t.taps[tap].b;
    [[maybe_unused]] const float *a2 = A > 1 ? t.a[1] + at : a, *a3 = A > 2 ? t.a[2] + at : a;
    for (int64_t g = 0; g < t.groups; ++g) {
      _tile_loadd(6, b, kLine);
      SITU_LOAD_A(16)
      SITU_MULTIPLY(6)
      _tile_loadd(7, b + kTileWords, kLine);
      SITU_LOAD_A(0)
      SITU_MULTIPLY(7)
      _tile_loadd(6, b + 2 * kTileWords, kLine);
      SITU_MULTIPLY(6)
      a += kTwinWords;
      a2 += kTwinWords;
      a3 += kTwinWords;
      b += kTwinPanelWords;
    }
  }
  const long pitch = t.pitch * static_cast<long>(sizeof(float));
  _tile_stored(0, t.sums[0], pitch);
  if constexpr (A > 1) _tile_stored(1, t.sums[1], pitch);
  if constexpr (A > 2) _tile_stored(2, t.sums[2], pitch);
}
#undef SITU_LOAD_A
#undef SITU_MULTIPLY

// Two panels of b: sums 0 to 3, a 4 and 5, b 6 and 7.
#define SITU_LOAD_A(words)           \
  _tile_loadd(4, a + (words), step); \
  if constexpr (A > 1) _tile_loadd(5, a2 + (words), step);
#define SITU_LOAD_B(tile)                       \
  _tile_loadd(6, b + (tile)*kTileWords, kLine); \
  _tile_loadd(7, b2 + (tile)*kTileWords, kLine);
#define SITU_MULTIPLY                           \
  _tile_dpbf16ps(0, 4, 6);                      \
  _tile_dpbf16ps(1, 4, 7);                      \
  if constexpr (A > 1) _tile_dpbf16ps(2, 5, 6); \
  if constexpr (A > 1) _tile_dpbf16ps(3, 5, 7);
template <int A>
__attribute__((target("amx-tile,amx-bf16"))) void multiply_twins_by_two(const TwinTiles& t) {
  if (t.begin[0]) {
    const long begin_step = t.begin_pitch * static_cast<long>(sizeof(float));
    _tile_loadd(0, t.begin[0], begin_step);
    _tile_loadd(1, t.begin[0] + 16, begin_step);
    if constexpr (A > 1) _tile_loadd(2, t.begin[1], begin_step);
    if constexpr (A > 1) _tile_loadd(3, t.begin[1] + 16, begin_step);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  const long step = t.a_row * static_cast<long>(sizeof(float));
  for (int64_t tap = 0; tap < t.tap_count; ++tap) {
    const float* a = t.a[0] + t.taps[tap].a;
    [[maybe_unused]] const float* a2 = A > 1 ? t.a[1] + t.taps[tap].a : a;
    const float *b = t.b + t.taps[tap].b, *b2 = b + t.b_panel;
    for (int64_t g = 0; g < t.groups; ++g) {
      SITU_LOAD_A(16)
      SITU_LOAD_B(0)
      SITU_MULTIPLY
      SITU_LOAD_A(0)
      SITU_LOAD_B(1)
      SITU_MULTIPLY
      SITU_LOAD_B(2)
      SITU_MULTIPLY
      a += kTwinWords;
      a2 += kTwinWords;
      b += kTwinPanelWords;
      b2 += kTwinPanelWords;
    }
  }
  const long pitch = t.pitch * static_cast<long>(sizeof(float));
  _tile_stored(0, t.sums[0], pitch);
  _tile_stored(1, t.sums[0] + 16, pitch);
  if constexpr (A > 1) _tile_stored(2, t.sums[1], pitch);
  if constexpr (A > 1) _tile_stored(3, t.sums[1] + 16, pitch);
}
#undef SITU_LOAD_A
#undef SITU_LOAD_B
#undef SITU_MULTIPLY

void multiply_twins_with_units(const TwinTiles& t) {
  if (t.b_panel) return t.tiles == 1 ? multiply_twins_by_two<1>(t) : multiply_twins_by_two<2>(t);
  if (t.tiles == 1) return multiply_twins_by_one<1>(t);
  t.tiles == 2 ? multiply_twins_by_one<2>(t) : multiply_twins_by_one<3>(t);
}

// As LDTILECFG reads it: eight tiles of 16 rows, a line each.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {kLine, kLine, kLine, kLine, kLine, kLine, kLine, kLine};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

__attribute__((target("amx-tile"))) void take_units() {
  static const TileConfig config;
  _tile_loadconfig(&config);
}
__attribute__((target("amx-tile"))) void release_units() { _tile_release(); }

// The state of tiles is large, so Linux gives it only to processes that ask.
bool ask_for_units() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kBf16) == 0 || (d & kTile) == 0) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#else
void take_units() {}
void release_units() {}
bool ask_for_units() { return false; }
void multiply_with_units(const PieceTiles&) {}
void multiply_twins_with_units(const TwinTiles&) {}
#endif

}  // namespace

bool has_piece_units() {
  static const bool has = ask_for_units();
  return has;
}
MultiplyPieces multiply_pieces_function() { return has_piece_units() ? multiply_with_units : multiply_with_loops; }
MultiplyTwins multiply_twins_function() {
  return has_piece_units() ? multiply_twins_with_units : multiply_twins_with_loops;
}

namespace {
thread_local int users = 0;
}
PieceUnits::PieceUnits() {
  if (has_piece_units() && users++ == 0) take_units();
}
PieceUnits::~PieceUnits() {
  if (has_piece_units() && --users == 0) release_units();
}

}  // namespace situ::cpu
