// attrs.h -- the static attributes of a node: a small sorted map from name to int, float, string or list of ints.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace situ::ir {

using Ints = std::vector<int64_t>;
using Attr = std::variant<int64_t, double, std::string, Ints>;

class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<std::string, Attr>> list) {
    for (const auto& [name, value] : list) set(name, value);
  }

  Attrs& set(std::string_view name, Attr value);
  void erase(std::string_view name);
  const Attr* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }
  bool empty() const { return entries_.empty(); }
  const std::vector<std::pair<std::string, Attr>>& entries() const { return entries_; }

  // Each fails with the attribute's name when it is missing or of another kind, unless a default is given.
  int64_t integer(std::string_view name) const;
  int64_t integer(std::string_view name, int64_t otherwise) const;
  double number(std::string_view name) const;
  double number(std::string_view name, double otherwise) const;
  const std::string& text(std::string_view name) const;
  std::string text(std::string_view name, std::string_view otherwise) const;
  const Ints& ints(std::string_view name) const;
  Ints ints(std::string_view name, const Ints& otherwise) const;
  bool flag(std::string_view name) const { return integer(name, 0) != 0; }

  bool operator==(const Attrs& other) const = default;

 private:
  std::vector<std::pair<std::string, Attr>> entries_;  // sorted by name: printing and comparing need one order
};

std::string to_string(const Attr& attr);    // floats in hex: what is printed parses back to the same bits
std::string to_string(const Attrs& attrs);  // {pad=[2,2,2,2], ta=1}; empty: ""

}  // namespace situ::ir
