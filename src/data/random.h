// random.h -- counter-based random numbers: a value is a pure function of its key and index.
//
//   value(key, i) = mix(key + (i + 1) * 0x9E3779B97F4A7C15)            SplitMix64 (Steele, Lea, Flood 2014)
//   key(seed, stream) = mix(mix(seed) ^ mix(~stream))
//
// The standard library's distributions and std::shuffle differ between platforms; these do not.
#pragma once
#include <cstdint>

namespace situ::data {

inline constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;

constexpr uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

constexpr uint64_t random_key(uint64_t seed, uint64_t stream) { return mix(mix(seed) ^ mix(~stream)); }

constexpr uint64_t random_bits(uint64_t key, uint64_t index) { return mix(key + (index + 1) * kGolden); }

// Below bound < 2^32: the upper 32 bits scaled down (bias below bound / 2^32).
constexpr uint64_t random_below(uint64_t key, uint64_t index, uint64_t bound) {
  return ((random_bits(key, index) >> 32) * bound) >> 32;
}

}  // namespace situ::data
