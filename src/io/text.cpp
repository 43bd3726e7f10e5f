// text.cpp -- UTF-8 check after table 3-7 of the Unicode standard: the second byte's range depends on the first.
#include "io/text.h"

#include <cstddef>
#include <cstdint>

namespace situ::io {
namespace {

struct Lead {
  size_t follow;      // number of bytes after the first; 0 with low > high: not a lead byte
  uint8_t low, high;  // range of the second byte
};

Lead lead_of(uint8_t first) {
  if (first < 0x80) return {0, 0, 0};
  if (first >= 0xC2 && first <= 0xDF) return {1, 0x80, 0xBF};
  if (first == 0xE0) return {2, 0xA0, 0xBF};
  if (first == 0xED) return {2, 0x80, 0x9F};
  if (first >= 0xE1 && first <= 0xEF) return {2, 0x80, 0xBF};
  if (first == 0xF0) return {3, 0x90, 0xBF};
  if (first >= 0xF1 && first <= 0xF3) return {3, 0x80, 0xBF};
  if (first == 0xF4) return {3, 0x80, 0x8F};
  return {0, 1, 0};
}

}  // namespace

bool is_utf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  for (size_t i = 0; i < text.size();) {
    const Lead lead = lead_of(byte(i));
    if (lead.low > lead.high || text.size() - i <= lead.follow) return false;
    if (lead.follow > 0 && (byte(i + 1) < lead.low || byte(i + 1) > lead.high)) return false;
    for (size_t k = 2; k <= lead.follow; ++k)
      if ((byte(i + k) & 0xC0) != 0x80) return false;
    i += lead.follow + 1;
  }
  return true;
}

std::string shown(std::string_view text) {
  constexpr size_t kLongest = 80;
  size_t end = text.size();
  if (end > kLongest)
    for (end = kLongest; end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80;) --end;
  std::string out(text.substr(0, end));
  for (char& c : out)
    if (static_cast<uint8_t>(c) < 0x20 || c == 0x7F) c = '?';
  return end < text.size() ? out + ".." : out;
}

}  // namespace situ::io
