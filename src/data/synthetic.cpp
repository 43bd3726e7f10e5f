// synthetic.cpp -- made-up images that can be learned, for benchmarks and tests without files.
//
//   pixel = pattern(class, y * 7 / H, x * 7 / W, c) + noise,   pattern in 64 .. 191,  noise in -64 .. 63
//
// A class is a coarse 7x7 picture; noise hides half of it. Integers and hashes only: the same bytes on every machine.
#include <charconv>
#include <string_view>

#include "base/error.h"
#include "data/dataset.h"
#include "data/random.h"

namespace situ::data {
namespace {

constexpr int64_t kCells = 7;
constexpr int64_t kMaxBytes = int64_t{1} << 32;
constexpr uint64_t kPatternStream = 1, kTrainStream = 2, kTestStream = 3;

struct Shape {
  int64_t height = 28, width = 28, channels = 1, classes = 10, count = 4096;
};

[[noreturn]] void bad_spec(const std::string& spec) {
  fail("'{}' is no data set: write synthetic[:HxWxC[:classes[:count]]] as in synthetic:28x28x1:10:4096", spec);
}

// Takes one positive number off the front of text, up to the separator or the end.
int64_t take_number(std::string_view& text, char separator, const std::string& spec) {
  int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || value < 1 || value > INT32_MAX) bad_spec(spec);
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  if (!text.empty() && text[0] != separator) bad_spec(spec);
  if (!text.empty()) text.remove_prefix(1);
  return value;
}

void check_size(const Shape& s, const std::string& spec) {
  int64_t bytes = s.height;
  bool overflow = __builtin_mul_overflow(bytes, s.width, &bytes);
  overflow |= __builtin_mul_overflow(bytes, s.channels, &bytes);
  overflow |= __builtin_mul_overflow(bytes, s.count, &bytes);
  if (overflow || bytes > kMaxBytes) fail("'{}' is more than {} bytes: ask for fewer images", spec, kMaxBytes);
}

Shape parse(const std::string& spec) {
  Shape s;
  std::string_view rest = spec;
  rest.remove_prefix(std::string_view("synthetic").size());
  if (rest.empty()) return s;
  if (rest.back() == ':' || rest.back() == 'x') bad_spec(spec);
  rest.remove_prefix(1);
  s.height = take_number(rest, 'x', spec);
  s.width = take_number(rest, 'x', spec);
  s.channels = take_number(rest, ':', spec);
  if (!rest.empty()) s.classes = take_number(rest, ':', spec);
  if (!rest.empty()) s.count = take_number(rest, ':', spec);
  if (!rest.empty()) bad_spec(spec);
  check_size(s, spec);
  return s;
}

// One hash serves eight pixels.
int noise_at(uint64_t key, uint64_t i) { return static_cast<int>((random_bits(key, i / 8) >> (i % 8 * 8)) & 127) - 64; }

int pattern_at(uint64_t key, int64_t cell_y, int64_t cell_x, int64_t c) {
  return 64 + static_cast<int>(random_bits(key, static_cast<uint64_t>((c * kCells + cell_y) * kCells + cell_x)) >> 57);
}

void draw(Dataset& data, int64_t image, uint64_t noise_key) {
  const uint64_t label = static_cast<uint64_t>(data.labels[static_cast<size_t>(image)]);
  const uint64_t pattern_key = random_key(label, kPatternStream);
  size_t at = static_cast<size_t>(image * data.features());
  for (int64_t y = 0; y < data.height; ++y)
    for (int64_t x = 0; x < data.width; ++x)
      for (int64_t c = 0; c < data.channels; ++c, ++at)
        data.images[at] = static_cast<uint8_t>(
            pattern_at(pattern_key, y * kCells / data.height, x * kCells / data.width, c) + noise_at(noise_key, at));
}

Dataset make_half(const std::string& spec, const Shape& s, int64_t count, uint64_t stream) {
  Dataset data{.name = spec,
               .count = count,
               .height = s.height,
               .width = s.width,
               .channels = s.channels,
               .classes = static_cast<int>(s.classes),
               .images = std::vector<uint8_t>(static_cast<size_t>(count * s.height * s.width * s.channels)),
               .labels = {}};
  for (int64_t i = 0; i < count; ++i) data.labels.push_back(static_cast<int32_t>(i % s.classes));
  for (int64_t i = 0; i < count; ++i) draw(data, i, random_key(0, stream));
  return data;
}

}  // namespace

DatasetPair make_synthetic(const std::string& spec) {
  const Shape s = parse(spec);
  return {make_half(spec, s, s.count, kTrainStream), make_half(spec, s, (s.count + 3) / 4, kTestStream)};
}

}  // namespace situ::data
