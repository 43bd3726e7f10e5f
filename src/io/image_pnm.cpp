// image_pnm.cpp -- binary PGM (P5, grey) and PPM (P6, colour) with one byte per value.
//
//   P5|P6 width height maxval(1..255) <one white space> <height * width * channels bytes>, # comments in the header
#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "io/image_formats.h"

namespace situ::io {
namespace {

void skip_space(std::string_view& rest) {
  while (!rest.empty() && (std::isspace(static_cast<unsigned char>(rest[0])) || rest[0] == '#')) {
    const size_t line = rest[0] == '#' ? std::min(rest.find('\n'), rest.size() - 1) : 0;
    rest.remove_prefix(line + 1);
  }
}

uint64_t take_number(std::string_view& rest, const std::string& origin) {
  skip_space(rest);
  uint64_t value = 0;
  size_t digits = 0;
  for (; digits < rest.size() && rest[digits] >= '0' && rest[digits] <= '9' && digits < 10; ++digits)
    value = value * 10 + static_cast<uint64_t>(rest[digits] - '0');
  if (digits == 0 || digits == 10) fail("'{}' has no valid PGM or PPM header: save the image again", origin);
  rest.remove_prefix(digits);
  return value;
}

}  // namespace

Image decode_pnm(std::string_view bytes, const std::string& origin) {
  const int64_t channels = bytes[1] == '5' ? 1 : 3;
  std::string_view rest = bytes.substr(2);
  const uint64_t width = take_number(rest, origin), height = take_number(rest, origin);
  const uint64_t top = take_number(rest, origin);
  if (top < 1 || top > 255) fail("'{}' has values up to {}: save the image with 8 bits per value", origin, top);
  if (rest.empty() || !std::isspace(static_cast<unsigned char>(rest[0])))
    fail("'{}' has no valid PGM or PPM header: save the image again", origin);
  rest.remove_prefix(1);
  // Against the file before memory is taken: height and width have at most nine digits, so this cannot overflow.
  const uint64_t needed = height * width * static_cast<uint64_t>(channels);
  if (rest.size() < needed) fail("'{}' is truncated ({} bytes of {}): get the file again", origin, rest.size(), needed);
  if (rest.size() > needed) fail("'{}' has {} bytes behind its image: save it again", origin, rest.size() - needed);
  Image image = make_image(height, width, channels, origin);
  for (size_t i = 0; i < image.pixels.size(); ++i) {
    const unsigned value = static_cast<uint8_t>(rest[i]), most = static_cast<unsigned>(top);
    if (value > most) fail("'{}' has the value {} above its maximum {}: save the image again", origin, value, most);
    image.pixels[i] = static_cast<uint8_t>((value * 255 + most / 2) / most);
  }
  return image;
}

}  // namespace situ::io
