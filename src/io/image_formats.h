// image_formats.h -- one decoder per file format, for io/image.cpp alone.
#pragma once
#include <string>
#include <string_view>

#include "io/image.h"

namespace situ::io {

Image decode_png(std::string_view bytes, const std::string& origin);
Image decode_jpeg(std::string_view bytes, const std::string& origin);
Image decode_pnm(std::string_view bytes, const std::string& origin);

// Raises if an image of this size is empty or larger than kMaxPixels.
void check_size(uint64_t height, uint64_t width, const std::string& origin);
// An image of this size with its memory, after check_size().
Image make_image(uint64_t height, uint64_t width, int64_t channels, const std::string& origin);

}  // namespace situ::io
