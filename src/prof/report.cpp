#include "prof/report.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace situ::prof {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

double mib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }
double rounded(double v, int digits) {
  const double scale = std::pow(10, digits);
  return std::round(v * scale) / scale;
}

std::string share(double part, double whole) {
  return fmt::format("{:.3f} ms  {:4.1f}%", part * 1e3, 100 * part / whole);
}

}  // namespace

std::string bench_line(const Measured& m) {
  ordered_json j;
  j["model"] = m.model;
  j["device"] = m.device;
  j["batch"] = m.batch;
  j["residency"] = m.residency;
  j["ms"] = rounded(m.median_seconds * 1e3, 4);
  j["best_ms"] = rounded(m.best_seconds * 1e3, 4);
  j["processor_ms"] = rounded(m.processor_seconds * 1e3, 4);
  j["steps"] = m.steps;
  j["peak_mib"] = rounded(mib(m.peak_bytes), 1);
  j["arena_mib"] = rounded(mib(m.ledger.arena_bytes), 3);
  j["launches"] = m.counted.launches;
  j["waits"] = m.counted.waits;
  j["bytes_in"] = m.counted.bytes_in;
  j["bytes_out"] = m.counted.bytes_out;
  j["gflop"] = m.ledger.flops * 1e-9;
  j["compute"] = m.split.compute;
  j["movement"] = m.split.movement;
  j["launch"] = m.split.launch;
  j["wait"] = m.split.wait;
  j["idle"] = m.split.idle;
  if (m.outside) j["outside"] = rounded(m.outside->share(), 4);
  j["programs"] = m.programs;
  j["first_step_s"] = rounded(m.first_step_seconds, 3);
  return j.dump();
}

std::string to_json(const Measured& m) {
  ordered_json j = ordered_json::parse(bench_line(m));
  j["persistent_mib"] = mib(m.ledger.persistent_bytes);
  j["profiled_wall"] = m.split.wall;
  j["profiled_steps"] = m.profiled_steps;
  j["plain_wall"] = m.plain_seconds;
  j["program"] = m.ledger.program;
  for (size_t i = 0; i < m.ledger.list.size(); ++i) {
    const auto& l = m.ledger.list[i];
    j["list"].push_back({{"kernel", l.kernel},
                         {"operands", l.detail},
                         {"layer", l.origin.layer},
                         {"backward", l.origin.backward},
                         {"flops", l.flops},
                         {"bytes", l.bytes},
                         {"seconds", i < m.launch_seconds.size() ? m.launch_seconds[i] : 0.0}});
  }
  return j.dump(1);
}

Measured from_json(const std::string& text, const std::string& origin) {
  const json j = json::parse(text, nullptr, /*allow_exceptions=*/false);
  try {
    Measured m;
    m.model = j.at("model");
    m.device = j.at("device");
    m.residency = j.at("residency");
    m.batch = j.at("batch");
    m.median_seconds = j.at("ms").get<double>() * 1e-3;
    m.best_seconds = j.at("best_ms").get<double>() * 1e-3;
    m.steps = j.at("steps");
    m.peak_bytes = static_cast<int64_t>(j.at("peak_mib").get<double>() * (1 << 20));
    m.ledger.arena_bytes = static_cast<int64_t>(j.at("arena_mib").get<double>() * (1 << 20));
    m.ledger.persistent_bytes = static_cast<int64_t>(j.at("persistent_mib").get<double>() * (1 << 20));
    m.counted.launches = j.at("launches");
    m.counted.waits = j.at("waits");
    m.counted.bytes_in = j.at("bytes_in");
    m.counted.bytes_out = j.at("bytes_out");
    m.ledger.flops = j.at("gflop").get<double>() * 1e9;
    m.ledger.program = j.at("program");
    m.programs = j.value("programs", int64_t{0});
    m.first_step_seconds = j.value("first_step_s", 0.0);
    m.split = {j.at("profiled_wall"), j.at("compute"), j.at("movement"),
               j.at("launch"),        j.at("wait"),    j.value("idle", 0.0)};
    m.profiled_steps = j.value("profiled_steps", int64_t{0});
    m.plain_seconds = j.value("plain_wall", 0.0);
    for (const json& l : j.value("list", json::array())) {
      m.ledger.list.push_back({l.at("kernel"),
                               l.at("operands"),
                               l.at("flops"),
                               l.at("bytes"),
                               {l.value("layer", ""), l.value("backward", false)}});
      m.launch_seconds.push_back(l.at("seconds"));
    }
    return m;
  } catch (const json::exception&) {
    fail("{} is not a ledger: `situ train` writes one into its output folder", origin);
  }
}

std::string side_by_side(const std::vector<Measured>& columns) {
  struct Row {
    const char* name;
    std::string (*cell)(const Measured&);
  };
  static const Row rows[] = {
      {"residency", [](const Measured& m) { return m.residency; }},
      {"step (median)", [](const Measured& m) { return fmt::format("{:.3f} ms", m.median_seconds * 1e3); }},
      {"arithmetic",
       [](const Measured& m) {
         return fmt::format("{:.4f} GFLOP, {:.1f} GFLOP/s", m.ledger.flops * 1e-9,
                            m.ledger.flops * 1e-9 / m.median_seconds);
       }},
      {"launches", [](const Measured& m) { return fmt::format("{}", m.counted.launches); }},
      {"host waits", [](const Measured& m) { return fmt::format("{}", m.counted.waits); }},
      {"bytes to the device", [](const Measured& m) { return fmt::format("{}", m.counted.bytes_in); }},
      {"bytes from the device", [](const Measured& m) { return fmt::format("{}", m.counted.bytes_out); }},
      {"arena", [](const Measured& m) { return fmt::format("{:.2f} MiB", mib(m.ledger.arena_bytes)); }},
      {"persistent", [](const Measured& m) { return fmt::format("{:.2f} MiB", mib(m.ledger.persistent_bytes)); }},
      {"time in compute", [](const Measured& m) { return share(m.split.compute, m.split.wall); }},
      {"time in movement", [](const Measured& m) { return share(m.split.movement, m.split.wall); }},
      {"time in launch", [](const Measured& m) { return share(m.split.launch, m.split.wall); }},
      {"time in wait", [](const Measured& m) { return share(m.split.wait, m.split.wall); }},
      {"time idle", [](const Measured& m) { return share(m.split.idle, m.split.wall); }},
  };
  std::string text = fmt::format("{:22}", "per step");
  for (const Measured& m : columns) text += fmt::format("  {:<36.36}", m.device);
  text += "\n";
  for (const Row& row : rows) {
    text += fmt::format("{:22}", row.name);
    for (const Measured& m : columns) text += fmt::format("  {:<36}", row.cell(m));
    text += "\n";
  }
  return text;
}

std::string launch_table(const Measured& m) {
  std::string text =
      fmt::format("{:>4}  {:18} {:>9} {:>9} {:>8}  {}\n", "#", "kernel", "us", "GFLOP/s", "GB/s", "operands");
  for (size_t i = 0; i < m.ledger.list.size(); ++i) {
    const auto& l = m.ledger.list[i];
    const double s = std::max(m.launch_seconds[i], 1e-9);
    text += fmt::format("{:4}  {:18} {:9.1f} {:9.1f} {:8.1f}  {}\n", i, l.kernel, s * 1e6, l.flops / s * 1e-9,
                        l.bytes / s * 1e-9, l.detail.substr(0, 80));
  }
  return text;
}

}  // namespace situ::prof
