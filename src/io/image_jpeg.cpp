// image_jpeg.cpp -- JPEG through libjpeg-turbo.
//
// The library reports errors by longjmp. It only ever jumps inside read_header() and read_rows(), whose frames hold
// nothing with a destructor; all memory belongs to the caller's frame, which is never jumped over.
#include <csetjmp>
#include <cstddef>
#include <cstdio>
// After these: jpeglib.h uses size_t and FILE without declaring them.
#include <jerror.h>
#include <jpeglib.h>

#include "base/error.h"
#include "io/image_formats.h"

namespace situ::io {
namespace {

constexpr int kMaxScans = 200;  // a progressive file may repeat scans at will to burn time

struct Decoder {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf escape{};
  char message[JMSG_LENGTH_MAX] = {};
};

Decoder& decoder_of(j_common_ptr info) { return *static_cast<Decoder*>(info->client_data); }

void stop(j_common_ptr info) {
  Decoder& decoder = decoder_of(info);
  info->err->format_message(info, decoder.message);
  std::longjmp(decoder.escape, 1);
}

// Level -1 is a warning: data is missing or corrupt and the library would make it up. Stray bytes between markers,
// which some cameras write, lose nothing.
void on_message(j_common_ptr info, int level) {
  if (level < 0 && info->err->msg_code != JWRN_EXTRANEOUS_DATA) stop(info);
}

void on_progress(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMaxScans) return;
  Decoder& decoder = decoder_of(info);
  std::snprintf(decoder.message, sizeof decoder.message, "more than %d scans", kMaxScans);
  std::longjmp(decoder.escape, 1);
}

void wire(Decoder& decoder) {
  decoder.info.err = jpeg_std_error(&decoder.errors);
  decoder.info.client_data = &decoder;
  decoder.errors.error_exit = stop;
  decoder.errors.emit_message = on_message;
}

bool read_header(Decoder& decoder, const unsigned char* bytes, unsigned long size) {
  if (setjmp(decoder.escape) != 0) return false;
  jpeg_create_decompress(&decoder.info);
  decoder.progress.progress_monitor = on_progress;
  decoder.info.progress = &decoder.progress;
  jpeg_mem_src(&decoder.info, bytes, size);
  jpeg_read_header(&decoder.info, TRUE);
  return true;
}

bool read_rows(Decoder& decoder, unsigned char* pixels, size_t row_bytes) {
  if (setjmp(decoder.escape) != 0) return false;
  decoder.info.dct_method = JDCT_ISLOW;
  jpeg_start_decompress(&decoder.info);
  while (decoder.info.output_scanline < decoder.info.output_height) {
    JSAMPROW row = pixels + decoder.info.output_scanline * row_bytes;
    jpeg_read_scanlines(&decoder.info, &row, 1);
  }
  jpeg_finish_decompress(&decoder.info);
  return true;
}

struct Destroyer {
  Decoder& decoder;
  ~Destroyer() { jpeg_destroy_decompress(&decoder.info); }
};

[[noreturn]] void damaged(const Decoder& decoder, const std::string& origin) {
  fail("'{}' is a damaged JPEG image ({}): get the file again", origin, decoder.message);
}

}  // namespace

Image decode_jpeg(std::string_view bytes, const std::string& origin) {
  Decoder decoder;
  wire(decoder);
  const Destroyer destroyer{decoder};
  if (!read_header(decoder, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()))
    damaged(decoder, origin);
  const J_COLOR_SPACE stored = decoder.info.jpeg_color_space;
  if (stored == JCS_CMYK || stored == JCS_YCCK) fail("'{}' is a CMYK image: save it as RGB", origin);
  const bool grey = stored == JCS_GRAYSCALE;
  decoder.info.out_color_space = grey ? JCS_GRAYSCALE : JCS_RGB;
  Image image = make_image(decoder.info.image_height, decoder.info.image_width, grey ? 1 : 3, origin);
  if (!read_rows(decoder, image.pixels.data(), static_cast<size_t>(image.width * image.channels)))
    damaged(decoder, origin);
  return image;
}

}  // namespace situ::io
