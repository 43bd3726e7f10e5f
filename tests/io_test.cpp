// io_test.cpp -- files, text and safetensors: round trips, and one test for every way a file can be wrong.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <limits>

#include "base/file.h"
#include "harness.h"
#include "io/safetensors.h"
#include "io/text.h"

namespace situ::io {
namespace {

namespace fs = std::filesystem;
using test::expect_error;

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

}  // namespace
}  // namespace situ::io
