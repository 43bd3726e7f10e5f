// image_test.cpp -- image files: what each format decodes to, every way a file can be wrong, and fitting to a size.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
// After these: jpeglib.h uses size_t and FILE without declaring them.
#include <jpeglib.h>
#include <spng.h>

#include "base/file.h"
#include "harness.h"
#include "io/image.h"

namespace situ::io {
namespace {

using test::expect_error;

int64_t peak_kib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

Image gradient(int64_t height, int64_t width, int64_t channels) {
  Image image{height, width, channels, {}};
  for (int64_t i = 0; i < height * width * channels; ++i) image.pixels.push_back(static_cast<uint8_t>(i * 7));
  return image;
}

std::string encode_png(uint32_t height, uint32_t width, uint8_t color_type, uint8_t depth, const std::string& raw,
                       spng_trns* transparent = nullptr) {
  spng_ctx* context = spng_ctx_new(SPNG_CTX_ENCODER);
  spng_set_option(context, SPNG_ENCODE_TO_BUFFER, 1);
  spng_ihdr header{.width = width,
                   .height = height,
                   .bit_depth = depth,
                   .color_type = color_type,
                   .compression_method = 0,
                   .filter_method = 0,
                   .interlace_method = 0};
  spng_set_ihdr(context, &header);
  if (transparent) spng_set_trns(context, transparent);
  EXPECT_EQ(spng_encode_image(context, raw.data(), raw.size(), SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE), 0);
  size_t size = 0;
  int code = 0;
  void* png = spng_get_png_buffer(context, &size, &code);
  std::string bytes(static_cast<const char*>(png), size);
  std::free(png);
  spng_ctx_free(context);
  return bytes;
}

std::string encode_png(const Image& image) {
  return encode_png(static_cast<uint32_t>(image.height), static_cast<uint32_t>(image.width),
                    image.channels == 1 ? SPNG_COLOR_TYPE_GRAYSCALE : SPNG_COLOR_TYPE_TRUECOLOR, 8,
                    {image.pixels.begin(), image.pixels.end()});
}

std::string encode_jpeg(const Image& image, J_COLOR_SPACE space, bool progressive = false) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_width = static_cast<JDIMENSION>(image.width);
  info.image_height = static_cast<JDIMENSION>(image.height);
  info.input_components = static_cast<int>(image.channels);
  info.in_color_space = space;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 100, TRUE);
  if (progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  for (int64_t y = 0; y < image.height; ++y) {
    JSAMPROW row = const_cast<JSAMPROW>(image.pixels.data()) + y * image.width * image.channels;
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  std::string bytes(reinterpret_cast<const char*>(memory), size);
  jpeg_destroy_compress(&info);
  std::free(memory);
  return bytes;
}

Image flat(int64_t height, int64_t width, std::vector<uint8_t> pixel) {
  Image image{height, width, static_cast<int64_t>(pixel.size()), {}};
  for (int64_t i = 0; i < height * width; ++i) image.pixels.insert(image.pixels.end(), pixel.begin(), pixel.end());
  return image;
}

TEST(ImageFile, PngRoundTrip) {
  for (int64_t channels : {1, 3}) {
    const Image image = gradient(5, 7, channels), back = decode_image(encode_png(image), "a.png");
    EXPECT_EQ(back.height, 5);
    EXPECT_EQ(back.width, 7);
    EXPECT_EQ(back.channels, channels);
    EXPECT_EQ(back.pixels, image.pixels);
  }
}

TEST(ImageFile, PngAlphaDepthsAndBits) {
  const Image alpha = decode_image(
      encode_png(1, 2, SPNG_COLOR_TYPE_TRUECOLOR_ALPHA, 8, std::string("\x64\xC8\xFF\xFF\x64\xC8\xFF\x80", 8)), "a");
  EXPECT_EQ(alpha.pixels, (std::vector<uint8_t>{100, 200, 255, 50, 100, 128}));
  const Image grey_alpha = decode_image(encode_png(1, 1, SPNG_COLOR_TYPE_GRAYSCALE_ALPHA, 8, "\x64\x80"), "a");
  EXPECT_EQ(grey_alpha.channels, 1);
  EXPECT_EQ(grey_alpha.pixels, std::vector<uint8_t>{50});
  const Image wide = decode_image(encode_png(1, 1, SPNG_COLOR_TYPE_GRAYSCALE, 16, "\x80\x64"), "a");
  EXPECT_EQ(wide.pixels, std::vector<uint8_t>{100});
  const Image bits = decode_image(encode_png(1, 8, SPNG_COLOR_TYPE_GRAYSCALE, 1, "\xA5"), "a");
  EXPECT_EQ(bits.pixels, (std::vector<uint8_t>{255, 0, 255, 0, 0, 255, 0, 255}));
  spng_trns nine{};
  nine.gray = 9;  // the grey that counts as transparent
  const Image keyed = decode_image(encode_png(1, 3, SPNG_COLOR_TYPE_GRAYSCALE, 8, "\x08\x09\x0A", &nine), "a");
  EXPECT_EQ(keyed.pixels, (std::vector<uint8_t>{8, 0, 10}));
}

TEST(ImageFile, EveryPngTruncationAndFlippedByteIsAnErrorOrAnImage) {
  const std::string bytes = encode_png(gradient(9, 9, 3));
  for (size_t n = 0; n + 20 < bytes.size(); ++n)  // the last bytes are IEND and the end of IDAT
    expect_error([&] { decode_image(bytes.substr(0, n), "cut.png"); }, "cut.png");
  expect_error([&] { decode_image(bytes.substr(0, bytes.size() / 2), "cut.png"); }, "truncated PNG");
  std::string flipped = bytes;
  flipped[bytes.size() / 2] = static_cast<char>(flipped[bytes.size() / 2] ^ 0x10);
  expect_error([&] { decode_image(flipped, "bad.png"); }, "damaged PNG");
}

TEST(ImageFile, PngSizesAreLimited) {
  const auto crc_header = [](uint32_t width, uint32_t height) {
    std::string ihdr = "IHDR";
    for (uint32_t v : {width, height})
      for (int shift = 24; shift >= 0; shift -= 8) ihdr += static_cast<char>(v >> shift);
    ihdr += std::string("\x08\0\0\0\0", 5);
    uint32_t crc = ~0u;
    for (char c : ihdr) {
      crc ^= static_cast<uint8_t>(c);
      for (int k = 0; k < 8; ++k) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    }
    std::string out = std::string("\x89PNG\r\n\x1a\n\0\0\0\x0D", 12) + ihdr;
    for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(~crc >> shift);
    return out;
  };
  expect_error([&] { decode_image(crc_header(0x7FFFFFFF, 0x7FFFFFFF), "big.png"); }, "more than 67108864 pixels");
  expect_error([&] { decode_image(crc_header(8193, 8192), "big.png"); }, "more than 67108864 pixels");
  const int64_t before = peak_kib();
  expect_error([&] { decode_image(crc_header(8192, 8192), "lie.png"); }, "truncated PNG");
  EXPECT_LT(peak_kib() - before, 32 << 10) << "45 bytes must not take 64 megapixels of memory";
  expect_error([&] { decode_image(crc_header(0, 1), "none.png"); }, "none.png");
}

TEST(ImageFile, JpegDecodes) {
  for (bool progressive : {false, true}) {
    const Image colour = decode_image(encode_jpeg(flat(20, 30, {200, 100, 50}), JCS_RGB, progressive), "a.jpg");
    EXPECT_EQ(colour.height, 20);
    EXPECT_EQ(colour.width, 30);
    ASSERT_EQ(colour.channels, 3);
    EXPECT_NEAR(colour.pixels[0], 200, 2);
    EXPECT_NEAR(colour.pixels[1], 100, 2);
    EXPECT_NEAR(colour.pixels[2], 50, 2);
    EXPECT_NEAR(colour.pixels.back(), 50, 2);
  }
  const Image grey = decode_image(encode_jpeg(flat(9, 5, {77}), JCS_GRAYSCALE), "a.jpg");
  EXPECT_EQ(grey.channels, 1);
  EXPECT_NEAR(grey.pixels[44], 77, 1);
}

TEST(ImageFile, JpegDamageIsRejected) {
  const std::string bytes = encode_jpeg(gradient(40, 40, 3), JCS_RGB);
  for (size_t n = 3; n < bytes.size(); n += 7)
    expect_error([&] { decode_image(bytes.substr(0, n), "cut.jpg"); }, "damaged JPEG");
  std::string corrupt = bytes;
  for (size_t i = 0; i < 8; ++i) corrupt[bytes.size() / 2 + i] = '\xFF';
  expect_error([&] { decode_image(corrupt, "bad.jpg"); }, "damaged JPEG");
  expect_error([&] { decode_image(encode_jpeg(flat(8, 8, {1, 2, 3, 4}), JCS_CMYK), "cmyk.jpg"); }, "CMYK");
}

TEST(ImageFile, JpegSizeIsLimited) {
  std::string bytes = encode_jpeg(flat(8, 8, {1}), JCS_GRAYSCALE);
  const size_t frame = bytes.find("\xFF\xC0");
  ASSERT_NE(frame, std::string::npos);
  for (size_t i = 5; i < 9; ++i) bytes[frame + i] = '\xFD';  // 65021 x 65021
  expect_error([&] { decode_image(bytes, "big.jpg"); }, "more than 67108864 pixels");
}

TEST(ImageFile, PnmDecodes) {
  const Image grey = decode_image("P5\n# made by hand\n3 2\n255\nabcdef", "a.pgm");
  EXPECT_EQ(grey.height, 2);
  EXPECT_EQ(grey.width, 3);
  EXPECT_EQ(grey.channels, 1);
  EXPECT_EQ(grey.pixels, (std::vector<uint8_t>{'a', 'b', 'c', 'd', 'e', 'f'}));
  const Image colour = decode_image("P6 1 2 255 abcdef", "a.ppm");
  EXPECT_EQ(colour.channels, 3);
  EXPECT_EQ(colour.height, 2);
  EXPECT_EQ(decode_image(std::string("P5 3 1 2\n\0\1\2", 12), "a.pgm").pixels, (std::vector<uint8_t>{0, 128, 255}));
}

TEST(ImageFile, PnmRejections) {
  const auto reject = [](const std::string& bytes, const std::string& part) {
    SCOPED_TRACE(bytes);
    expect_error([&] { decode_image(bytes, "bad.pgm"); }, part);
  };
  reject("P5", "no valid PGM");
  reject("P5 3", "no valid PGM");
  reject("P5 x 2 255\nabcdef", "no valid PGM");
  reject("P5 -3 2 255\nabcdef", "no valid PGM");
  reject("P5 3 2 255", "no valid PGM");
  reject("P5 3 2 255xabcdef", "no valid PGM");
  reject("P5 # no end", "no valid PGM");
  reject("P5 9999999999999999999999 2 255\n", "no valid PGM");
  reject("P5 3 2 0\nabcdef", "8 bits per value");
  reject("P5 3 2 65535\nabcdefabcdef", "8 bits per value");
  reject("P5 3 2 255\nabcde", "truncated (5 bytes of 6)");
  reject("P5 3 2 255\nabcdefg", "1 bytes behind its image");
  reject("P5 999999999 999999999 255\nabc", "truncated");
  reject("P5 0 2 255\n", "empty image");
  reject("P5 1 1 9\nz", "above its maximum");
}

TEST(ImageFile, UnknownFormatsAndFilesAreNamed) {
  expect_error([] { decode_image("GIF89a", "a.gif"); }, "is no PNG, JPEG, PGM (P5) or PPM (P6) image");
  expect_error([] { decode_image("", "empty"); }, "is no PNG");
  expect_error([] { read_image("/nowhere/a.png"); }, "does not exist");
}

TEST(ImageFit, Channels) {
  const Image colour{1, 2, 3, {255, 255, 255, 255, 0, 0}};
  EXPECT_EQ(to_channels(colour, 1).pixels, (std::vector<uint8_t>{255, 76}));
  const Image grey{1, 2, 1, {3, 9}};
  EXPECT_EQ(to_channels(grey, 3).pixels, (std::vector<uint8_t>{3, 3, 3, 9, 9, 9}));
  EXPECT_EQ(to_channels(grey, 1).pixels, grey.pixels);
  expect_error([&] { to_channels(grey, 2); }, "2 channels");
}

TEST(ImageFit, Resize) {
  const Image step{1, 2, 1, {0, 100}};
  EXPECT_EQ(resize(step, 1, 4).pixels, (std::vector<uint8_t>{0, 25, 75, 100}));
  EXPECT_EQ(resize(step, 2, 2).pixels, (std::vector<uint8_t>{0, 100, 0, 100}));
  EXPECT_EQ(resize(Image{2, 1, 1, {0, 100}}, 4, 1).pixels, (std::vector<uint8_t>{0, 25, 75, 100}));
  // Shrinking looks at every pixel: one bright pixel in eight still shows.
  EXPECT_EQ(resize(Image{1, 8, 1, {0, 0, 0, 200, 0, 0, 0, 0}}, 1, 1).pixels[0], 31);  // 200 * (15/16) / 6
  EXPECT_EQ(resize(flat(13, 17, {9, 200, 255}), 5, 40).pixels, flat(5, 40, {9, 200, 255}).pixels);
  expect_error([&] { resize(step, 0, 4); }, "cannot be scaled");
  expect_error([&] { resize(step, 1 << 20, 1 << 20); }, "cannot be scaled");
}

TEST(ImageFit, LoadDoesAllThree) {
  const TemporaryFolder folder;
  write_file_atomic(folder.file("a.png"), encode_png(flat(50, 40, {255, 0, 0})));
  const Image image = load_image(folder.file("a.png"), 28, 28, 1);
  EXPECT_EQ(image.pixels, flat(28, 28, {76}).pixels);
}

}  // namespace
}  // namespace situ::io
