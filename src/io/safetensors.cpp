// safetensors.cpp -- dtypes, lookup and conversion to float.
#include "io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"

namespace situ::io {
namespace {

static_assert(std::endian::native == std::endian::little, "tensor data is copied as it lies in the file");

// Ascending alignment: the reference implementation's enumeration, by which it sorts descending.
constexpr Dtype kDtypes[] = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"F8_E8M0", 1},
    {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},     {"U32", 4},
    {"F32", 4},  {"C64", 8}, {"F64", 8}, {"I64", 8},     {"U64", 8},
};

float from_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

float from_f16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16, exponent = (bits >> 10) & 31, fraction = bits & 0x3FF;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float tiny = static_cast<float>(fraction) * 0x1p-24f;
  return sign != 0 ? -tiny : tiny;
}

template <typename Stored, typename Convert>
std::vector<float> convert(const Tensor& tensor, Convert to_float) {
  std::vector<float> values(tensor.data.size() / sizeof(Stored));
  for (size_t i = 0; i < values.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, tensor.data.data() + i * sizeof(Stored), sizeof(Stored));
    values[i] = to_float(stored);
  }
  return values;
}

}  // namespace

std::span<const Dtype> dtypes() { return kDtypes; }

const Dtype* find_dtype(std::string_view name) {
  const auto at = std::ranges::find(kDtypes, name, &Dtype::name);
  return at == std::end(kDtypes) ? nullptr : at;
}

const Tensor* TensorFile::find(std::string_view name) const {
  const auto at = std::ranges::lower_bound(tensors, name, {}, &Tensor::name);
  return at != tensors.end() && at->name == name ? &*at : nullptr;
}

Tensor f32_tensor(std::string name, std::vector<int64_t> shape, std::span<const float> values) {
  return {std::move(name), "F32", std::move(shape), std::as_bytes(values)};
}

std::vector<float> to_floats(const Tensor& tensor) {
  if (tensor.dtype == "F32") return convert<float>(tensor, [](float v) { return v; });
  if (tensor.dtype == "F64") return convert<double>(tensor, [](double v) { return static_cast<float>(v); });
  if (tensor.dtype == "F16") return convert<uint16_t>(tensor, from_f16);
  if (tensor.dtype == "BF16") return convert<uint16_t>(tensor, from_bf16);
  fail("tensor '{}' has dtype {}: weights must be F32, F64, F16 or BF16", tensor.name, tensor.dtype);
}

}  // namespace situ::io
