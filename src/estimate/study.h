// study.h -- the study's backward passes (arXiv 2202.10100) as round trips, and constants fitted to some of them.
//
// MNN's OpenCL back end ran a backward pass layer by layer: operands copied in, kernels launched, a wait, results
// copied out. Mapped onto situ's own unfused launch list of the same model:
//   trips    one for the loss and one per weight gradient, that is, per layer
//   bytes    operands and results of the launches from the loss on, without metrics and updates
//   flops    of the same launches
//   seconds = trips * (trip + kernel) + bytes / bandwidth + flops / rate
// `kernel` and the flops are computation, all the rest is movement, launch and wait. Fitted on two models of one layer
// (M1 and M3): a trip per phone; bandwidth and rate for all phones together, since the times were read off plots (10%),
// and on two of the three phones the models differ by no more than that. What is computation of it is the study's own
// finding: copies, launches and waits took ten elevenths. That a trip belongs to a layer was chosen with all four
// models in view.
#pragma once
#include <map>
#include <string>

#include "estimate/estimate.h"

namespace situ::estimate {

struct Phone;

struct StudyWork {
  double trips = 0, bytes = 0, flops = 0;
};
StudyWork study_work(const std::string& widths, int64_t batch, const device::Target& target);

struct StudyFit {
  std::map<std::string, double, std::less<>> trips;  // phone -> seconds of a trip, its kernel left out
  std::map<std::string, double, std::less<>> kernels;
  double bandwidth = 0, rate = 0;  // bytes and flops per second
};
inline constexpr size_t kFittedModels[] = {0, 2};  // M1 and M3

StudyFit fit_study(const std::vector<Phone>& phones);
Estimate study_estimate(const StudyFit& fit, const Phone& phone, const StudyWork& work);

}  // namespace situ::estimate
