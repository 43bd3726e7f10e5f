// features.h -- what kernels may use beyond buffers: images over them and sub-groups. The device's limits stand among
// the target's tuning values, so that every part asks the target and a record or a test may lower them.
#pragma once
#include <algorithm>

#include "device/target.h"

namespace situ::opencl {

// The largest images over a buffer, in texels of four elements; 0: there are none.
struct ImageLimits {
  int64_t line = 0;               // of one line
  int64_t width = 0, height = 0;  // of several lines, which lie
  int64_t pitch = 0, base = 1;    // a multiple of this apart, and start at a multiple of base
};

inline void set_image_limits(device::Target& target, const ImageLimits& most) {
  const auto lower = [&](std::string_view key, int64_t value) {
    target.tuning.set(key, std::min(value, target.tuning.get(key, value)));
  };
  lower("image.line", most.line);
  lower("image.width", most.width);
  lower("image.height", most.height);
  target.tuning.set("image.pitch", most.pitch);
  target.tuning.set("image.base", most.base);
}

inline ImageLimits image_limits(const device::Target& target) {
  const device::Tuning& t = target.tuning;
  return {t.get("image.line", 0), t.get("image.width", 0), t.get("image.height", 0), t.get("image.pitch", 0),
          t.get("image.base", 1)};
}

inline void set_sub_groups(device::Target& target, bool yes) { target.tuning.set("device.sub_groups", yes); }
inline bool has_sub_groups(const device::Target& target) { return target.tuning.get("device.sub_groups", 0) != 0; }

}  // namespace situ::opencl
