// text.h -- a graph as text and back. What print() writes, parse() reads to an equal graph: stages, golden files and
// pass tests all speak it.
#pragma once
#include <string>
#include <string_view>

#include "ir/graph.h"

namespace situ::ir {

std::string print(const Graph& graph);
std::string print(const Graph& graph, const Node& node);  // one line, no newline
Graph parse(std::string_view text);                       // errors name the line

// Used by op examples too: "f32[4,10]" and "{axis=1, p=0x1p-1}".
Type parse_type(std::string_view text);
Attrs parse_attrs(std::string_view text);

}  // namespace situ::ir
