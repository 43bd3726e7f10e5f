// hash.h -- stable 64-bit hashes for cache keys and stream names (xxHash64; the same on every machine).
#pragma once
#include <cstdint>
#include <string_view>

namespace situ {
uint64_t hash_of(std::string_view text, uint64_t seed = 0);
}
