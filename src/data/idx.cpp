// idx.cpp -- one source of bytes, inflated or copied, so that plain and compressed files meet the same checks.
#include "data/idx.h"

#include <zlib.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/file.h"

namespace situ::data {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 31;  // of a file and of its contents; zlib counts in 32 bits
constexpr uint64_t kMaxRatio = 1032;               // deflate cannot do better: a larger claim is a lie
constexpr int kGzipOnly = 16 + MAX_WBITS;

// The bytes of a file in order, inflated on the way if it is compressed.
class Source {
 public:
  explicit Source(const std::string& path) : path_(path), bytes_(read_file(path, kMaxBytes)) {
    compressed_ = bytes_.size() >= 2 && bytes_[0] == '\x1f' && bytes_[1] == '\x8b';
    if (!compressed_) return;
    stream_.next_in = reinterpret_cast<Bytef*>(bytes_.data());
    stream_.avail_in = static_cast<uInt>(bytes_.size());
    if (inflateInit2(&stream_, kGzipOnly) != Z_OK) fail_environment("zlib cannot start: free some memory");
  }
  ~Source() {
    if (compressed_) inflateEnd(&stream_);
  }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  // The most bytes the file can possibly hold.
  uint64_t capacity() const { return compressed_ ? bytes_.size() * kMaxRatio : bytes_.size(); }

  void read(uint8_t* to, size_t count) {
    if (compressed_ ? inflate_into(to, count) == count : copy_into(to, count)) return;
    fail("'{}' is truncated: get the file again", path_);
  }

  void expect_end() {
    uint8_t extra;
    if (compressed_ ? inflate_into(&extra, 1) != 0 : at_ != bytes_.size())
      fail("'{}' holds more data than its header says: get the file again", path_);
    if (compressed_ && !ended_) fail("'{}' is truncated: get the file again", path_);
    if (compressed_ && stream_.avail_in != 0)
      fail("'{}' has {} bytes of garbage behind its compressed data: get the file again", path_, stream_.avail_in);
  }

 private:
  bool copy_into(uint8_t* to, size_t count) {
    if (bytes_.size() - at_ < count) return false;
    std::copy_n(bytes_.data() + at_, count, to);
    at_ += count;
    return true;
  }

  // Bytes written: fewer than count only at the end of the stream or of the file.
  size_t inflate_into(uint8_t* to, size_t count) {
    stream_.next_out = to;
    stream_.avail_out = static_cast<uInt>(count);
    while (!ended_ && stream_.avail_out != 0) {
      const int result = ::inflate(&stream_, Z_NO_FLUSH);
      if (result == Z_BUF_ERROR) break;
      if (result == Z_MEM_ERROR) fail_environment("'{}' needs more memory to be read: free some memory", path_);
      if (result != Z_OK && result != Z_STREAM_END)
        fail("'{}' is damaged ({}): get the file again", path_, stream_.msg ? stream_.msg : "bad compressed data");
      ended_ = result == Z_STREAM_END;
    }
    return count - stream_.avail_out;
  }

  const std::string& path_;
  std::string bytes_;
  bool compressed_ = false, ended_ = false;
  size_t at_ = 0;
  z_stream stream_{};
};

std::vector<int64_t> read_shape(Source& source, const std::string& path) {
  uint8_t magic[4];
  source.read(magic, 4);
  if (magic[0] != 0 || magic[1] != 0 || magic[3] == 0)
    fail("'{}' is no IDX file (it begins with {:02x} {:02x} {:02x} {:02x}): name one in MNIST's format", path, magic[0],
         magic[1], magic[2], magic[3]);
  if (magic[2] != 8) fail("'{}' holds IDX type 0x{:02x}: only unsigned bytes (0x08) are read", path, magic[2]);
  std::vector<int64_t> shape(magic[3]);
  for (int64_t& extent : shape) {
    uint8_t b[4];
    source.read(b, 4);
    extent = int64_t{b[0]} << 24 | int64_t{b[1]} << 16 | int64_t{b[2]} << 8 | int64_t{b[3]};
  }
  return shape;
}

uint64_t checked_count(const std::vector<int64_t>& shape, const Source& source, const std::string& path) {
  uint64_t count = 1;
  bool overflow = false;
  for (int64_t extent : shape) overflow |= __builtin_mul_overflow(count, extent, &count);
  if (overflow || count > kMaxBytes)
    fail("'{}' claims the size [{}], more than the {} bytes read: it is damaged or too large", path,
         fmt::join(shape, ", "), kMaxBytes);
  if (count > source.capacity()) fail("'{}' is truncated: get the file again", path);
  return count;
}

}  // namespace

Idx read_idx(const std::string& path) {
  Source source(path);
  Idx idx;
  idx.shape = read_shape(source, path);
  idx.data.resize(checked_count(idx.shape, source, path));
  source.read(idx.data.data(), idx.data.size());
  source.expect_end();
  return idx;
}

}  // namespace situ::data
