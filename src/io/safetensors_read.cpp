// safetensors_read.cpp -- the strict reader.
//
// The header goes through the JSON parser's event interface: the events are checked against the three levels the format
// has, so deep nesting stops at its first bracket and duplicate keys are seen, which a parsed tree would hide.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "io/safetensors.h"
#include "io/text.h"

namespace situ::io {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's limit

struct Entry {
  std::string name;
  std::optional<std::string> dtype;
  std::optional<std::vector<uint64_t>> shape, offsets;
};

class HeaderReader : public nlohmann::json_sax<json> {
 public:
  explicit HeaderReader(const std::string& origin) : origin_(origin) {}
  std::vector<Entry> entries;
  Metadata metadata;

  bool start_object(std::size_t) override {
    if (level_ == Level::file) return enter(Level::names);
    if (level_ != Level::names) too_deep();
    if (key_ == "__metadata__") return enter(Level::metadata);
    entries.push_back({.name = key_, .dtype = {}, .shape = {}, .offsets = {}});
    return enter(Level::tensor);
  }

  bool key(string_t& key) override {
    key_ = key;
    if (level_ == Level::names && !names_.insert(key).second)
      fail("'{}' names '{}' twice: the file is not safe to use, get it from another source", origin_, shown(key));
    if (level_ == Level::metadata && metadata.contains(key))
      fail("'{}' has the metadata key '{}' twice: get the file from another source", origin_, shown(key));
    if (level_ == Level::tensor) check_tensor_key(key);
    return true;
  }

  bool end_object() override {
    if (level_ == Level::tensor) check_complete(entries.back());
    return enter(level_ == Level::names ? Level::file : Level::names);
  }

  bool start_array(std::size_t) override {
    if (level_ == Level::numbers) too_deep();
    if (level_ != Level::tensor || key_ == "dtype") unexpected("a list");
    (key_ == "shape" ? entries.back().shape : entries.back().offsets).emplace();
    return enter(Level::numbers);
  }
  bool end_array() override { return enter(Level::tensor); }

  bool string(string_t& text) override {
    if (level_ == Level::metadata) {
      metadata.emplace(key_, text);
    } else if (level_ == Level::tensor && key_ == "dtype") {
      entries.back().dtype = text;
    } else {
      unexpected("a string");
    }
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (level_ != Level::numbers) unexpected("a number");
    (key_ == "shape" ? entries.back().shape : entries.back().offsets)->push_back(value);
    return true;
  }
  bool number_integer(number_integer_t) override { unexpected("a negative number"); }
  // Integers of more than 64 bits arrive here too.
  bool number_float(number_float_t, const string_t&) override { unexpected("a fraction or an oversized number"); }
  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a truth value"); }
  bool binary(binary_t&) override { unexpected("binary data"); }

  bool parse_error(std::size_t position, const std::string&, const json::exception&) override {
    fail("'{}' has a header that is not valid JSON at byte {}: get the file again", origin_, position);
  }

 private:
  enum class Level { file, names, metadata, tensor, numbers };

  bool enter(Level level) {
    level_ = level;
    return true;
  }

  [[noreturn]] void too_deep() const {
    fail("'{}' has a header nested deeper than the format allows: get the file from another source", origin_);
  }

  [[noreturn]] void unexpected(std::string_view what) const {
    fail("'{}' has {} in its header at '{}' where the format allows none: get the file from another source", origin_,
         what, shown(key_));
  }

  void check_tensor_key(const std::string& key) const {
    const Entry& entry = entries.back();
    if (key != "dtype" && key != "shape" && key != "data_offsets")
      fail("'{}' has the unknown key '{}' at tensor '{}': get the file from another source", origin_, shown(key),
           shown(entry.name));
    if ((key == "dtype" && entry.dtype) || (key == "shape" && entry.shape) || (key == "data_offsets" && entry.offsets))
      fail("'{}' has the key '{}' twice at tensor '{}': get the file from another source", origin_, key,
           shown(entry.name));
  }

  void check_complete(const Entry& entry) const {
    const char* missing = !entry.dtype ? "dtype" : !entry.shape ? "shape" : !entry.offsets ? "data_offsets" : nullptr;
    if (missing) fail("'{}' has no {} for tensor '{}': get the file again", origin_, missing, shown(entry.name));
    if (entry.offsets->size() != 2)
      fail("'{}' has {} data_offsets for tensor '{}' instead of 2: get the file again", origin_, entry.offsets->size(),
           shown(entry.name));
  }

  const std::string& origin_;
  Level level_ = Level::file;
  std::string key_;
  std::set<std::string> names_;
};

uint64_t little_endian_u64(std::string_view bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | static_cast<uint8_t>(bytes[static_cast<size_t>(i)]);
  return value;
}

// The JSON text, after every check that needs no parser.
std::string_view header_text(std::string_view bytes, const std::string& origin) {
  if (bytes.size() < 8) fail("'{}' is too short to be a safetensors file ({} bytes)", origin, bytes.size());
  const uint64_t length = little_endian_u64(bytes);
  if (length > kMaxHeaderBytes)
    fail("'{}' claims a header of {} bytes, more than the 100 MB allowed: it is no safetensors file", origin, length);
  if (length > bytes.size() - 8)
    fail("'{}' ends inside its header of {} bytes: it is truncated, get it again", origin, length);
  const std::string_view text = bytes.substr(8, length);
  if (text.empty() || text[0] != '{')
    fail("'{}' has a header that does not begin with '{{': it is no valid safetensors file", origin);
  // The parser takes a zero byte for the end of its input and would not look at what follows.
  if (text.find('\0') != text.npos) fail("'{}' has a zero byte in its header: get the file again", origin);
  if (!is_utf8(text)) fail("'{}' has a header that is not valid UTF-8: get the file again", origin);
  return text;
}

uint64_t bytes_of(const Entry& entry, const std::string& origin) {
  const Dtype* dtype = find_dtype(*entry.dtype);
  if (!dtype)
    fail("'{}' has the unknown dtype '{}' at tensor '{}': convert it to F32", origin, shown(*entry.dtype),
         shown(entry.name));
  int64_t bytes = dtype->bytes;
  bool overflow = false;
  for (uint64_t extent : *entry.shape) overflow |= __builtin_mul_overflow(bytes, extent, &bytes);
  // An extent may exceed the range even where a zero beside it makes the product small.
  for (uint64_t extent : *entry.shape) overflow |= extent > static_cast<uint64_t>(INT64_MAX);
  if (overflow)
    fail("'{}' has a shape at tensor '{}' whose size overflows: get the file from another source", origin,
         shown(entry.name));
  return static_cast<uint64_t>(bytes);
}

void check_entry(const Entry& entry, uint64_t available, const std::string& origin) {
  const uint64_t begin = entry.offsets->at(0), end = entry.offsets->at(1), bytes = bytes_of(entry, origin);
  if (begin > end)
    fail("'{}' has data_offsets that run backwards at tensor '{}': get the file again", origin, shown(entry.name));
  if (end - begin != bytes)
    fail("'{}' has {} bytes for tensor '{}' but its shape needs {}: get the file again", origin, end - begin,
         shown(entry.name), bytes);
  if (end > available)
    fail("'{}' ends before the data of tensor '{}' ({} bytes of {}): it is truncated, get it again", origin,
         shown(entry.name), available, end);
}

// Tensors must tile the data: overlaps share memory in secret, holes and tails hide bytes.
void check_tiling(std::vector<Entry>& entries, uint64_t available, const std::string& origin) {
  std::ranges::sort(entries, {}, &Entry::offsets);
  uint64_t at = 0;
  for (const Entry& entry : entries) {
    const uint64_t begin = entry.offsets->at(0);
    if (begin < at)
      fail("'{}' has tensor '{}' overlapping another: get the file from another source", origin, shown(entry.name));
    if (begin > at)
      fail("'{}' has a hole of {} bytes before tensor '{}': get the file from another source", origin, begin - at,
           shown(entry.name));
    at = entry.offsets->at(1);
  }
  if (at < available)
    fail("'{}' has {} bytes after its last tensor: get the file from another source", origin, available - at);
}

}  // namespace

TensorFile parse_safetensors(std::string bytes, const std::string& origin) {
  TensorFile file;
  file.bytes = std::make_shared<const std::string>(std::move(bytes));
  const std::string_view text = header_text(*file.bytes, origin);
  HeaderReader header(origin);
  json::sax_parse(text.begin(), text.end(), &header);
  const std::string_view data = std::string_view(*file.bytes).substr(8 + text.size());
  for (const Entry& entry : header.entries) check_entry(entry, data.size(), origin);
  check_tiling(header.entries, data.size(), origin);
  for (Entry& e : header.entries) {
    const std::string_view part = data.substr(e.offsets->at(0), e.offsets->at(1) - e.offsets->at(0));
    file.tensors.push_back(
        {std::move(e.name), std::move(*e.dtype), {e.shape->begin(), e.shape->end()}, std::as_bytes(std::span(part))});
  }
  std::ranges::sort(file.tensors, {}, &Tensor::name);
  file.metadata = std::move(header.metadata);
  return file;
}

TensorFile read_safetensors(const std::string& path) { return parse_safetensors(read_file(path), path); }

}  // namespace situ::io
