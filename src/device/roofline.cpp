#include "device/roofline.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace situ::device {

double Roofline::bandwidth(int64_t working_set) const {
  SITU_ASSERT(!levels.empty(), "a roofline without levels");
  if (working_set <= levels.front().bytes) return levels.front().bandwidth;
  for (size_t i = 1; i < levels.size(); ++i) {
    const Level &low = levels[i - 1], &high = levels[i];
    if (working_set > high.bytes) continue;
    const double at = std::log(static_cast<double>(working_set) / static_cast<double>(low.bytes)) /
                      std::log(static_cast<double>(high.bytes) / static_cast<double>(low.bytes));
    return low.bandwidth + at * (high.bandwidth - low.bandwidth);
  }
  return levels.back().bandwidth;
}

double Roofline::seconds(double flops, double bytes) const {
  return std::max(flops / peak_flops, bytes / bandwidth(static_cast<int64_t>(bytes)));
}

bool Roofline::compute_bound(double flops, double bytes) const {
  return flops / peak_flops > bytes / bandwidth(static_cast<int64_t>(bytes));
}

std::string to_json(const Roofline& r) {
  nlohmann::ordered_json j;
  j["device"] = r.device;
  j["driver"] = r.driver;
  j["measured"] = r.measured;
  j["peak_flops"] = r.peak_flops;
  j["levels"] = nlohmann::ordered_json::array();
  for (const Roofline::Level& level : r.levels)
    j["levels"].push_back({{"bytes", level.bytes}, {"bandwidth", level.bandwidth}});
  j["copy_in_bandwidth"] = r.copy_in_bandwidth;
  j["copy_out_bandwidth"] = r.copy_out_bandwidth;
  j["write_seconds"] = r.write_seconds;
  j["read_seconds"] = r.read_seconds;
  j["launch_seconds"] = r.launch_seconds;
  j["wait_seconds"] = r.wait_seconds;
  return j.dump(1);
}

Roofline roofline_from_json(const std::string& text, const std::string& origin) {
  const auto j = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  Roofline r;
  try {
    r.device = j.at("device");
    r.driver = j.at("driver");
    r.measured = j.at("measured");
    r.peak_flops = j.at("peak_flops");
    for (const auto& level : j.at("levels")) r.levels.push_back({level.at("bytes"), level.at("bandwidth")});
    r.copy_in_bandwidth = j.at("copy_in_bandwidth");
    r.copy_out_bandwidth = j.at("copy_out_bandwidth");
    r.write_seconds = j.at("write_seconds");
    r.read_seconds = j.at("read_seconds");
    r.launch_seconds = j.at("launch_seconds");
    r.wait_seconds = j.at("wait_seconds");
  } catch (const nlohmann::json::exception&) {
    fail("{} holds no measured rates of a device: `situ devices --measure` makes it", origin);
  }
  const bool positive = r.peak_flops > 0 && !r.levels.empty() && r.copy_in_bandwidth > 0 && r.copy_out_bandwidth > 0 &&
                        std::ranges::all_of(r.levels, [](const auto& l) { return l.bytes > 0 && l.bandwidth > 0; });
  if (!positive) fail("{} holds rates that are not positive: `situ devices --measure` makes it anew", origin);
  return r;
}

}  // namespace situ::device
