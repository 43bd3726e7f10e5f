// constants.h -- how far kernels stay behind a device's measured or published best, per kernel and per class.
//
//   seconds of a launch = fixed + flops / (peak * share of it reached) + bytes / (bandwidth * share of it reached)
// The fixed part is a ramp too: a rate that grows with the work as work / (work + half) takes a constant longer.
// Kernels that calibration has seen have rates of their own, all others those of their class.
#pragma once
#include <map>
#include <string>

#include "device/roofline.h"
#include "estimate/work.h"

namespace situ::estimate {

struct Rate {
  double fixed = 0;  // seconds
  double flops = 1;  // times flops / peak: 1 over the share of the peak that is reached
  double bytes = 1;  // times bytes / bandwidth
};

struct Constants {
  std::map<std::string, Rate, std::less<>> kernels;
  std::map<Class, Rate> classes;  // every class
  double scale = 1;               // a step's kernels against the sum of their best times alone
  double launch_seconds = -1;     // between two launches of a step; negative: the roofline's
  double step_seconds = 0;        // of a step, whatever is in it
  double band = 1;                // estimates lie between seconds / (1 + band) and seconds * (1 + band)
  std::string basis;              // for people: what they come from
};

enum class Kind { cpu, gpu };
Constants default_constants(Kind kind);

const Rate& rate_of(const Constants& constants, const Work& work);
double seconds_of(const Work& work, const device::Roofline& roofline, const Constants& constants);

std::string to_json(const Constants& constants);
Constants constants_from_json(const std::string& text, const std::string& origin);  // fails with the origin

}  // namespace situ::estimate
