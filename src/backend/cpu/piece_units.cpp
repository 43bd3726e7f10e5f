// piece_units.cpp -- the products of pieces.h on AMX: eight registers that are matrices of 16 x 16 words, four for
// sums, two for pieces of a and two for pieces of b.
#include <cstdint>
#include <cstring>

#include "backend/cpu/pieces.h"

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

void multiply_with_loops(const PieceTiles& t) {
  constexpr int kOrder[][2] = {{0, 2}, {0, 1}, {1, 1}, {1, 0}, {2, 0}, {0, 0}};
  for (int64_t row = 0; row < (t.a_panel ? 32 : 16); ++row)
    for (int64_t col = 0; col < (t.b_panel ? 32 : 16); ++col) {
      float sum = t.begin ? t.begin[row * t.begin_pitch + col] : 0;
      for (int64_t i = 0; i < t.count; ++i)
        for (const auto& [a_piece, b_piece] : kOrder) {
          const float* a = t.a + row / 16 * t.a_panel + i * kPieceWords + a_piece * kTileWords + row % 16 * 16;
          const float* b = t.b + col / 16 * t.b_panel + i * kPieceWords + b_piece * kTileWords + col % 16;
          float lower = 0, upper = 0;
          for (int64_t k = 0; k < 16; ++k) {
            lower += half_of(a, k, false) * half_of(b, k * 16, false);
            upper += half_of(a, k, true) * half_of(b, k * 16, true);
          }
          sum += lower + upper;
        }
      t.sums[row * t.pitch + col] = sum;
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
#define SITU_MULTIPLY                            \
  _tile_dpbf16ps(0, 4, 6);                       \
  if constexpr (B == 2) _tile_dpbf16ps(1, 4, 7); \
  if constexpr (A == 2) _tile_dpbf16ps(2, 5, 6); \
  if constexpr (A == 2 && B == 2) _tile_dpbf16ps(3, 5, 7);

template <int A, int B>
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

void multiply_with_units(const PieceTiles& t) {
  if (t.a_panel)
    t.b_panel ? multiply_panels<2, 2>(t) : multiply_panels<2, 1>(t);
  else
    t.b_panel ? multiply_panels<1, 2>(t) : multiply_panels<1, 1>(t);
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
#endif

}  // namespace

bool has_piece_units() {
  static const bool has = ask_for_units();
  return has;
}
MultiplyPieces multiply_pieces_function() { return has_piece_units() ? multiply_with_units : multiply_with_loops; }

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
