#include "estimate/calibrate.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "estimate/least_squares.h"

namespace situ::estimate {
namespace {

constexpr double kStrength = 0.1;    // of what is known without the launches: a tenth of one of them
constexpr double kLeastTime = 2e-7;  // shorter ones cannot be measured
constexpr double kLeastBand = 0.15;
constexpr double kInterrupted = 1e-3;  // seconds after which another process may have had a turn

struct Launch {
  const Work* work;
  double seconds;
};

Rate fit_rate(const std::vector<Launch>& launches, const Rate& known, Class kind, const device::Roofline& r) {
  if (launches.empty()) return known;
  double mean = 0;
  for (const Launch& l : launches) mean += l.seconds / static_cast<double>(launches.size());
  std::vector<Row> rows;
  for (const Launch& l : launches) {
    const double bytes = l.work->bytes;
    rows.push_back({{1e-6, l.work->flops / r.peak_flops, bytes / r.bandwidth(static_cast<int64_t>(bytes))},
                    l.seconds,
                    std::clamp(l.seconds / mean, 0.05, 20.0)});
  }
  Prior prior;
  prior.middle = {known.fixed * 1e6, known.flops, known.bytes};
  prior.spread = {std::max(1.0, known.fixed * 1e6), std::max(0.5, known.flops), std::max(0.5, known.bytes)};
  prior.least = {0, is_product(kind) ? 1.0 : 0.0, 0};
  prior.strength = kStrength;
  const Triple c = fit_triple(rows, prior);
  return {c[0] * 1e-6, c[1], c[2]};
}

// A step against its launches alone, and a moment between each two.
void fit_step(Constants& constants, const std::vector<MeasuredStep>& steps, const device::Roofline& r) {
  std::vector<Row> rows;
  for (const MeasuredStep& s : steps) {
    double sum = 0;
    for (const Work& work : s.works) sum += seconds_of(work, r, constants);
    rows.push_back({{sum, static_cast<double>(s.works.size()) * 1e-6, 1e-6}, s.seconds - s.movement, 1});
  }
  Prior prior;
  prior.middle = {1, r.launch_seconds * 1e6, 0};
  prior.spread = {0.3, std::max(1.0, r.launch_seconds * 1e6), 20};
  prior.least = {0.8, 0, 0};
  prior.strength = 0.01;
  const Triple c = fit_triple(rows, prior);
  constants.scale = c[0];
  constants.launch_seconds = c[1] * 1e-6;
  constants.step_seconds = c[2] * 1e-6;
}

Constants fit_once(const std::vector<MeasuredStep>& steps, const device::Roofline& roofline, Kind kind) {
  Constants constants = default_constants(kind);
  std::map<Class, std::vector<Launch>> by_class;
  std::map<std::string, std::vector<Launch>> by_kernel;
  for (const MeasuredStep& s : steps)
    for (size_t i = 0; i < s.works.size(); ++i) {
      const Launch launch{&s.works[i], std::max(kLeastTime, s.launch_seconds[i])};
      by_class[s.works[i].kind].push_back(launch);
      by_kernel[s.works[i].kernel].push_back(launch);
    }
  for (const auto& [c, launches] : by_class)
    constants.classes[c] = fit_rate(launches, constants.classes.at(c), c, roofline);
  for (const auto& [kernel, launches] : by_kernel) {
    const Class c = launches.front().work->kind;
    constants.kernels[kernel] = fit_rate(launches, constants.classes.at(c), c, roofline);
  }
  fit_step(constants, steps, roofline);
  return constants;
}

std::string path_of(const device::Target& target, const std::string& folder) {
  const std::string key =
      fmt::format("{} | {} | {} | {}", target.backend, target.name, target.driver, target.compute_units);
  return fmt::format("{}/estimate-{:016x}.json", folder, hash_of(key));
}

// The launches of a step take no longer than the step. What exceeds it went to other processes, and the longer a launch
// is, the surer it was interrupted each time.
MeasuredStep without_interruptions(MeasuredStep step) {
  double all = 0, longer = 0;
  for (double t : step.launch_seconds) {
    all += t;
    if (t > kInterrupted) longer += t;
  }
  if (all <= step.seconds || longer <= all - step.seconds) return step;
  const double kept = 1 - (all - step.seconds) / longer;
  for (double& t : step.launch_seconds)
    if (t > kInterrupted) t *= kept;
  return step;
}

}  // namespace

Constants fit(const std::vector<MeasuredStep>& measured, const device::Roofline& roofline, Kind kind) {
  std::vector<MeasuredStep> steps;
  for (const MeasuredStep& s : measured) steps.push_back(without_interruptions(s));
  Constants constants = fit_once(steps, roofline, kind);
  constants.band = kLeastBand;
  for (size_t left_out = 0; left_out < steps.size() && steps.size() > 1; ++left_out) {
    std::vector<MeasuredStep> others;
    for (const MeasuredStep& s : steps)
      if (s.model != steps[left_out].model) others.push_back(s);
    if (others.empty()) continue;
    const double ratio =
        seconds_of(steps[left_out], roofline, fit_once(others, roofline, kind)) / steps[left_out].seconds;
    constants.band = std::max(constants.band, std::max(ratio, 1 / ratio) - 1);
  }
  return constants;
}

double seconds_of(const MeasuredStep& step, const device::Roofline& roofline, const Constants& constants) {
  double sum = 0;
  for (const Work& work : step.works) sum += seconds_of(work, roofline, constants);
  return constants.scale * sum + constants.launch_seconds * static_cast<double>(step.works.size()) +
         constants.step_seconds + step.movement;
}

const std::vector<CalibrationModel>& calibration_models() {
  static const std::vector<CalibrationModel> models = {
      {"lenet5", "sgd", 64}, {"resnet20", "sgd", 8},   {"resnet20", "sgd", 32},  {"mobilenetv2@96", "sgd", 4},
      {"kws", "adam", 16},   {"gpt-mini", "adamw", 1}, {"gpt-mini", "adamw", 8}, {"mobilenetv2@96", "sgd", 16}};
  return models;
}

std::optional<Constants> load_constants(const device::Target& target, const std::string& folder) {
  const std::string path = path_of(target, folder);
  std::error_code ignored;
  if (folder.empty() || !std::filesystem::exists(path, ignored)) return {};
  try {
    return constants_from_json(read_file(path), path);
  } catch (const Error&) {
    return {};
  }
}

void save_constants(const Constants& constants, const device::Target& target, const std::string& folder) {
  if (folder.empty()) fail_environment("there is no cache folder to keep constants in: set SITU_CACHE");
  make_folders(folder);
  write_file_atomic(path_of(target, folder), to_json(constants) + "\n");
}

}  // namespace situ::estimate
