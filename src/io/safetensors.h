// safetensors.h -- strict reader and deterministic writer of safetensors files.
//
//   [u64 little endian: n] [n bytes of JSON, padded by spaces] [tensor data, contiguous, row-major, little endian]
//   JSON: {"__metadata__": {text: text}, name: {"dtype": "F32", "shape": [..], "data_offsets": [begin, end]}, ..}
//
// Files come from strangers: everything the format does not allow is refused, each with its own sentence.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace situ::io {

struct Tensor {
  std::string name;
  std::string dtype;                // "F32", "F64", "F16", "BF16", "I32", "I64", "U8", .. (dtypes())
  std::vector<int64_t> shape;       // empty for a scalar
  std::span<const std::byte> data;  // not necessarily aligned for its dtype: copy it, or call to_floats()
};

using Metadata = std::map<std::string, std::string>;

struct TensorFile {
  std::vector<Tensor> tensors;  // sorted by name
  Metadata metadata;
  std::shared_ptr<const std::string> bytes;  // what the tensors' data points into

  const Tensor* find(std::string_view name) const;  // nullptr if there is none
};

struct Dtype {
  std::string_view name;
  int64_t bytes;
};

// All dtypes of whole bytes, in the order by which the reference implementation sorts tensors.
std::span<const Dtype> dtypes();
const Dtype* find_dtype(std::string_view name);  // nullptr if unknown

TensorFile read_safetensors(const std::string& path);
// The same from memory; origin is the name used in errors.
TensorFile parse_safetensors(std::string bytes, const std::string& origin);

// Atomic, and a function of its arguments' contents alone: the reference implementation's bytes (wider dtypes first,
// then by name, so that every tensor is aligned), with the metadata sorted by key.
void write_safetensors(const std::string& path, std::vector<Tensor> tensors, const Metadata& metadata = {});

// A view of values that must outlive it.
Tensor f32_tensor(std::string name, std::vector<int64_t> shape, std::span<const float> values);
// The values of an F32, F64, F16 or BF16 tensor.
std::vector<float> to_floats(const Tensor& tensor);

}  // namespace situ::io
