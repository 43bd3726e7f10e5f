#include "ops/attention.h"

#include <cmath>

#include "base/error.h"

namespace situ::ops {

Attention attention_of(const ir::Attrs& attrs, const Shape& q, const Shape& k) {
  if (q.rank() != 3 || k.rank() != 3 || q[0] != k[0])
    fail("q must be [N,T,heads*D] and k [N,S,kv_heads*D], not {} and {}", to_string(q), to_string(k));
  Attention a;
  a.batch = q[0];
  a.queries = q[1];
  a.keys = k[1];
  a.heads = attrs.integer("heads");
  a.kv_heads = attrs.integer("kv_heads", a.heads);
  a.causal = attrs.flag("causal");
  if (a.heads < 1 || a.kv_heads < 1 || a.heads % a.kv_heads)
    fail("heads = {} must be a multiple of kv_heads = {}", a.heads, a.kv_heads);
  a.width = q[2] / a.heads;
  if (a.width * a.heads != q[2] || a.width * a.kv_heads != k[2])
    fail("the last axes {} and {} do not hold {} and {} heads of one width", q[2], k[2], a.heads, a.kv_heads);
  if (a.width > kMaxHeadWidth) fail("a head has {} channels, the most is {}", a.width, kMaxHeadWidth);
  a.scale = attrs.number("scale", 1 / std::sqrt(static_cast<double>(a.width)));
  return a;
}

}  // namespace situ::ops
