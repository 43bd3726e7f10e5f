// safetensors_write.cpp -- the deterministic writer.
//
// Order, spelling and padding are the reference implementation's: metadata first, then tensors by dtype (widest first)
// and name, no spaces in the JSON, and spaces behind it up to a multiple of 8 so that the data is aligned.
#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "io/safetensors.h"
#include "io/text.h"

namespace situ::io {
namespace {

std::string quoted(const std::string& text) {
  if (!is_utf8(text)) fail("the text '{}' is not valid UTF-8: rename it before saving", shown(text));
  return nlohmann::json(text).dump();
}

void check(const Tensor& tensor) {
  const Dtype* dtype = find_dtype(tensor.dtype);
  SITU_ASSERT(dtype, "tensor '{}' has the unknown dtype '{}'", tensor.name, tensor.dtype);
  SITU_ASSERT(tensor.name != "__metadata__", "a tensor cannot have this name");
  int64_t bytes = dtype->bytes;
  for (int64_t extent : tensor.shape) {
    SITU_ASSERT(extent >= 0, "tensor '{}'", tensor.name);
    SITU_ASSERT(!__builtin_mul_overflow(bytes, extent, &bytes), "tensor '{}'", tensor.name);
  }
  SITU_ASSERT(static_cast<size_t>(bytes) == tensor.data.size(), "tensor '{}' needs {} bytes and has {}", tensor.name,
              bytes, tensor.data.size());
}

void sort_like_the_reference(std::vector<Tensor>& tensors) {
  std::ranges::sort(tensors, [](const Tensor& a, const Tensor& b) {
    const Dtype *da = find_dtype(a.dtype), *db = find_dtype(b.dtype);
    return da != db ? da > db : a.name < b.name;
  });
}

std::string metadata_json(const Metadata& metadata) {
  std::string out;
  for (const auto& [key, value] : metadata)
    out += fmt::format("{}{}:{}", out.empty() ? "" : ",", quoted(key), quoted(value));
  return "\"__metadata__\":{" + out + "}";
}

std::string header_of(const std::vector<Tensor>& tensors, const Metadata& metadata) {
  std::string out = metadata.empty() ? "" : metadata_json(metadata);
  size_t offset = 0;
  for (const Tensor& t : tensors) {
    const size_t end = offset + t.data.size();
    out += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", out.empty() ? "" : ",",
                       quoted(t.name), t.dtype, fmt::join(t.shape, ","), offset, end);
    offset = end;
  }
  out = "{" + out + "}";
  out.resize((out.size() + 7) / 8 * 8, ' ');
  return out;
}

std::string little_endian_bytes(uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

void check_unique(const std::vector<Tensor>& tensors) {
  std::vector<std::string_view> names;
  for (const Tensor& t : tensors) names.push_back(t.name);
  std::ranges::sort(names);
  const auto twin = std::ranges::adjacent_find(names);
  SITU_ASSERT(twin == names.end(), "two tensors are named '{}'", *twin);
}

}  // namespace

void write_safetensors(const std::string& path, std::vector<Tensor> tensors, const Metadata& metadata) {
  for (const Tensor& t : tensors) check(t);
  check_unique(tensors);
  sort_like_the_reference(tensors);
  const std::string header = header_of(tensors, metadata), length = little_endian_bytes(header.size());
  std::vector<std::string_view> pieces = {length, header};
  for (const Tensor& t : tensors) pieces.emplace_back(reinterpret_cast<const char*>(t.data.data()), t.data.size());
  write_file_atomic(path, pieces);
}

}  // namespace situ::io
