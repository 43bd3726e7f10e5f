#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace situ {
uint64_t hash_of(std::string_view text, uint64_t seed) { return XXH64(text.data(), text.size(), seed); }
}  // namespace situ
