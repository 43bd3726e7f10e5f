// verify.h -- the rules every graph keeps, checked after each pass: definitions before uses, declared states, at most
// one write per state and after all its reads, matching types. Fails with the node and the rule it breaks.
#pragma once
#include "ir/graph.h"

namespace situ::ir {
void verify(const Graph& graph);
}
