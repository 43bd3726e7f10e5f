// archive.cpp -- POSIX ustar: a header of 512 bytes per file, contents padded to as many, two empty blocks at the end.
#include "io/archive.h"

#include <zlib.h>

#include <array>
#include <cstring>
#include <ctime>

#include "base/error.h"

namespace situ::io {
namespace {

constexpr size_t kBlock = 512;
using Header = std::array<char, kBlock>;

void put(Header& header, size_t at, size_t width, const std::string& text) {
  SITU_ASSERT(text.size() <= width);
  std::memcpy(header.data() + at, text.data(), text.size());
}
void put_octal(Header& header, size_t at, size_t width, uint64_t value) {
  put(header, at, width, fmt::format("{:0{}o}", value, width - 1));
}

std::string header_of(const std::string& name, size_t bytes) {
  Header header{};
  put(header, 0, 99, name);
  put_octal(header, 100, 8, 0644);
  put_octal(header, 108, 8, 0);  // owner and group: nobody's business
  put_octal(header, 116, 8, 0);
  put_octal(header, 124, 12, bytes);
  put_octal(header, 136, 12, static_cast<uint64_t>(std::time(nullptr)));
  put(header, 148, 8, "        ");  // the checksum is that of a header with spaces in its place
  put(header, 156, 1, "0");
  put(header, 257, 8, std::string("ustar\0", 6) + "00");
  uint64_t sum = 0;
  for (char c : header) sum += static_cast<unsigned char>(c);
  put(header, 148, 8, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  return {header.begin(), header.end()};
}

std::string gzip(std::string bytes) {
  z_stream stream{};
  constexpr int kGzip = 15 + 16;  // the largest window, gzip's frame
  if (deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    fail_environment("no memory to pack {} bytes", bytes.size());
  std::string packed(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  const int code = deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  SITU_ASSERT(code == Z_STREAM_END);
  return packed;
}

}  // namespace

std::string tar_gz(const NamedFiles& files) {
  std::string tar;
  for (const auto& [name, contents] : files) {
    tar += header_of(name, contents.size()) + contents;
    tar.append((kBlock - contents.size() % kBlock) % kBlock, '\0');
  }
  tar.append(2 * kBlock, '\0');
  return gzip(std::move(tar));
}

}  // namespace situ::io
