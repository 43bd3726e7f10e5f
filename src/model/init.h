// init.h -- how states start, and the order in which files hold them.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "ir/graph.h"

namespace situ::model {

// The starting values of a state, by its attributes; random ones depend on (seed, state name, element) alone,
// or with the attribute `stream` on that name instead: an average starts equal to its parameter.
std::vector<float> initial_values(const ir::State& state, uint64_t seed);
std::vector<float> initial_values(const ir::State& state, uint64_t seed, int64_t first,
                                  int64_t elements);  // some of them

// PyTorch's shape and order, and back. States without `perm` are held as they are.
std::vector<int64_t> file_shape(const ir::State& state);
std::vector<double> to_file_order(const ir::State& state, std::span<const double> values);
std::vector<float> from_file_order(const ir::State& state, std::span<const float> values);

inline bool has_role(const ir::State& state, std::string_view role) { return state.attrs.text("role", "") == role; }
inline bool is_trained(const ir::State& state) { return has_role(state, "parameter") && !state.attrs.flag("frozen"); }

}  // namespace situ::model
