// reverse.h -- reverse mode: appends to a graph the nodes that compute d loss / d v for each wanted value v.
//
// A walk from the loss backwards; only nodes on a path from a wanted value to the loss are visited, so what is frozen
// costs nothing. An op on such a path without a gradient rule is an error, never a silent zero.
#pragma once
#include "ir/graph.h"

namespace situ::grad {

// One gradient per wanted value, in order; zeros (a constant) where the loss does not depend on it.
ir::Values gradients(ir::Graph& graph, ir::Value loss, const ir::Values& wanted);

}  // namespace situ::grad
