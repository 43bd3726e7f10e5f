#include "model/model_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "model/kind.h"

namespace situ::model {
namespace {

using nlohmann::ordered_json;

int line_at(std::string_view text, size_t offset) {
  return 1 + static_cast<int>(
                 std::count(text.begin(), text.begin() + static_cast<long>(std::min(offset, text.size())), '\n'));
}

// The line on which each element of the top-level array "layers" begins. The text is valid JSON.
std::vector<int> layer_lines(std::string_view text) {
  std::vector<int> lines;
  int depth = 0;
  bool inside = false;  // the array
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      const size_t start = i + 1;
      for (++i; text[i] != '"'; ++i)
        if (text[i] == '\\') ++i;
      if (depth == 1 && text.substr(start, i - start) == "layers") inside = true;
    } else if (c == '{' || c == '[') {
      if (inside && depth == 2 && c == '{') lines.push_back(line_at(text, i));
      ++depth;
    } else if (c == '}' || c == ']') {
      if (--depth == 1) inside = false;
    }
  }
  return lines;
}

ir::Attr attribute(const ordered_json& value, const std::string& name) {
  if (value.is_boolean()) return int64_t{value.get<bool>()};
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array() && std::all_of(value.begin(), value.end(), [](const auto& v) { return v.is_number_integer(); }))
    return value.get<ir::Ints>();
  fail("`{}` must be a number, a string, true, false or a list of integers", name);
}

LayerSpec parse_layer(const ordered_json& j, int line, size_t index) {
  if (!j.is_object()) fail("a layer is an object such as {{\"kind\": \"relu\"}}");
  LayerSpec layer;
  layer.line = line;
  for (const auto& [key, value] : j.items()) {
    const bool text = key == "name" || key == "kind";
    if (text && !value.is_string()) fail("`{}` must be a string", key);
    if (key == "name")
      layer.name = value;
    else if (key == "kind")
      layer.kind = value;
    else if (key != "inputs")
      layer.attrs.set(key, attribute(value, key));
    else if (value.is_array() && std::all_of(value.begin(), value.end(), [](const auto& v) { return v.is_string(); }))
      layer.inputs = value.get<std::vector<std::string>>();
    else
      fail("`inputs` is a list of layer names");
  }
  if (layer.kind.empty()) fail("the layer has no `kind`: `situ model kinds` lists them");
  if (layer.name.empty()) layer.name = fmt::format("{}{}", layer.kind, index + 1);
  with_defaults(layer);  // names unknown kinds and attributes here, where the line is known
  return layer;
}

Type parse_input(const ordered_json& j) {
  const bool shaped =
      j.contains("input") && j["input"].is_array() && !j["input"].empty() && j["input"].size() <= 3 &&
      std::all_of(j["input"].begin(), j["input"].end(), [](const auto& v) {
        return v.is_number_integer() && v.template get<int64_t>() > 0 && v.template get<int64_t>() < (1 << 24);
      });
  if (!shaped) fail("`input` is the shape of one sample: [height, width, channels], [steps, channels] or [features]");
  const Shape shape(j["input"].get<std::vector<int64_t>>());
  if (!j.value("tokens", false)) return f32(shape);
  if (shape.rank() != 1) fail("with `tokens` the input is [length]");
  return i32(shape);
}

Model parse(const ordered_json& j, std::string_view text) {
  static const std::set<std::string> known{"name", "input", "classes", "tokens", "layers"};
  for (const auto& [key, value] : j.items())
    if (!known.count(key)) fail("`{}` is no part of a model: it has name, input, classes, tokens and layers", key);
  Model model;
  model.name = j.value("name", "model");
  model.input = parse_input(j);
  model.classes = j.value("classes", 0);
  if (model.classes < 1) fail("`classes` must be 1 or more");
  if (!j.contains("layers") || !j["layers"].is_array() || j["layers"].empty())
    fail("`layers` must be a list of layers");
  const std::vector<int> lines = layer_lines(text);
  std::set<std::string> names{"x"};
  for (size_t i = 0; i < j["layers"].size(); ++i) {
    const int line = i < lines.size() ? lines[i] : 0;
    try {
      model.layers.push_back(parse_layer(j["layers"][i], line, i));
      if (!names.insert(model.layers.back().name).second) fail("another layer is named `{}`", model.layers.back().name);
    } catch (const Error& e) {
      fail("line {}: {}", line, e.what());
    }
  }
  return model;
}

ordered_json json_of(const ir::Attr& attr) {
  return std::visit([](const auto& value) { return ordered_json(value); }, attr);
}

ordered_json json_of(const LayerSpec& layer) {
  ordered_json j{{"name", layer.name}, {"kind", layer.kind}};
  if (!layer.inputs.empty()) j["inputs"] = layer.inputs;
  const Kind& kind = find_kind(layer.kind);
  const ir::Attrs defaults = kind.defaults ? kind.defaults() : ir::Attrs{};
  for (const auto& [name, value] : layer.attrs.entries()) {
    const ir::Attr* otherwise = defaults.find(name);
    if (!otherwise || *otherwise != value) j[name] = json_of(value);
  }
  return j;
}

}  // namespace

Model parse_model(std::string_view text, const std::string& origin) {
  try {
    const ordered_json j = ordered_json::parse(text);
    if (!j.is_object()) fail("a model is an object with input, classes and layers");
    Model model = parse(j, text);
    if (!j.contains("name")) model.name = origin;
    return model;
  } catch (const ordered_json::parse_error& e) {
    fail("{}: line {}: this is no JSON ({})", origin, line_at(text, e.byte), e.what());
  } catch (const ordered_json::exception& e) {
    fail("{}: {}", origin, e.what());
  } catch (const Error& e) {
    fail("{}: {}", origin, e.what());
  }
}

Model load_model(const std::string& path) {
  Model model = parse_model(read_file(path, 16 << 20), path);
  model.name = path;  // what find_model takes, and what weights remember
  return model;
}

std::string print_model(const Model& model) {
  std::string text = fmt::format("{{\n  \"name\": {},\n  \"input\": {},\n", ordered_json(model.name).dump(),
                                 ordered_json(model.input.shape.dims()).dump());
  if (model.input.dtype == DType::i32) text += "  \"tokens\": true,\n";
  text += fmt::format("  \"classes\": {},\n  \"layers\": [\n", model.classes);
  for (size_t i = 0; i < model.layers.size(); ++i)
    text += fmt::format("    {}{}\n", json_of(model.layers[i]).dump(), i + 1 < model.layers.size() ? "," : "");
  return text + "  ]\n}\n";
}

}  // namespace situ::model
