// philox.h -- Philox 4x32-10, a counter-based random generator: the same (key, counter) gives the same bits on every
// device and in any order, so a random mask depends on its name and step alone, never on fusion or threads.
#pragma once
#include <array>
#include <cstdint>

namespace situ {

using Philox4 = std::array<uint32_t, 4>;

inline Philox4 philox(Philox4 counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * counter[0], p1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(p0)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// The random word of element `index` of a named stream: elements share a Philox block in fours.
inline uint32_t random_word(uint64_t index, uint32_t stream, uint32_t seed, uint32_t step) {
  const uint64_t block = index / 4;
  return philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), step, 0}, seed, stream)[index % 4];
}

inline float unit_float(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }  // [0, 1), exact

}  // namespace situ
