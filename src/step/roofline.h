// roofline.h -- measures what a device can do at best (device/roofline.h), once, and keeps it in the cache folder.
//
// Everything goes through the device border: launches of the kernels `peak_flops` and `peak_triad`, copies, finishes.
// The best of several turns counts, the parts taking turns, since a shared machine only ever slows down.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "device/device.h"
#include "device/roofline.h"

namespace situ::step {

struct RooflineOptions {
  double seconds = 3;                                           // about how long, compiling aside
  int64_t largest = int64_t{64} << 20;                          // bytes of the largest working set
  std::function<void(int turn, int turns)> progress = nullptr;  // after each turn
};
device::Roofline measure_roofline(device::Device& device, const RooflineOptions& options = {});

// Kept per device, driver and number of threads. What is unreadable counts as not there.
std::optional<device::Roofline> load_roofline(const device::Target& target, const std::string& folder);
void save_roofline(const device::Roofline& roofline, const device::Target& target, const std::string& folder);
std::string describe(const device::Roofline& roofline);  // a few lines for people

}  // namespace situ::step
