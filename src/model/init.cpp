#include "model/init.h"

#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/hash.h"
#include "base/philox.h"

namespace situ::model {
namespace {

// For each element in file order, its index in our order.
std::vector<int64_t> source_indices(const ir::State& state) {
  const ir::Ints& factors = state.attrs.ints("factors");
  const ir::Ints& perm = state.attrs.ints("perm");
  std::vector<int64_t> strides(factors.size(), 1);
  for (size_t i = factors.size() - 1; i-- > 0;) strides[i] = strides[i + 1] * factors[i + 1];
  std::vector<int64_t> indices, position(perm.size(), 0);
  indices.reserve(static_cast<size_t>(state.type.count()));
  for (int64_t n = 0; n < state.type.count(); ++n) {
    int64_t index = 0;
    for (size_t i = 0; i < perm.size(); ++i) index += position[i] * strides[static_cast<size_t>(perm[i])];
    indices.push_back(index);
    for (size_t i = perm.size(); i-- > 0;) {  // count up, last axis fastest
      if (++position[i] < factors[static_cast<size_t>(perm[i])]) break;
      position[i] = 0;
    }
  }
  return indices;
}

// Box and Muller: 1 - u lies in (0, 1].
double normal_from(double u, double v) { return std::sqrt(-2 * std::log(1 - u)) * std::cos(2 * std::numbers::pi * v); }

}  // namespace

std::vector<float> initial_values(const ir::State& state, uint64_t seed) {
  return initial_values(state, seed, 0, state.type.count());
}

std::vector<float> initial_values(const ir::State& state, uint64_t seed, int64_t first, int64_t elements) {
  const auto count = static_cast<size_t>(elements);
  const std::string init = state.attrs.text("init", "zeros");
  if (init == "zeros") return std::vector<float>(count, 0.0f);
  if (init == "ones") return std::vector<float>(count, 1.0f);
  if (init == "constant") return std::vector<float>(count, static_cast<float>(state.attrs.number("value")));
  SITU_ASSERT(init == "uniform" || init == "normal", "unknown initialiser {}", init);
  const bool normal = init == "normal";
  const double size = state.attrs.number(normal ? "std" : "bound");
  const auto stream = static_cast<uint32_t>(hash_of(state.attrs.text("stream", state.name)));
  auto unit = [&](uint64_t i) {
    return unit_float(random_word(i, stream, static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)));
  };
  std::vector<float> values(count);
  for (size_t n = 0; n < count; ++n) {
    const uint64_t i = static_cast<uint64_t>(first) + n;
    const double drawn = normal ? normal_from(unit(2 * i), unit(2 * i + 1)) : 2.0 * unit(i) - 1.0;
    values[n] = static_cast<float>(drawn * size);
  }
  return values;
}

std::vector<int64_t> file_shape(const ir::State& state) { return state.attrs.ints("file", state.type.shape.dims()); }

std::vector<double> to_file_order(const ir::State& state, std::span<const double> values) {
  std::vector<double> result(values.begin(), values.end());
  if (!state.attrs.has("perm")) return result;
  const std::vector<int64_t> from = source_indices(state);
  for (size_t i = 0; i < from.size(); ++i) result[i] = values[static_cast<size_t>(from[i])];
  return result;
}

std::vector<float> from_file_order(const ir::State& state, std::span<const float> values) {
  std::vector<float> result(values.begin(), values.end());
  if (!state.attrs.has("perm")) return result;
  const std::vector<int64_t> to = source_indices(state);
  for (size_t i = 0; i < to.size(); ++i) result[static_cast<size_t>(to[i])] = values[i];
  return result;
}

}  // namespace situ::model
