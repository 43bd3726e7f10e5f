// attention.h -- the sizes of an attention op, and which keys a query sees: always the first few.
#pragma once
#include <algorithm>
#include <cstdint>

#include "base/types.h"
#include "ir/attrs.h"

namespace situ::ops {

inline constexpr int64_t kMaxHeadWidth = 128;

struct Attention {
  int64_t batch = 0, queries = 0, keys = 0;  // N, T, S
  int64_t width = 0, heads = 1, kv_heads = 1;
  bool causal = false;
  double scale = 1;

  int64_t group() const { return heads / kv_heads; }  // query heads that share a key head
  // Keys 0 .. visible - 1 are seen by this query; `length`: keys of this sequence that exist.
  int64_t visible(int64_t query, int64_t length) const {
    const int64_t limit = causal ? query + keys - queries + 1 : keys;
    return std::clamp<int64_t>(std::min(limit, length), 0, keys);
  }
};

// q: [N,T,heads*D], k: [N,S,kv_heads*D]. Checks everything the shapes and attributes must satisfy.
Attention attention_of(const ir::Attrs& attrs, const Shape& q, const Shape& k);

}  // namespace situ::ops
