// dead_code.h -- keeps what a write or an output depends on, drops the rest.
#pragma once
#include "ir/graph.h"

namespace situ::ir {
Graph dead_code(const Graph& graph);
}
