// image_png.cpp -- PNG through libspng, with its limits set: 8 bits, transparency laid over black, grey stays grey.
#include <spng.h>

#include <memory>

#include "base/error.h"
#include "io/image_formats.h"

namespace situ::io {
namespace {

constexpr size_t kMaxChunk = size_t{64} << 20;
constexpr uint64_t kMaxRatio = 1032;  // deflate cannot do better

struct Free {
  void operator()(spng_ctx* context) const { spng_ctx_free(context); }
};
using Context = std::unique_ptr<spng_ctx, Free>;

void check(int result, const std::string& origin) {
  if (result == SPNG_OK) return;
  if (result == SPNG_EMEM) fail_environment("'{}' needs more memory to be read: free some memory", origin);
  if (result == SPNG_IO_EOF) fail("'{}' is a truncated PNG image: get the file again", origin);
  fail("'{}' is a damaged PNG image ({}): get the file again", origin, spng_strerror(result));
}

// A few bytes must not make us take hundreds of megabytes: the stored size has to be within deflate's reach.
void check_plausible(const spng_ihdr& header, size_t file_bytes, const std::string& origin) {
  const uint64_t bits = uint64_t{header.width} * header.height * header.bit_depth;  // at least one channel
  if (bits / 8 > file_bytes * kMaxRatio) fail("'{}' is a truncated PNG image: get the file again", origin);
}

std::vector<uint8_t> decode_rgba(spng_ctx* context, const std::string& origin) {
  size_t size = 0;
  check(spng_decoded_image_size(context, SPNG_FMT_RGBA8, &size), origin);
  std::vector<uint8_t> rgba(size);
  check(spng_decode_image(context, rgba.data(), size, SPNG_FMT_RGBA8, SPNG_DECODE_TRNS), origin);
  return rgba;
}

void lay_over_black(const std::vector<uint8_t>& rgba, Image& image) {
  const size_t channels = static_cast<size_t>(image.channels);
  for (size_t i = 0; i < rgba.size() / 4; ++i)
    for (size_t c = 0; c < channels; ++c)
      image.pixels[i * channels + c] = static_cast<uint8_t>((rgba[4 * i + c] * rgba[4 * i + 3] + 127) / 255);
}

}  // namespace

Image decode_png(std::string_view bytes, const std::string& origin) {
  const Context context(spng_ctx_new(0));
  if (!context) fail_environment("'{}' needs more memory to be read: free some memory", origin);
  check(spng_set_chunk_limits(context.get(), kMaxChunk, kMaxChunk), origin);
  check(spng_set_png_buffer(context.get(), bytes.data(), bytes.size()), origin);
  spng_ihdr header{};
  check(spng_get_ihdr(context.get(), &header), origin);
  const bool grey = (header.color_type & SPNG_COLOR_TYPE_TRUECOLOR) == 0;  // the bit is set for palettes too
  check_size(header.height, header.width, origin);
  check_plausible(header, bytes.size(), origin);
  Image image = make_image(header.height, header.width, grey ? 1 : 3, origin);
  lay_over_black(decode_rgba(context.get(), origin), image);
  return image;
}

}  // namespace situ::io
