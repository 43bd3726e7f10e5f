// image.cpp -- which format, how many channels, which size.
#include "io/image.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "io/image_formats.h"

namespace situ::io {
namespace {

constexpr uint64_t kMaxImageFile = uint64_t{512} << 20;

uint8_t luma(const uint8_t* p) {
  return static_cast<uint8_t>((19595u * p[0] + 38470u * p[1] + 7471u * p[2] + 32768u) >> 16);
}

// Where output pixel i takes its value from: weights of the input pixels first .. first + weights.size() - 1.
struct Tap {
  int64_t first;
  std::vector<float> weights;
};

// A triangle of half-width reach around centre, cut at the image's borders, with sum 1.
Tap triangle_tap(double centre, double reach, int64_t from) {
  Tap tap{std::max<int64_t>(0, static_cast<int64_t>(centre - reach + 0.5)), {}};
  const int64_t end = std::min(from, static_cast<int64_t>(centre + reach + 0.5));
  double sum = 0;
  for (int64_t k = tap.first; k < end; ++k) {
    const double weight = std::max(0.0, 1 - std::abs(static_cast<double>(k) + 0.5 - centre) / reach);
    tap.weights.push_back(static_cast<float>(weight));
    sum += weight;
  }
  for (float& weight : tap.weights) weight = static_cast<float>(weight / sum);
  return tap;
}

std::vector<Tap> triangle_taps(int64_t from, int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  std::vector<Tap> taps;
  for (int64_t i = 0; i < to; ++i)
    taps.push_back(triangle_tap((static_cast<double>(i) + 0.5) * scale, std::max(scale, 1.0), from));
  return taps;
}

// Rows first: one row of floats is all the memory needed between the two directions.
void blend_rows(const Image& image, const Tap& tap, std::vector<float>& row) {
  std::ranges::fill(row, 0.0f);
  const uint8_t* in = image.pixels.data() + static_cast<size_t>(tap.first) * row.size();
  for (float weight : tap.weights) {
    for (size_t i = 0; i < row.size(); ++i) row[i] += weight * static_cast<float>(in[i]);
    in += row.size();
  }
}

void blend_columns(const std::vector<float>& row, const std::vector<Tap>& taps, size_t channels, uint8_t* out) {
  for (const Tap& tap : taps)
    for (size_t c = 0; c < channels; ++c) {
      float sum = 0.5f;
      const float* in = row.data() + static_cast<size_t>(tap.first) * channels + c;
      for (size_t k = 0; k < tap.weights.size(); ++k) sum += tap.weights[k] * in[k * channels];
      *out++ = static_cast<uint8_t>(std::clamp(sum, 0.0f, 255.0f));
    }
}

}  // namespace

void check_size(uint64_t height, uint64_t width, const std::string& origin) {
  if (height == 0 || width == 0) fail("'{}' is an empty image of {}x{}: choose another file", origin, width, height);
  // Division instead of a product that could overflow.
  if (height > static_cast<uint64_t>(kMaxPixels) || width > static_cast<uint64_t>(kMaxPixels) / height)
    fail("'{}' is an image of {}x{}, more than {} pixels: scale it down first", origin, width, height, kMaxPixels);
}

Image make_image(uint64_t height, uint64_t width, int64_t channels, const std::string& origin) {
  check_size(height, width, origin);
  Image image{static_cast<int64_t>(height), static_cast<int64_t>(width), channels, {}};
  image.pixels.resize(static_cast<size_t>(height) * width * static_cast<size_t>(channels));
  return image;
}

Image decode_image(std::string_view bytes, const std::string& origin) {
  if (bytes.starts_with("\x89PNG\r\n\x1a\n")) return decode_png(bytes, origin);
  if (bytes.starts_with("\xff\xd8\xff")) return decode_jpeg(bytes, origin);
  if (bytes.starts_with("P5") || bytes.starts_with("P6")) return decode_pnm(bytes, origin);
  fail("'{}' is no PNG, JPEG, PGM (P5) or PPM (P6) image: convert it to one of them", origin);
}

Image read_image(const std::string& path) { return decode_image(read_file(path, kMaxImageFile), path); }

Image to_channels(Image image, int64_t channels) {
  if (channels != 1 && channels != 3)
    fail("images cannot be turned into {} channels: only 1 and 3 are known", channels);
  if (image.channels == channels) return image;
  Image out{image.height, image.width, channels, {}};
  const size_t count = static_cast<size_t>(image.height * image.width);
  out.pixels.resize(count * static_cast<size_t>(channels));
  for (size_t i = 0; i < count; ++i)
    if (channels == 1)
      out.pixels[i] = luma(&image.pixels[3 * i]);
    else
      std::fill_n(&out.pixels[3 * i], 3, image.pixels[i]);
  return out;
}

Image resize(const Image& image, int64_t height, int64_t width) {
  if (height < 1 || width < 1 || height > kMaxPixels / width)
    fail("an image cannot be scaled to {}x{}: ask for 1 to {} pixels", width, height, kMaxPixels);
  if (image.height == height && image.width == width) return image;
  const std::vector<Tap> down = triangle_taps(image.height, height), across = triangle_taps(image.width, width);
  Image out{height, width, image.channels, {}};
  out.pixels.resize(static_cast<size_t>(height * width * image.channels));
  std::vector<float> row(static_cast<size_t>(image.width * image.channels));
  for (size_t y = 0; y < down.size(); ++y) {
    blend_rows(image, down[y], row);
    blend_columns(row, across, static_cast<size_t>(image.channels),
                  out.pixels.data() + y * static_cast<size_t>(width * image.channels));
  }
  return out;
}

Image load_image(const std::string& path, int64_t height, int64_t width, int64_t channels) {
  return resize(to_channels(read_image(path), channels), height, width);
}

}  // namespace situ::io
