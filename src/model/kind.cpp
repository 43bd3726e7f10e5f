#include "model/kind.h"

#include <algorithm>

#include "base/error.h"
#include "base/names.h"

namespace situ::model {
namespace {

using ir::Attr;
using ir::Ints;

// A number may be given where a list of them or a fraction is expected.
bool fits(const Attr& given, const Attr& otherwise) {
  if (given.index() == otherwise.index()) return true;
  if (std::holds_alternative<int64_t>(given)) return std::holds_alternative<double>(otherwise);
  return std::holds_alternative<Ints>(given) && std::holds_alternative<int64_t>(otherwise);
}

std::string takes(const Kind& kind) {
  std::vector<std::string> words = split_list(kind.required, ' ');
  const ir::Attrs defaults = kind.defaults ? kind.defaults() : ir::Attrs{};
  for (const auto& [name, value] : defaults.entries())
    words.push_back(std::holds_alternative<double>(value) ? fmt::format("{}={}", name, std::get<double>(value))
                                                          : name + "=" + ir::to_string(value));
  return words.empty() ? "no attributes" : fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace

const std::vector<Kind>& all_kinds() {
  static const std::vector<Kind> all = [] {
    std::vector<Kind> list;
    for (KindList family : all_kind_families()) list.insert(list.end(), family.begin(), family.end());
    return list;
  }();
  return all;
}

const Kind& find_kind(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Kind& kind : all_kinds()) {
    if (kind.name == name) return kind;
    names.push_back(kind.name);
  }
  fail("there is no layer kind `{}`; did you mean `{}`?", name, nearest_name(name, names));
}

LayerSpec with_defaults(const LayerSpec& spec) {
  const Kind& kind = find_kind(spec.kind);
  LayerSpec filled = spec;
  filled.attrs = kind.defaults ? kind.defaults() : ir::Attrs{};
  const std::vector<std::string> required = split_list(kind.required, ' ');
  for (const std::string& name : required)
    if (!spec.attrs.has(name)) fail("`{}` is missing; {} takes {}", name, spec.kind, takes(kind));
  for (const auto& [name, value] : spec.attrs.entries()) {
    const Attr* otherwise = filled.attrs.find(name);
    const bool known = otherwise || std::find(required.begin(), required.end(), name) != required.end();
    if (!known) fail("{} has no attribute `{}`; it takes {}", spec.kind, name, takes(kind));
    if (otherwise && !fits(value, *otherwise))
      fail("`{}` of {} is {}, which is not like its default {}", name, spec.kind, ir::to_string(value),
           ir::to_string(*otherwise));
    if (otherwise && std::holds_alternative<double>(*otherwise) && std::holds_alternative<int64_t>(value))
      filled.attrs.set(name, static_cast<double>(std::get<int64_t>(value)));
    else
      filled.attrs.set(name, value);
  }
  return filled;
}

Ints pair_of(const ir::Attrs& attrs, std::string_view name) {
  const Attr* value = attrs.find(name);
  SITU_ASSERT(value, "attribute {}", name);
  if (const auto* one = std::get_if<int64_t>(value)) return {*one, *one};
  const Ints& list = attrs.ints(name);
  if (list.size() != 2) fail("`{}` is one number or two, [height, width], not {}", name, ir::to_string(*value));
  return list;
}

Ints padding_of(const ir::Attrs& attrs) {
  const Attr* value = attrs.find("pad");
  SITU_ASSERT(value, "attribute pad");
  if (const auto* one = std::get_if<int64_t>(value)) return {*one, *one, *one, *one};
  const Ints& list = attrs.ints("pad");
  if (list.size() == 2) return {list[0], list[1], list[0], list[1]};
  if (list.size() != 4)
    fail("`pad` is one number, [y, x] or [top, left, bottom, right], not {}", ir::to_string(*value));
  return list;
}

}  // namespace situ::model
