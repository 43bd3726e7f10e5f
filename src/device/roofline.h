// roofline.h -- what a device was measured to do at best: arithmetic, memory by working set, copies, launches, waits.
//
//   a launch takes no less than  max(flops / peak_flops, bytes / bandwidth(bytes touched))
// Measured by step/roofline.h, kept as JSON, read by profiles and estimates.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace situ::device {

struct Roofline {
  struct Level {
    int64_t bytes = 0;     // touched by a launch
    double bandwidth = 0;  // bytes per second, read and written
  };
  double peak_flops = 0;      // multiply-adds from registers, two flops each
  std::vector<Level> levels;  // small to large
  double copy_in_bandwidth = 0, copy_out_bandwidth = 0;
  double write_seconds = 0, read_seconds = 0;  // of a copy of a few bytes: queued behind others; until they are here
  double launch_seconds = 0;                   // one more tiny launch queued behind others
  double wait_seconds = 0;                     // of a finish, beyond the launch that it waits for
  std::string device, driver, measured;        // measured: the date

  double bandwidth(int64_t working_set) const;       // between two levels: by the logarithm of the size
  double seconds(double flops, double bytes) const;  // the least a launch of this cost takes; a launch's own cost aside
  bool compute_bound(double flops, double bytes) const;
};

std::string to_json(const Roofline& roofline);
Roofline roofline_from_json(const std::string& text, const std::string& origin);  // fails with the origin

}  // namespace situ::device
