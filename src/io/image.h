// image.h -- PNG, JPEG, PGM and PPM files as bytes, fitted to what a model takes.
//
//   pixels: [height, width, channels], 0 to 255; channels is 1 (grey) or 3 (red, green, blue)
//   grey = (19595 R + 38470 G + 7471 B + 32768) >> 16      transparency is laid over black
//
// Image files come from strangers: sizes are checked before memory is taken, damage is refused rather than guessed
// over.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace situ::io {

struct Image {
  int64_t height = 0, width = 0, channels = 0;
  std::vector<uint8_t> pixels = {};
};

inline constexpr int64_t kMaxPixels = int64_t{64} << 20;

// Format by contents, not by name. EXIF orientation is not applied.
Image read_image(const std::string& path);
// The same from memory; origin is the name used in errors.
Image decode_image(std::string_view bytes, const std::string& origin);

// Grey to colour by repeating, colour to grey by luma.
Image to_channels(Image image, int64_t channels);

// Bilinear; where it shrinks, the triangle widens with the scale so that every pixel counts (as in Pillow).
Image resize(const Image& image, int64_t height, int64_t width);

// All three: the file as [height, width, channels].
Image load_image(const std::string& path, int64_t height, int64_t width, int64_t channels);

}  // namespace situ::io
