#include "ir/attrs.h"

#include <algorithm>

#include "base/error.h"

namespace situ::ir {
namespace {

auto position(auto& entries, std::string_view name) {
  return std::lower_bound(entries.begin(), entries.end(), name,
                          [](const auto& entry, std::string_view key) { return entry.first < key; });
}

template <typename T>
const T& get(const Attrs& attrs, std::string_view name, const char* kind) {
  const Attr* attr = attrs.find(name);
  if (!attr) fail("attribute `{}` is missing: give it {}", name, kind);
  const T* value = std::get_if<T>(attr);
  if (!value) fail("attribute `{}` is {}: give it {}", name, to_string(*attr), kind);
  return *value;
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + '"';
}

}  // namespace

Attrs& Attrs::set(std::string_view name, Attr value) {
  auto it = position(entries_, name);
  if (it != entries_.end() && it->first == name)
    it->second = std::move(value);
  else
    entries_.emplace(it, std::string(name), std::move(value));
  return *this;
}

void Attrs::erase(std::string_view name) {
  auto it = position(entries_, name);
  if (it != entries_.end() && it->first == name) entries_.erase(it);
}

const Attr* Attrs::find(std::string_view name) const {
  auto it = position(entries_, name);
  return it != entries_.end() && it->first == name ? &it->second : nullptr;
}

int64_t Attrs::integer(std::string_view name) const { return get<int64_t>(*this, name, "an integer"); }
int64_t Attrs::integer(std::string_view name, int64_t otherwise) const { return has(name) ? integer(name) : otherwise; }
double Attrs::number(std::string_view name) const {
  const Attr* attr = find(name);
  if (attr && std::holds_alternative<int64_t>(*attr)) return static_cast<double>(std::get<int64_t>(*attr));
  return get<double>(*this, name, "a number");
}
double Attrs::number(std::string_view name, double otherwise) const { return has(name) ? number(name) : otherwise; }
const std::string& Attrs::text(std::string_view name) const { return get<std::string>(*this, name, "a text"); }
std::string Attrs::text(std::string_view name, std::string_view otherwise) const {
  return has(name) ? text(name) : std::string(otherwise);
}
const Ints& Attrs::ints(std::string_view name) const { return get<Ints>(*this, name, "a list of integers"); }
Ints Attrs::ints(std::string_view name, const Ints& otherwise) const { return has(name) ? ints(name) : otherwise; }

std::string to_string(const Attr& attr) {
  if (auto* integer = std::get_if<int64_t>(&attr)) return fmt::format("{}", *integer);
  if (auto* number = std::get_if<double>(&attr)) return fmt::format("{:a}", *number);
  if (auto* text = std::get_if<std::string>(&attr)) return quoted(*text);
  return fmt::format("[{}]", fmt::join(std::get<Ints>(attr), ","));
}

std::string to_string(const Attrs& attrs) {
  if (attrs.empty()) return "";
  std::string result;
  for (const auto& [name, value] : attrs.entries())
    result += fmt::format("{}{}={}", result.empty() ? "{" : ", ", name, to_string(value));
  return result + "}";
}

}  // namespace situ::ir
