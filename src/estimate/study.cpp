#include "estimate/study.h"

#include "base/error.h"
#include "estimate/paper_device.h"
#include "estimate/phone.h"
#include "step/programs.h"

namespace situ::estimate {
namespace {

constexpr double kComputation = 1.0 / 11;  // of the time, as the study found

bool of_backward(std::string_view kernel, bool after_loss) {
  return after_loss && class_of(kernel) != Class::update && kernel != "metrics" && kernel != "accuracy";
}

}  // namespace

StudyWork study_work(const std::string& widths, int64_t batch, const device::Target& target) {
  const model::Model model = model::find_model("mlp:" + widths);
  step::CompileOptions options;
  options.fuse = options.hoist = false;
  const auto device = make_paper_device(target);
  const step::Compiled compiled = step::compile({step::train_program({model, batch, {}})}, *device, options);
  StudyWork work;
  bool after_loss = false;
  for (const device::LaunchSpec& launch : compiled.programs.front().launches) {
    const bool loss = launch.node.op == "softmax_xent";
    after_loss = after_loss || loss;
    if (!of_backward(launch.node.op, after_loss)) continue;
    const bool weight_gradient = class_of(launch.node.op) == Class::product && launch.node.attrs.flag("ta");
    work.trips += loss || weight_gradient ? 1 : 0;
    work.flops += launch.flops;
    work.bytes += launch.bytes;
  }
  return work;
}

StudyFit fit_study(const std::vector<Phone>& phones) {
  // seconds = trips * a(phone) + bytes * v(all): least squares. Both models have as many trips, so v follows from the
  // differences alone.
  StudyFit fit;
  double across = 0, within = 0, seconds = 0, flops = 0;
  StudyWork work[2];
  for (const Phone& phone : phones) {
    if (!phone.study) continue;
    for (size_t m : {0, 1})
      work[m] = study_work(phone.study->models[kFittedModels[m]], phone.study->batch, phone.gpu.target);
    const double more = phone.study->gpu[kFittedModels[1]] - phone.study->gpu[kFittedModels[0]];
    const double bytes = work[1].bytes - work[0].bytes;
    SITU_ASSERT(work[0].trips == work[1].trips, "{} and {} trips", work[0].trips, work[1].trips);
    across += more * bytes;
    within += bytes * bytes;
    seconds += more;
    flops += work[1].flops - work[0].flops;
  }
  SITU_ASSERT(within > 0 && across > 0, "no phone of the study");
  const double per_byte = across / within;
  for (const Phone& phone : phones) {
    if (!phone.study) continue;
    double trip = 0;
    for (size_t m : {0, 1}) {
      const StudyWork w = study_work(phone.study->models[kFittedModels[m]], phone.study->batch, phone.gpu.target);
      trip += (phone.study->gpu[kFittedModels[m]] - per_byte * w.bytes) / w.trips / 2;
    }
    fit.trips[phone.name] = (1 - kComputation) * trip;
    fit.kernels[phone.name] = kComputation * trip;
  }
  fit.bandwidth = 1 / ((1 - kComputation) * per_byte);
  fit.rate = flops / (kComputation * seconds);
  return fit;
}

Estimate study_estimate(const StudyFit& fit, const Phone& phone, const StudyWork& work) {
  const auto trip = fit.trips.find(phone.name);
  SITU_ASSERT(trip != fit.trips.end(), "{} is no phone of the study", phone.name);
  Estimate e;
  e.launches = static_cast<int64_t>(work.trips);
  e.compute = work.trips * fit.kernels.find(phone.name)->second + work.flops / fit.rate;
  e.movement = work.bytes / fit.bandwidth;
  e.launch = work.trips * std::min(trip->second, phone.gpu.roofline.launch_seconds);
  e.wait = work.trips * trip->second - e.launch;
  e.flops = work.flops;
  e.band = 0.35;
  e.available = phone.gpu.target.memory;
  return e;
}

}  // namespace situ::estimate
