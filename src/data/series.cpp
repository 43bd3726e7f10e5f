#include "data/series.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/names.h"

namespace situ::data {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostBytes = uint64_t{1} << 31;

struct Place {
  const std::string& path;
  int line;
};

float number(std::string_view text, const Place& place) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  float value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    fail("'{}' line {}: `{}` is no number; samples with missing values cannot be used", place.path, place.line, text);
  return value;
}

int class_of(const Dataset& data, const std::string& name, const Place& place) {
  const auto it = std::find(data.class_names.begin(), data.class_names.end(), name);
  if (it == data.class_names.end())
    fail("'{}' line {}: class `{}` is not one of @classLabel's", place.path, place.line, name);
  return static_cast<int>(it - data.class_names.begin());
}

// The numbers of one sample, sensor by sensor, become steps x sensors.
void append_sample(Dataset& data, std::string_view line, const Place& place) {
  std::vector<std::string> parts = split_list(line, ':');
  if (parts.size() < 2) fail("'{}' line {}: a sample is numbers, a colon and a class", place.path, place.line);
  if (data.class_names.empty())
    data.targets.push_back(number(parts.back(), place));
  else
    data.labels.push_back(class_of(data, parts.back(), place));
  parts.pop_back();
  const auto sensors = static_cast<int64_t>(parts.size());
  const size_t start = data.series.size();
  for (int64_t c = 0; c < sensors; ++c) {
    const std::vector<std::string> values = split_list(parts[static_cast<size_t>(c)], ',');
    const auto steps = static_cast<int64_t>(values.size());
    if (data.count == 0 && c == 0) data.height = steps, data.channels = sensors;
    if (steps != data.height || sensors != data.channels)
      fail("'{}' line {}: {} sensors of {} steps where others have {} of {}: cut all samples to one length", place.path,
           place.line, sensors, steps, data.channels, data.height);
    if (c == 0) data.series.resize(start + static_cast<size_t>(steps * sensors));
    for (int64_t t = 0; t < steps; ++t)
      data.series[start + static_cast<size_t>(t * sensors + c)] = number(values[static_cast<size_t>(t)], place);
  }
  ++data.count;
}

// Class names, if the line gives them; true if it says that samples have targets.
bool read_header(Dataset& data, std::string_view line) {
  const std::vector<std::string> words = split_list(line, ' ');
  std::string key = words.empty() ? "" : words[0];
  std::transform(key.begin(), key.end(), key.begin(), [](unsigned char c) { return std::tolower(c); });
  if (key == "@classlabel" && words.size() > 2) data.class_names.assign(words.begin() + 2, words.end());
  return key == "@targetlabel" && words.size() > 1 && (words[1] == "true" || words[1] == "True");
}

// The name before _TRAIN.ts of the first such pair in a folder; empty if there is none.
std::string stem_in(const std::string& folder) {
  std::vector<std::string> stems;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with("_TRAIN.ts")) continue;
    const std::string stem = name.substr(0, name.size() - 9);
    if (fs::exists(fs::path(folder) / (stem + "_TEST.ts"))) stems.push_back(stem);
  }
  std::sort(stems.begin(), stems.end());
  return stems.empty() ? "" : stems.front();
}

}  // namespace

Dataset read_series(const std::string& path) {
  const std::string text = read_file(path, kMostBytes);
  Dataset data;
  data.name = path;
  data.width = 1;
  bool body = false, has_targets = false;
  int number_of_line = 0;
  for (size_t at = 0; at < text.size(); ++number_of_line) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line(text.data() + at, end - at);
    at = end + 1;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (line.empty() || line.front() == '#' || line.front() == '%') continue;
    if (body)
      append_sample(data, line, {path, number_of_line + 1});
    else if (line.front() == '@')
      body = line == "@data" || line == "@Data";
    if (!body) has_targets |= read_header(data, line);
    if (body && data.class_names.empty() && !has_targets)
      fail("'{}' names neither classes nor targets: @classLabel true with their names, or @targetLabel true, is needed",
           path);
  }
  data.classes = data.class_names.empty() ? 1 : static_cast<int>(data.class_names.size());
  check_dataset(data, path);
  return data;
}

bool has_series(const std::string& folder) { return !stem_in(folder).empty(); }

DatasetPair load_series_folder(const std::string& folder) {
  const std::string stem = (fs::path(folder) / stem_in(folder)).string();
  DatasetPair pair{read_series(stem + "_TRAIN.ts"), read_series(stem + "_TEST.ts")};
  if (pair.train.sample() != pair.test.sample() || pair.train.class_names != pair.test.class_names)
    fail("'{}' and its _TEST.ts have other shapes or classes: they do not belong together", stem + "_TRAIN.ts");
  return pair;
}

DatasetPair load_text(const std::string& path) {
  const std::string text = read_file(path, kMostBytes);
  if (text.size() < 1000) fail("'{}' holds {} bytes, too few to train on", path, text.size());
  const size_t cut = text.size() / 10 * 9;
  DatasetPair pair;
  for (Dataset* half : {&pair.train, &pair.test}) half->name = path, half->classes = 256;
  pair.train.text.assign(text.begin(), text.begin() + static_cast<long>(cut));
  pair.test.text.assign(text.begin() + static_cast<long>(cut), text.end());
  return pair;
}

}  // namespace situ::data
