#include "model/model.h"

#include <charconv>

#include "base/error.h"
#include "base/names.h"
#include "model/model_file.h"

namespace situ::model {
namespace {

double number_in(std::string_view text, std::string_view spec, const char* what) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value > 0))
    fail("`{}` in `{}` is no {}: write NAME@RESOLUTION:WIDTH such as mobilenetv2@96:0.5", text, spec, what);
  return value;
}

// NAME[@RESOLUTION][:WIDTH]
std::string_view parse_spec(std::string_view spec, Size& size) {
  std::string_view name = spec;
  if (const size_t at = name.find(':'); at != std::string_view::npos) {
    size.width = number_in(name.substr(at + 1), spec, "width");
    if (size.width > 16) fail("`{}`: a width multiplies the channels, from 0.1 to 16", spec);
    name = name.substr(0, at);
  }
  if (const size_t at = name.find('@'); at != std::string_view::npos) {
    const double side = number_in(name.substr(at + 1), spec, "resolution");
    if (side < 8 || side > 4096) fail("`{}`: a resolution lies between 8 and 4096", spec);
    size.resolution = static_cast<int64_t>(side);
    name = name.substr(0, at);
  }
  return name;
}

Model make(const ZooEntry& entry, std::string_view spec, const Size& size) {
  if (size.resolution && !entry.takes_resolution) fail("model {} has no resolution to choose: leave out @", entry.name);
  if (size.width != 1 && !entry.takes_width) fail("model {} has no width to choose: leave out :", entry.name);
  Model model = entry.make(size);
  model.name = spec;
  return model;
}

}  // namespace

const std::vector<ZooEntry>& zoo_entries() {
  static const std::vector<ZooEntry> all = [] {
    std::vector<ZooEntry> list;
    for (ZooList family : all_zoo_families()) list.insert(list.end(), family.begin(), family.end());
    return list;
  }();
  return all;
}

Model find_model(std::string_view spec, const Shape& input, int classes) {
  if (spec.ends_with(".json")) return load_model(std::string(spec));
  if (spec.starts_with("mlp:")) return mlp_model(spec);
  Size size;
  size.input = input;
  size.classes = classes;
  const std::string_view name = parse_spec(spec, size);
  std::vector<std::string_view> names;
  for (const ZooEntry& entry : zoo_entries()) {
    if (entry.name == name) return make(entry, spec, size);
    names.push_back(entry.name);
  }
  fail("there is no model `{}`; did you mean `{}`? `situ model` lists them; mlp:784-256-10 and files.json work too",
       spec, nearest_name(name, names));
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const ZooEntry& entry : zoo_entries()) names.emplace_back(entry.name);
  names.push_back("mlp:784-256-128-16");
  return names;
}

std::string spec_help() { return "a model by name (`situ model` lists them), mlp:WIDTH-..-WIDTH, or a file.json"; }

}  // namespace situ::model
