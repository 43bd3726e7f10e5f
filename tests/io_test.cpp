// io_test.cpp -- files, safetensors and images: round trips, and one test for every way a file can be wrong.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>

#include "io/safetensors.h"
// After these: jpeglib.h uses size_t and FILE without declaring them.
#include <jpeglib.h>
#include <spng.h>

#include "base/error.h"
#include "base/file.h"
#include "io/image.h"
#include "io/text.h"

namespace situ::io {
namespace {

namespace fs = std::filesystem;

void expect_error(const std::function<void()>& run, const std::string& part, ErrorKind kind = ErrorKind::user) {
  try {
    run();
    ADD_FAILURE() << "no error; expected: " << part;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    EXPECT_EQ(static_cast<int>(error.kind()), static_cast<int>(kind)) << error.what();
  }
}

size_t files_in(const std::string& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

// ---- files

TEST(File, RoundTripKeepsEveryByte) {
  const TemporaryFolder folder;
  std::string bytes;
  for (int i = 0; i < 70000; ++i) bytes += static_cast<char>(i * 31);
  write_file_atomic(folder.file("a"), bytes);
  EXPECT_EQ(read_file(folder.file("a")), bytes);
  write_file_atomic(folder.file("a"), "");
  EXPECT_EQ(read_file(folder.file("a")), "");
  EXPECT_EQ(files_in(folder.path()), 1u);
}

TEST(File, PiecesAreJoined) {
  const TemporaryFolder folder;
  const std::string_view pieces[] = {"one ", "", "two"};
  write_file_atomic(folder.file("a"), pieces);
  EXPECT_EQ(read_file(folder.file("a")), "one two");
}

TEST(File, ReadsFilesThatDoNotTellTheirSize) {
  EXPECT_FALSE(read_file("/proc/self/status").empty());
  expect_error([] { read_file("/proc/self/status", 4); }, "longer than the 4 bytes allowed");
}

TEST(File, MissingFolderPipeAndTooLargeAreNamed) {
  const TemporaryFolder folder;
  expect_error([&] { read_file(folder.file("none")); }, "none' does not exist");
  expect_error([&] { read_file(folder.path()); }, "is a folder");
  write_file_atomic(folder.file("a"), "12345");
  EXPECT_EQ(read_file(folder.file("a"), 5), "12345");
  expect_error([&] { read_file(folder.file("a"), 4); }, "is 5 bytes long and at most 4 are allowed");
  expect_error([&] { read_file(folder.file("a/b")); }, "does not exist");
  ASSERT_EQ(::mkfifo(folder.file("pipe").c_str(), 0600), 0);
  expect_error([&] { read_file(folder.file("pipe")); }, "is a pipe or a device");
}

TEST(File, UnreadableFileIsNamed) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const TemporaryFolder folder;
  write_file_atomic(folder.file("a"), "1");
  ASSERT_EQ(::chmod(folder.file("a").c_str(), 0), 0);
  expect_error([&] { read_file(folder.file("a")); }, "may not be read");
}

TEST(File, WritingNamesWhatIsInTheWay) {
  const TemporaryFolder folder;
  expect_error([&] { write_file_atomic(folder.file("none/a"), "1"); }, "make its folder first");
  expect_error([&] { write_file_atomic(folder.path(), "1"); }, "is a folder");
  expect_error([&] { write_file_atomic("/dev/null", "1"); }, "is a pipe or a device");
}

TEST(File, FailedWriteLeavesTheOldFileAndNoTemporary) {
  const TemporaryFolder folder;
  write_file_atomic(folder.file("a"), "old");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 1000, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  expect_error([&] { write_file_atomic(folder.file("a"), std::string(5000, 'x')); }, "free some disk space",
               ErrorKind::environment);
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(read_file(folder.file("a")), "old");
  EXPECT_EQ(files_in(folder.path()), 1u);
}

TEST(File, KeepsModeAndSymbolicLink) {
  const TemporaryFolder folder;
  write_file_atomic(folder.file("a"), "1");
  ASSERT_EQ(::chmod(folder.file("a").c_str(), 0600), 0);
  fs::create_symlink("a", folder.file("link"));
  write_file_atomic(folder.file("link"), "2");
  EXPECT_TRUE(fs::is_symlink(folder.file("link")));
  EXPECT_EQ(read_file(folder.file("a")), "2");
  struct stat info {};
  ASSERT_EQ(::stat(folder.file("a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST(File, MakesFoldersOnce) {
  const TemporaryFolder folder;
  make_folders(folder.file("a/b/c"));
  make_folders(folder.file("a/b/c"));
  make_folders("");
  EXPECT_TRUE(fs::is_directory(folder.file("a/b/c")));
  write_file_atomic(folder.file("file"), "1");
  expect_error([&] { make_folders(folder.file("file")); }, "cannot be made");
  expect_error([&] { make_folders(folder.file("file/under")); }, "cannot be made");
}

TEST(File, TemporaryFolderIsRemoved) {
  std::string path;
  {
    const TemporaryFolder folder;
    path = folder.path();
    write_file_atomic(folder.file("a"), "1");
  }
  EXPECT_FALSE(fs::exists(path));
}

// ---- text

TEST(Text, Utf8) {
  for (const char* good : {"", "a", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xED\x9F\xBF", "\xF4\x8F\xBF\xBF"})
    EXPECT_TRUE(is_utf8(good)) << good;
  for (const char* bad : {"\x80", "\xC0\x80", "\xC1\xBF", "\xC3", "\xC3(", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xE2\x82",
                          "\xE2\x82(", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF"})
    EXPECT_FALSE(is_utf8(bad)) << bad;
}

TEST(Text, ShownHasNoControlCharactersAndIsShort) {
  EXPECT_EQ(shown("a\x1b[31m\nb"), "a?[31m?b");
  EXPECT_EQ(shown(std::string(80, 'x')), std::string(80, 'x'));
  EXPECT_EQ(shown(std::string(81, 'x')), std::string(80, 'x') + "..");
  EXPECT_TRUE(is_utf8(shown(std::string(79, 'x') + "\xE2\x82\xAC\xE2\x82\xAC")));
}

// ---- safetensors

std::string with_length(const std::string& header, const std::string& data) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(static_cast<uint64_t>(header.size()) >> (8 * i));
  return bytes + header + data;
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape + "],\"data_offsets\":[" + offsets + "]}";
}

void expect_rejected(const std::string& header, size_t data_bytes, const std::string& part) {
  SCOPED_TRACE(header.substr(0, 200));
  expect_error([&] { parse_safetensors(with_length(header, std::string(data_bytes, '\0')), "bad.safetensors"); }, part);
  expect_error([&] { parse_safetensors(with_length(header, std::string(data_bytes, '\0')), "bad.safetensors"); },
               "bad.safetensors");
}

TEST(Safetensors, RoundTrip) {
  const TemporaryFolder folder;
  const std::vector<float> weights = {1.5f, -2, std::numeric_limits<float>::infinity(), 4, 5, 6}, scalar = {7};
  const std::vector<uint8_t> labels = {1, 2, 3};
  const std::vector<double> wide = {0.1};
  write_safetensors(folder.file("a"),
                    {{"labels", "U8", {3}, std::as_bytes(std::span(labels))},
                     f32_tensor("b.weight", {2, 3}, weights),
                     f32_tensor("a.scalar", {}, scalar),
                     {"empty", "I64", {0, 5}, {}},
                     {"wide", "F64", {1}, std::as_bytes(std::span(wide))}},
                    {{"format", "pt"}, {"quote\"\n", "\xC3\xA9"}});
  const TensorFile file = read_safetensors(folder.file("a"));
  ASSERT_EQ(file.tensors.size(), 5u);
  EXPECT_EQ(file.metadata, (Metadata{{"format", "pt"}, {"quote\"\n", "\xC3\xA9"}}));
  ASSERT_NE(file.find("b.weight"), nullptr);
  EXPECT_EQ(file.find("b.weight")->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(to_floats(*file.find("b.weight")), weights);
  EXPECT_EQ(to_floats(*file.find("a.scalar")), scalar);
  EXPECT_EQ(to_floats(*file.find("wide")), std::vector<float>{0.1f});
  EXPECT_EQ(std::memcmp(file.find("labels")->data.data(), labels.data(), 3), 0);
  EXPECT_EQ(file.find("empty")->data.size(), 0u);
  EXPECT_EQ(file.find("none"), nullptr);
  EXPECT_EQ(file.tensors[0].name, "a.scalar");
}

TEST(Safetensors, CopyOutlivesTheOriginal) {
  const std::string header = "{" + entry("a", "F32", "1", "0,4") + "}";
  TensorFile copy;
  {
    const TensorFile file = parse_safetensors(with_length(header, std::string("\0\0\x80\x3f", 4)), "a");
    copy = file;
  }
  EXPECT_EQ(to_floats(copy.tensors[0]), std::vector<float>{1});
}

TEST(Safetensors, WrittenBytesAreTheReferences) {
  const TemporaryFolder folder;
  const std::vector<float> one = {1}, two = {2};
  const std::vector<uint8_t> byte = {9};
  const Tensor a = f32_tensor("a", {1}, one), b = f32_tensor("b", {1}, two),
               c{"0", "U8", {1}, std::as_bytes(std::span(byte))};
  write_safetensors(folder.file("1"), {b, c, a}, {{"k", "v"}});
  write_safetensors(folder.file("2"), {a, b, c}, {{"k", "v"}});
  const std::string bytes = read_file(folder.file("1"));
  EXPECT_EQ(bytes, read_file(folder.file("2")));
  const std::string header = "{\"__metadata__\":{\"k\":\"v\"}," + entry("a", "F32", "1", "0,4") + "," +
                             entry("b", "F32", "1", "4,8") + "," + entry("0", "U8", "1", "8,9") + "}";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(bytes, with_length(padded, std::string("\0\0\x80\x3f\0\0\0\x40\x09", 9)));
}

TEST(Safetensors, DataIsAlignedWhateverTheHeadersLength) {
  const TemporaryFolder folder;
  const std::vector<float> one = {1};
  for (size_t length = 1; length <= 9; ++length) {
    write_safetensors(folder.file("a"), {f32_tensor(std::string(length, 'n'), {1}, one)});
    EXPECT_EQ((fs::file_size(folder.file("a")) - 4) % 8, 0u) << length;
    EXPECT_EQ(to_floats(read_safetensors(folder.file("a")).tensors.at(0)), one);
  }
}

TEST(Safetensors, WriterRefusesWhatWouldNotBeAFile) {
  const TemporaryFolder folder;
  const std::vector<float> one = {1};
  const auto write = [&](std::vector<Tensor> tensors) { write_safetensors(folder.file("a"), std::move(tensors)); };
  expect_error([&] { write({f32_tensor("a", {2}, one)}); }, "needs 8 bytes and has 4", ErrorKind::bug);
  expect_error(
      [&] {
        write({f32_tensor("a", {1}, one), f32_tensor("a", {1}, one)});
      },
      "two tensors are named 'a'", ErrorKind::bug);
  expect_error([&] { write({f32_tensor("__metadata__", {1}, one)}); }, "cannot have this name", ErrorKind::bug);
  expect_error([&] { write({{"a", "F33", {1}, std::as_bytes(std::span(one))}}); }, "unknown dtype", ErrorKind::bug);
  expect_error([&] { write({f32_tensor("a\xFF", {1}, one)}); }, "not valid UTF-8");
  EXPECT_EQ(files_in(folder.path()), 0u);
}

TEST(Safetensors, HalvesBecomeFloats) {
  const std::vector<uint16_t> halves = {0x3C00, 0xC000, 0x0001, 0x83FF, 0x7BFF, 0x7C00, 0xFC00, 0x0400, 0x3555};
  const Tensor f16{"h", "F16", {9}, std::as_bytes(std::span(halves))};
  EXPECT_EQ(to_floats(f16),
            (std::vector<float>{1, -2, 0x1p-24f, -1023 * 0x1p-24f, 65504, std::numeric_limits<float>::infinity(),
                                -std::numeric_limits<float>::infinity(), 0x1p-14f, 0x1.554p-2f}));
  const std::vector<uint16_t> brains = {0x3F80, 0xC040, 0x7F80};
  const Tensor bf16{"b", "BF16", {3}, std::as_bytes(std::span(brains))};
  EXPECT_EQ(to_floats(bf16), (std::vector<float>{1, -3, std::numeric_limits<float>::infinity()}));
  expect_error([&] { to_floats({"i", "I32", {}, {}}); }, "must be F32, F64, F16 or BF16");
}

TEST(Safetensors, AcceptsWhatTheFormatAllows) {
  EXPECT_TRUE(parse_safetensors(with_length("{}", ""), "a").tensors.empty());
  EXPECT_TRUE(parse_safetensors(with_length("{}      ", ""), "a").tensors.empty());
  EXPECT_TRUE(parse_safetensors(with_length("{\"__metadata__\":{}}", ""), "a").metadata.empty());
  const std::string escaped = "{" + entry("\\u0041", "U8", "", "0,1") + "}";
  EXPECT_NE(parse_safetensors(with_length(escaped, "x"), "a").find("A"), nullptr);
  const std::string unordered = "{" + entry("a", "U8", "1", "2,3") + "," + entry("b", "U8", "2", "0,2") + "," +
                                entry("z", "F32", "0", "2,2") + "}";
  EXPECT_EQ(static_cast<char>(parse_safetensors(with_length(unordered, "xyz"), "a").find("a")->data[0]), 'z');
}

TEST(Safetensors, RejectsBadFraming) {
  expect_error([] { parse_safetensors("1234567", "f"); }, "too short to be a safetensors file");
  expect_error([] { parse_safetensors(std::string("\x03\0\0\0\0\0\0\0{}", 10), "f"); }, "ends inside its header");
  expect_error([] { parse_safetensors(std::string(8, '\xFF'), "f"); }, "more than the 100 MB allowed");
  // The limit itself: one byte more is over it, the limit is merely over this file.
  expect_error([] { parse_safetensors(std::string("\x01\xe1\xf5\x05\0\0\0\0", 8), "f"); }, "more than the 100 MB");
  expect_error([] { parse_safetensors(std::string("\x00\xe1\xf5\x05\0\0\0\0", 8), "f"); }, "ends inside its header");
  expect_error([] { read_safetensors("/nowhere/f"); }, "does not exist");
}

TEST(Safetensors, RejectsBadHeaderText) {
  expect_rejected("", 0, "does not begin with '{'");
  expect_rejected(" {}", 0, "does not begin with '{'");
  expect_rejected("[]", 0, "does not begin with '{'");
  expect_rejected("\xEF\xBB\xBF{}", 0, "does not begin with '{'");
  expect_rejected("{", 0, "not valid JSON");
  expect_rejected("{} x", 0, "not valid JSON");
  expect_rejected("{}{}", 0, "not valid JSON");
  expect_rejected("{\"a\":}", 0, "not valid JSON");
  expect_rejected("{/* */}", 0, "not valid JSON");
  expect_rejected(std::string("{}\0{}", 5), 0, "zero byte");
  expect_rejected("{\"a\xC3\":1}", 0, "not valid UTF-8");
  expect_rejected("{\"\xED\xA0\x80\":1}", 0, "not valid UTF-8");
  expect_rejected("{\"\\uD800\":{}}", 0, "not valid JSON");
}

TEST(Safetensors, RejectsNesting) {
  expect_rejected("{\"a\":{\"dtype\":{", 0, "nested deeper");
  expect_rejected("{\"a\":{\"shape\":[[", 0, "nested deeper");
  expect_rejected("{\"__metadata__\":{\"a\":{", 0, "nested deeper");
  std::string deep = "{\"a\":{\"shape\":";
  expect_rejected(deep + std::string(5'000'000, '['), 0, "nested deeper");
  expect_rejected("{\"a\":" + std::string(5'000'000, '['), 0, "has a list in its header");
}

TEST(Safetensors, RejectsDuplicates) {
  const std::string a = entry("a", "U8", "1", "0,1");
  expect_rejected("{" + a + "," + a + "}", 1, "names 'a' twice");
  expect_rejected("{" + a + "," + entry("\\u0061", "U8", "1", "0,1") + "}", 1, "names 'a' twice");
  expect_rejected("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "names '__metadata__' twice");
  expect_rejected("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, "metadata key 'k' twice");
  for (const char* key : {"\"dtype\":\"U8\"", "\"shape\":[1]", "\"data_offsets\":[0,1]"})
    expect_rejected("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]," + std::string(key) + "}}", 1,
                    "twice at tensor 'a'");
}

TEST(Safetensors, RejectsWrongFields) {
  expect_rejected("{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "no data_offsets for tensor 'a'");
  expect_rejected("{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "no shape for tensor 'a'");
  expect_rejected("{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "no dtype for tensor 'a'");
  expect_rejected("{\"a\":{\"extra\":1}}", 1, "unknown key 'extra'");
  expect_rejected("{" + entry("a", "U8", "1", "0") + "}", 1, "1 data_offsets");
  expect_rejected("{" + entry("a", "U8", "1", "0,1,1") + "}", 1, "3 data_offsets");
  expect_rejected("{" + entry("a", "U8", "-1", "0,1") + "}", 1, "a negative number");
  expect_rejected("{" + entry("a", "U8", "1.5", "0,1") + "}", 1, "a fraction");
  expect_rejected("{" + entry("a", "U8", "18446744073709551616", "0,1") + "}", 1, "an oversized number");
  expect_rejected("{" + entry("a", "U8", "\"1\"", "0,1") + "}", 1, "a string");
  expect_rejected("{\"a\":{\"dtype\":8}}", 1, "a number");
  expect_rejected("{\"a\":{\"dtype\":[\"U8\"]}}", 1, "a list");
  expect_rejected("{\"a\":null}", 0, "null");
  expect_rejected("{\"a\":true}", 0, "a truth value");
  expect_rejected("{\"a\":\"text\"}", 0, "a string");
  expect_rejected("{\"__metadata__\":{\"k\":1}}", 0, "a number");
  expect_rejected("{\"__metadata__\":[]}", 0, "a list");
  expect_rejected("{" + entry("a", "F33", "1", "0,1") + "}", 1, "unknown dtype 'F33'");
  expect_rejected("{" + entry("a", "f32", "1", "0,4") + "}", 4, "unknown dtype 'f32'");
}

TEST(Safetensors, RejectsSizesThatDoNotFit) {
  expect_rejected("{" + entry("a", "F32", "2", "0,4") + "}", 4, "4 bytes for tensor 'a' but its shape needs 8");
  expect_rejected("{" + entry("a", "F32", "1", "0,8") + "}", 8, "8 bytes for tensor 'a' but its shape needs 4");
  expect_rejected("{" + entry("a", "U8", "2", "4,2") + "}", 4, "run backwards");
  expect_rejected("{" + entry("a", "F32", "2", "0,8") + "}", 7, "ends before the data of tensor 'a'");
  const std::string big = "4611686018427387904";  // 2^62
  expect_rejected("{" + entry("a", "F32", big, "0,4") + "}", 4, "size overflows");
  expect_rejected("{" + entry("a", "U8", "4294967296,4294967296", "0,0") + "}", 0, "size overflows");
  expect_rejected("{" + entry("a", "U8", "0,18446744073709551615", "0,0") + "}", 0, "size overflows");
  expect_rejected("{" + entry("a", "U8", "9223372036854775807", "0,9223372036854775807") + "}", 0, "ends before");
}

TEST(Safetensors, RejectsOverlapsHolesAndTails) {
  const auto pair = [](const char* first, const char* second) {
    return "{" + entry("a", "U8", "4", first) + "," + entry("b", "U8", "4", second) + "}";
  };
  EXPECT_EQ(parse_safetensors(with_length(pair("0,4", "4,8"), "12345678"), "a").tensors.size(), 2u);
  expect_rejected(pair("0,4", "3,7"), 7, "tensor 'b' overlapping");
  expect_rejected(pair("0,4", "0,4"), 4, "overlapping");
  expect_rejected(pair("0,4", "5,9"), 9, "hole of 1 bytes before tensor 'b'");
  expect_rejected(pair("1,5", "5,9"), 9, "hole of 1 bytes before tensor 'a'");
  expect_rejected(pair("0,4", "4,8"), 9, "1 bytes after its last tensor");
  expect_rejected("{}", 1, "1 bytes after its last tensor");
  expect_rejected("{" + entry("a", "U8", "4", "0,4") + "," + entry("e", "U8", "0", "2,2") + "}", 4, "overlapping");
}

TEST(Safetensors, EveryTruncationIsRejected) {
  const TemporaryFolder folder;
  const std::vector<float> values = {1, 2};
  write_safetensors(folder.file("a"), {f32_tensor("a", {2}, values)}, {{"k", "v"}});
  const std::string bytes = read_file(folder.file("a"));
  for (size_t n = 0; n < bytes.size(); ++n)
    EXPECT_THROW(parse_safetensors(bytes.substr(0, n), "cut"), Error) << "cut to " << n;
  EXPECT_NO_THROW(parse_safetensors(bytes, "whole"));
}

// ---- images

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
