#include "backend/opencl/limits.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/names.h"

namespace situ::opencl {
namespace {

constexpr std::string_view kPhone = "alloc=64M,align=4096,local=64,texels=64K,images=0,subgroups=0,commands=0";

int64_t number_of(std::string_view text, std::string_view part) {
  int64_t value = 0, unit = 1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view rest(end, static_cast<size_t>(text.data() + text.size() - end));
  if (rest == "K") unit = 1 << 10;
  if (rest == "M") unit = 1 << 20;
  if (rest == "G") unit = 1 << 30;
  if (error != std::errc() || value < 0 || value > (int64_t{1} << 40) || (!rest.empty() && unit == 1))
    fail("SITU_LIMITS: `{}` is no limit: write a number, with K, M or G behind it if you like", part);
  return value * unit;
}

}  // namespace

void impose(std::string_view limits, DeviceInfo& info) {
  for (const std::string& part : split_list(limits == "phone" ? kPhone : limits, ',')) {
    const size_t equals = std::min(part.find('='), part.size());
    const std::string_view key = std::string_view(part).substr(0, equals);
    const int64_t value = number_of(std::string_view(part).substr(std::min(equals + 1, part.size())), part);
    if (key == "alloc")
      info.max_alloc = std::min(info.max_alloc > 0 ? info.max_alloc : value, value);
    else if (key == "align")
      info.alignment = std::max(info.alignment, value);
    else if (key == "local")
      info.max_group = std::min(info.max_group, static_cast<size_t>(std::max<int64_t>(1, value)));
    else if (key == "texels")
      info.image_limits.line = std::min(info.image_limits.line, value);
    else if (key == "images")
      info.images = info.images && value != 0;
    else if (key == "subgroups")
      info.subgroups = info.subgroups && value != 0;
    else if (key == "commands")
      info.command_buffer = info.command_buffer && value != 0, info.recordable_queue &= value != 0;
    else
      fail(
          "SITU_LIMITS: there is no limit `{}`: use alloc, align, local, texels, images, subgroups, commands, or phone "
          "for all",
          key);
  }
}

}  // namespace situ::opencl
