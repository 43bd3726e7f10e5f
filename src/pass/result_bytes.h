// result_bytes.h -- what a node's results take, for passes that decide how long they may live.
#pragma once
#include "ir/graph.h"

namespace situ::pass {

inline int64_t result_bytes(const ir::Graph& graph, const ir::Node& node) {
  int64_t bytes = 0;
  for (ir::Value v : node.outputs) bytes += graph.type(v).count() * bytes_of(graph.type(v).dtype);
  return bytes;
}

}  // namespace situ::pass
