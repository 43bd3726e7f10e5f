#include "data/select.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/names.h"

namespace situ::data {
namespace {

int class_number(std::string_view text, std::string_view all, int classes) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value >= classes)
    fail("`{}` in `{}` is no class: write numbers from 0 to {}, such as 0-4 or 1,3,5", text, all, classes - 1);
  return value;
}

template <typename T>
void append_sample(const std::vector<T>& from, int64_t sample, int64_t size, std::vector<T>& to) {
  if (from.empty()) return;
  to.insert(to.end(), from.begin() + sample * size, from.begin() + (sample + 1) * size);
}

}  // namespace

std::vector<int> parse_classes(std::string_view text, int classes) {
  std::vector<int> list;
  for (const std::string& part : split_list(text, ',')) {
    const size_t dash = part.find('-');
    const int first = class_number(part.substr(0, dash), text, classes);
    const int last = dash == std::string::npos ? first : class_number(part.substr(dash + 1), text, classes);
    for (int c = first; c <= last; ++c) list.push_back(c);
  }
  return list;
}

Dataset select(const Dataset& data, const std::vector<int>& classes, int64_t per_class) {
  if (data.labels.empty()) fail("{} has no classes to choose from", data.name);
  Dataset part = data;
  part.count = 0;
  part.images.clear();
  part.series.clear();
  part.labels.clear();
  std::vector<int64_t> taken(static_cast<size_t>(data.classes));
  for (int64_t i = 0; i < data.count; ++i) {
    const int32_t label = data.labels[static_cast<size_t>(i)];
    if (!classes.empty() && std::find(classes.begin(), classes.end(), label) == classes.end()) continue;
    if (per_class > 0 && taken[static_cast<size_t>(label)] == per_class) continue;
    ++taken[static_cast<size_t>(label)];
    append_sample(data.images, i, data.features(), part.images);
    append_sample(data.series, i, data.features(), part.series);
    part.labels.push_back(label);
    ++part.count;
  }
  check_dataset(part, data.name);
  return part;
}

}  // namespace situ::data
