// calibrate.h -- constants of estimates from steps measured on a device, launch by launch.
//
// Rates of a class are fitted to all of its launches, those of a kernel to its own, and both lean on what is known
// without them where the launches do not tell. Errors count relative to the time measured; what a disturbance made slow
// counts less. The error band is the worst error on a model that the fit has not seen, each left out in turn.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "estimate/estimate.h"

namespace situ::estimate {

struct MeasuredStep {
  std::string model;
  std::vector<Work> works;             // of each launch
  std::vector<double> launch_seconds;  // of each launch's kernel, at best
  double seconds = 0;                  // of a step
  double movement = 0;                 // of them handing over the batch, as the roofline has it
};

Constants fit(const std::vector<MeasuredStep>& steps, const device::Roofline& roofline, Kind kind);
double seconds_of(const MeasuredStep& step, const device::Roofline& roofline, const Constants& constants);

// The models that calibration measures.
struct CalibrationModel {
  const char *model, *optimizer;
  int64_t batch;
};
const std::vector<CalibrationModel>& calibration_models();

// Kept per device, driver and number of threads, beside the roofline. What is unreadable counts as not there.
std::optional<Constants> load_constants(const device::Target& target, const std::string& folder);
void save_constants(const Constants& constants, const device::Target& target, const std::string& folder);

}  // namespace situ::estimate
